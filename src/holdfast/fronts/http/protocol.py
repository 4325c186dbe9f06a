"""uvicorn's HTTP protocol with what ASGI cannot express: deadlines, a bound on the head, and abort.

A request costs a few attribute writes; one sweep of the whole process looks for those that are
late. Imported only where uvicorn runs.
"""

import asyncio
from typing import Any, Final

from typing_extensions import override
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from holdfast.config import Limits
from holdfast.fronts.http.connection import EXTENSION
from holdfast.fronts.http.wire import DefaultHeaders, Wire

_SLASH: Final = ord("/")
_PER_HEADER: Final = 4
"""Bytes around a header: colon, space, line end."""


# What a connection waits for from its client. Plain numbers: they are compared several times a request.
IDLE: Final = 0
HEAD: Final = 1
BODY: Final = 2
END: Final = 3
"""It was refused and is given a moment to read why: closing at once, with bytes of its unread, would reset it."""

_LATE: Final = 2
"""Intervals after which a sweep is late."""
_UNKNOWN: Final = 1 << 62
"""Bytes of a head that began in the middle of a chunk: it is measured exactly."""


class Watch:
    """The time, as of the last sweep, and the limits that apply: shared by all connections of a server.

    Time in which this process could not look (stopped, or its loop blocked) is not counted: what its
    clients sent meanwhile is still to be read, and they are not late.
    """

    __slots__ = ("_looked", "_was_late", "limits", "now", "stall")

    def __init__(self, limits: Limits, stall: float) -> None:
        self.limits = limits
        self.stall = stall
        """Seconds after which a client that takes none of the bytes that wait for it is dropped."""
        self.now = 0.0
        """Counted by sweeps, each for an interval at most."""
        self._looked: float | None = None
        self._was_late = False

    def tick(self, time: float) -> bool:
        """Go on with the time; False where nobody is to be judged yet, since this look comes much too late.

        Of two such looks in a row the second counts, or a loop that is always late would never judge.
        """
        passed = 0.0 if self._looked is None else time - self._looked
        self._looked = time
        self.now += min(passed, self.interval)
        self._was_late = passed > _LATE * self.interval and not self._was_late
        return not self._was_late

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
        self._defaults = DefaultHeaders()
        self._phase = HEAD
        self._since = 0.0
        self._fed = 0
        self._limit = self.watch.limits.headers
        self._unsent = 0
        self._taken_at = 0.0
        self._refusal: Refused | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._since = self.watch.now
        super().connection_made(transport)

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing of a request has come that is not answered."""
        cycle: RequestResponseCycle | None = self.cycle
        waits = self._phase == IDLE or (self._phase == HEAD and not self._fed)
        return waits and (cycle is None or cycle.response_complete)

    # The base's methods are named outright: `super()` would cost a tenth of what they do.

    @override
    def data_received(self, data: bytes) -> None:
        if self._phase == END:
            return
        if self._phase == IDLE:
            self._phase = HEAD
            self._since = self.watch.now
            self._fed = 0
        if self._phase == HEAD:
            self._fed += len(data)
        HttpToolsProtocol.data_received(self, data)
        if self._phase == HEAD and self._fed > self._limit:
            self.refuse(self._too_large())

    @override
    def on_headers_complete(self) -> None:
        if self.url[0] != _SLASH:
            self._stop(Refused(400, "Bad request: the target must be a path"))
        # The exact size matters only where the bytes that came could hold too much.
        if self._fed > self._limit and self._head_size() > self._limit:
            self._stop(self._too_large())
        self._phase = BODY
        self._since = self.watch.now
        before = self.cycle
        HttpToolsProtocol.on_headers_complete(self)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and cycle is not before:
            # Its task has not run yet: it was made in this very step.
            extensions: dict[str, Any] = {EXTENSION: Wire(self.transport, cycle, self._defaults)}
            self.scope["extensions"] = extensions

    @override
    def on_message_complete(self) -> None:
        self._phase = IDLE
        self._fed = _UNKNOWN
        HttpToolsProtocol.on_message_complete(self)

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + _PER_HEADER for name, value in self.headers)

    def _too_large(self) -> Refused:
        return Refused(431, f"Request header fields too large: at most {self._limit} bytes")

    # Refusing

    def _stop(self, refusal: Refused) -> None:
        """Stop the parser; what it makes of the exception ends in `send_400_response`."""
        self._refusal = refusal
        raise refusal

    @override
    def send_400_response(self, msg: str) -> None:
        self.refuse(self._refusal or Refused(400, f"Bad request: {msg}"))

    def refuse(self, refusal: Refused) -> None:
        """Answer a request that never reached the application, and end. Never into another answer."""
        cycle: RequestResponseCycle | None = self.cycle
        transport = self.transport
        if transport.is_closing():
            return
        if (cycle is not None and not cycle.response_complete) or not transport.can_write_eof():
            transport.close()
            return
        reason = refusal.reason.encode()
        head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        transport.write(STATUS_LINE[refusal.status] + head % len(reason) + reason)
        transport.write_eof()
        self._phase = END
        self._since = self.watch.now

    def sweep(self) -> None:
        """End the connection if its client is late with its request, or takes nothing of its answer."""
        limits = self.watch.limits
        waited = self.watch.now - self._since
        if self._phase == HEAD and waited > limits.header_seconds:
            self.refuse(
                Refused(408, f"Request timeout: the head took longer than {limits.header_seconds:g} s")
            )
        # The front answers a slow body itself, if it reads it at all; this is for those it does not read.
        elif (self._phase == BODY and waited > limits.body_seconds + self.watch.interval) or self._stalls():
            self.transport.abort()
        elif self._phase == END and waited > self.watch.interval:
            self.transport.close()

    def _stalls(self) -> bool:
        """Tell whether bytes wait and none has left for too long. Streams are ended by the front before that."""
        unsent = self.transport.get_write_buffer_size()
        if unsent < self._unsent or not self._unsent:
            self._taken_at = self.watch.now
        self._unsent = unsent
        return unsent > 0 and self.watch.now - self._taken_at > self.watch.stall + self.watch.interval
