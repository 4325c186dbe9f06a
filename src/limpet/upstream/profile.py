"""The description of a client for the server: once, in `initialize`, or in `_meta` of every request (2026-07-28)."""

from collections.abc import Mapping
from typing import Any, Final

from limpet.protocol.params import LoggingLevel
from limpet.protocol.sessionless import CAPABILITIES_KEY, CLIENT_KEY, LEVEL_KEY, VERSION_KEY
from limpet.protocol.tasks import without_extension

_NOTHING: Final[Mapping[str, Any]] = {}


class ClientProfile:
    """A client's name, capabilities and log level."""

    __slots__ = ("_meta", "_repeated", "capabilities", "info", "level", "repeats_extensions")

    def __init__(
        self,
        info: dict[str, Any],
        capabilities: dict[str, Any],
        *,
        repeats_extensions: bool = False,
        meta: Mapping[str, Any] = _NOTHING,
    ) -> None:
        """Describe a client. `repeats_extensions`: every request declares them, also in a session.

        `meta` goes with `initialize`.

        Some handlers read the extensions of a client there, because clients of 2026-07-28 declare them so.
        """
        self._meta = meta
        self.info: dict[str, Any] = info
        """Name and version, as `clientInfo`."""
        self.capabilities: dict[str, Any] = capabilities
        self.level: LoggingLevel | None = None
        """The lowest level of log messages that the server shall send; None: the server chooses."""
        extensions = self._in_session.get("extensions") if repeats_extensions else None
        self._repeated = {CAPABILITIES_KEY: {"extensions": extensions}} if extensions else _NOTHING
        self.repeats_extensions: bool = bool(extensions)

    def initialize(self, version: str) -> dict[str, Any]:
        """Return the params of `initialize`."""
        params = {"protocolVersion": version, "capabilities": self._in_session, "clientInfo": self.info}
        return {**params, "_meta": dict(self._meta)} if self._meta else params

    @property
    def _in_session(self) -> dict[str, Any]:
        """The capabilities in a session: the tasks of 2026-07-28 need no session and work in none."""
        return without_extension(self.capabilities)

    def stamp(
        self, params: dict[str, Any], *, version: str, is_sessionless: bool, progress_token: int | None
    ) -> dict[str, Any]:
        """Return params with the `_meta` members that their era requires. Other members of `_meta` stay."""
        meta: dict[str, Any] = dict(params.get("_meta") or {})
        if progress_token is not None:
            meta["progressToken"] = progress_token
        if is_sessionless:
            meta[VERSION_KEY] = version
            meta[CLIENT_KEY] = self.info
            meta[CAPABILITIES_KEY] = self.capabilities
            if self.level is not None:
                meta[LEVEL_KEY] = self.level
        elif self._repeated:
            meta.update(self._repeated)
        return {**params, "_meta": meta} if meta else params
