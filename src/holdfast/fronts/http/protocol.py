"""uvicorn's HTTP protocol with what ASGI cannot express: deadlines, a bound on the head, and abort.

A request costs a few attribute writes; one sweep of the whole process looks for those that are
late. Imported only where uvicorn runs.
"""

import asyncio
from enum import Enum
from typing import Any, Final

from typing_extensions import override
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from holdfast.config import Limits
from holdfast.fronts.http.connection import EXTENSION

_SLASH: Final = ord("/")
_PER_HEADER: Final = 4
"""Bytes around a header: colon, space, line end."""


class Phase(Enum):
    """What a connection is waiting for from its client."""

    HEAD = "head"
    BODY = "body"
    NOTHING = "nothing"


class Watch:
    """The time, as of the last sweep, and the limits that apply: shared by all connections of a server."""

    __slots__ = ("limits", "now", "stall")

    def __init__(self, limits: Limits, stall: float) -> None:
        self.limits = limits
        self.stall = stall
        """Seconds after which a client that takes none of the bytes that wait for it is dropped."""
        self.now = 0.0

    @property
    def interval(self) -> float:
        """How often to look: every second, or often enough for a short limit."""
        return min(1.0, self.limits.header_seconds / 4, self.limits.body_seconds / 4, self.stall / 4)


class Refused(Exception):
    """Raised inside the parser to stop it: the request is answered with this status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class GuardedProtocol(HttpToolsProtocol):
    """One connection."""

    watch: Watch

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._extensions: dict[str, Any] = {}
        self._phase = Phase.HEAD
        self._since = 0.0
        self._chunk = 0
        self._fed = 0
        self._unsent = 0
        self._taken_at = 0.0
        self._refusal: Refused | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._extensions[EXTENSION] = transport
        self._since = self.watch.now
        super().connection_made(transport)

    @override
    def data_received(self, data: bytes) -> None:
        self._chunk = len(data)
        if self._phase is Phase.HEAD:
            self._fed += self._chunk
        super().data_received(data)
        if self._phase is Phase.HEAD and self._fed > self.watch.limits.headers:
            self.refuse(self._too_large())

    @override
    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = self._extensions
        self._phase = Phase.HEAD
        self._since = self.watch.now
        self._fed = 0

    @override
    def on_headers_complete(self) -> None:
        if self.url[0] != _SLASH:
            self._stop(Refused(400, "Bad request: the target must be a path"))
        # The exact size matters only where the bytes that came could hold too much.
        limit = self.watch.limits.headers
        if self._fed + self._chunk > limit and self._head_size() > limit:
            self._stop(self._too_large())
        self._phase = Phase.BODY
        self._since = self.watch.now
        super().on_headers_complete()

    @override
    def on_message_complete(self) -> None:
        self._phase = Phase.NOTHING
        super().on_message_complete()

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + _PER_HEADER for name, value in self.headers)

    def _too_large(self) -> Refused:
        return Refused(431, f"Request header fields too large: at most {self.watch.limits.headers} bytes")

    # Refusing

    def _stop(self, refusal: Refused) -> None:
        """Stop the parser; what it makes of the exception ends in `send_400_response`."""
        self._refusal = refusal
        raise refusal

    @override
    def send_400_response(self, msg: str) -> None:
        self.refuse(self._refusal or Refused(400, f"Bad request: {msg}"))

    def refuse(self, refusal: Refused) -> None:
        """Answer a request that never reached the application, and close. Never into another answer."""
        self._phase = Phase.NOTHING
        if self.transport.is_closing():
            return
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            reason = refusal.reason.encode()
            head = (
                b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(STATUS_LINE[refusal.status] + head % len(reason) + reason)
        self.transport.close()

    def sweep(self) -> None:
        """End the connection if its client is late with its request, or takes nothing of its answer."""
        limits = self.watch.limits
        waited = self.watch.now - self._since
        if self._phase is Phase.HEAD and waited > limits.header_seconds:
            self.refuse(
                Refused(408, f"Request timeout: the head took longer than {limits.header_seconds:g} s")
            )
        # The front answers a slow body itself, if it reads it at all; this is for those it does not read.
        elif (
            self._phase is Phase.BODY and waited > limits.body_seconds + self.watch.interval
        ) or self._stalls():
            self.transport.abort()

    def _stalls(self) -> bool:
        """Tell whether bytes wait and none has left for too long. Streams are ended by the front before that."""
        unsent = self.transport.get_write_buffer_size()
        if unsent < self._unsent or not self._unsent:
            self._taken_at = self.watch.now
        self._unsent = unsent
        return unsent > 0 and self.watch.now - self._taken_at > self.watch.stall + self.watch.interval
