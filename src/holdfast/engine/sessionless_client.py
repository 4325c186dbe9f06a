"""The client of one request that has no session (2026-07-28): what it says of itself, for that request only."""

from typing import Any, ClassVar

from msgspec import Struct

from holdfast.config import Limits
from holdfast.protocol.sessionless import RequestMeta
from holdfast.protocol.versions import SESSIONLESS, Revision
from holdfast.stores.base import SessionRecord


class SessionlessClient(Struct, eq=False):
    """Stands where a session would: same questions, answered from the request's `_meta`."""

    name: ClassVar[str] = "sessionless"
    revision: ClassVar[Revision] = SESSIONLESS

    _meta: RequestMeta
    _principal: str
    limits: Limits
    _record: SessionRecord | None = None

    def __repr__(self) -> str:
        return f"<SessionlessClient {self._meta.client.get('name', 'unnamed')!r}>"

    @property
    def record(self) -> SessionRecord:
        """What a session's record would say. Made when somebody looks: a plain call needs none of it."""
        if self._record is None:
            self._record = SessionRecord(
                key="",
                principal=self._principal,
                version=self._meta.version,
                standalone="",
                client=self._meta.client,
                capabilities=self._meta.capabilities,
                grace=0,
                idle=0,
                lifetime=0,
                level=self._meta.level,
                initialized=True,
            )
        return self._record

    @property
    def capabilities(self) -> dict[str, Any]:
        """What the client declared with this request."""
        return self._meta.capabilities
