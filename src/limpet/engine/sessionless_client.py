"""The client of one sessionless request (2026-07-28), as the request describes it."""

from typing import Any, ClassVar

from msgspec import Struct

from limpet.config import Limits
from limpet.protocol.quirks import shown_name
from limpet.protocol.sessionless import RequestMeta
from limpet.protocol.versions import SESSIONLESS, Revision
from limpet.stores.base import SessionRecord


class SessionlessClient(Struct, eq=False):
    """Has the attributes of a session that a handler reads. Their values come from the request's `_meta`."""

    name: ClassVar[str] = "sessionless"
    revision: ClassVar[Revision] = SESSIONLESS

    _meta: RequestMeta
    _principal: str
    limits: Limits
    _record: SessionRecord | None = None

    def __repr__(self) -> str:
        return f"<SessionlessClient {self._meta.client.get('name', 'unnamed')!r}>"

    @property
    def client_name(self) -> str:
        """The name that the client gave itself, cut for a log line."""
        return shown_name(self._meta.client)

    @property
    def record(self) -> SessionRecord:
        """The record that a session would have. Made on first use: a plain call does not need it."""
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
        """The capabilities that the client declared with this request."""
        return self._meta.capabilities
