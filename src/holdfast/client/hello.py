"""How a client introduces itself: once, in `initialize`, or with every request (2026-07-28)."""

from typing import Any

from holdfast.protocol.params import LoggingLevel
from holdfast.protocol.sessionless import CAPABILITIES_KEY, CLIENT_KEY, LEVEL_KEY, VERSION_KEY


class Hello:
    """Who the client is and what it can do."""

    __slots__ = ("capabilities", "client", "level")

    def __init__(self, client: dict[str, Any], capabilities: dict[str, Any]) -> None:
        self.client: dict[str, Any] = client
        self.capabilities: dict[str, Any] = capabilities
        self.level: LoggingLevel | None = None
        """The least important log messages wanted; None: whatever the server sends by itself."""

    def initialize(self, version: str) -> dict[str, Any]:
        """Return the params of `initialize`. Extensions are a word of 2026-07-28."""
        capabilities = {name: value for name, value in self.capabilities.items() if name != "extensions"}
        return {"protocolVersion": version, "capabilities": capabilities, "clientInfo": self.client}

    def stamp(
        self, params: dict[str, Any], *, version: str, is_modern: bool, progress_token: int | None
    ) -> dict[str, Any]:
        """Return params with what their era wants said in `_meta`; the caller's own words there stay."""
        meta: dict[str, Any] = dict(params.get("_meta") or {})
        if progress_token is not None:
            meta["progressToken"] = progress_token
        if is_modern:
            meta[VERSION_KEY] = version
            meta[CLIENT_KEY] = self.client
            meta[CAPABILITIES_KEY] = self.capabilities
            if self.level is not None:
                meta[LEVEL_KEY] = self.level
        return {**params, "_meta": meta} if meta else params
