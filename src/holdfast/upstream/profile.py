"""The description of a client for the server: once, in `initialize`, or in `_meta` of every request (2026-07-28)."""

from typing import Any

from holdfast.protocol.params import LoggingLevel
from holdfast.protocol.sessionless import CAPABILITIES_KEY, CLIENT_KEY, LEVEL_KEY, VERSION_KEY


class ClientProfile:
    """A client's name, capabilities and log level."""

    __slots__ = ("capabilities", "info", "level")

    def __init__(self, info: dict[str, Any], capabilities: dict[str, Any]) -> None:
        self.info: dict[str, Any] = info
        """Name and version, as `clientInfo`."""
        self.capabilities: dict[str, Any] = capabilities
        self.level: LoggingLevel | None = None
        """The lowest level of log messages that the server shall send; None: the server chooses."""

    def initialize(self, version: str) -> dict[str, Any]:
        """Return the params of `initialize`. Only 2026-07-28 knows extensions, so they are left out."""
        capabilities = {name: value for name, value in self.capabilities.items() if name != "extensions"}
        return {"protocolVersion": version, "capabilities": capabilities, "clientInfo": self.info}

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
        return {**params, "_meta": meta} if meta else params
