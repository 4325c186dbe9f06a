"""The client of one request that has no session (2026-07-28): what it says of itself, for that request only."""

from typing import Any, Final

from holdfast.config import Limits
from holdfast.protocol.modern import RequestMeta
from holdfast.protocol.versions import MODERN
from holdfast.stores.base import SessionRecord


class Guest:
    """Stands where a session would: same questions, answered from the request's `_meta`."""

    __slots__ = ("limits", "record")

    name: Final = "guest"
    revision: Final = MODERN

    def __init__(self, meta: RequestMeta, principal: str, limits: Limits) -> None:
        self.limits = limits
        self.record = SessionRecord(
            key="",
            principal=principal,
            version=meta.version,
            standalone="",
            client=meta.client,
            capabilities=meta.capabilities,
            grace=0,
            idle=0,
            lifetime=0,
            level=meta.level,
            initialized=True,
        )

    def __repr__(self) -> str:
        return f"<Guest {self.record.client.get('name', 'unnamed')!r}>"

    @property
    def capabilities(self) -> dict[str, Any]:
        """What the client declared with this request."""
        return self.record.capabilities
