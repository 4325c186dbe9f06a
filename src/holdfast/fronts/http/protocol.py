"""uvicorn's HTTP protocol with what ASGI cannot express: deadlines, a bound on the head, and abort.

A request costs a few attribute writes; one sweep of the whole process looks for those that are
late. Imported only where uvicorn runs.
"""

import asyncio
from collections import deque
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

import httptools
from typing_extensions import override
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from holdfast.config import Limits
from holdfast.fronts.http.connection import EXTENSION
from holdfast.fronts.http.cycle import Application, Cycle, DefaultHeaders, Headers, bytes_taken, lines

_SLASH: Final = ord("/")
_PER_HEADER: Final = 4
"""Bytes around a header: colon, space, line end."""
_ASGI: Final = {"version": "3.0", "spec_version": "2.3"}
_SHORT: Final = 256
"""Longest target that is kept in the cache, in bytes."""


# What a connection waits for from its client. Plain numbers: they are compared several times a request.
IDLE: Final = 0
HEAD: Final = 1
BODY: Final = 2
END: Final = 3
"""It was refused, and has a moment to read the answer: a close with unread bytes would reset the connection."""

_LATE: Final = 2
"""Intervals after which a sweep is late."""
_WAITING: Final = 8
"""Waiting requests of a connection after which no more are read. The end of a connection that is not read is not noticed."""
_TRAILERS: Final[Any] = deque(maxlen=0)
"""Fields after a body are dropped. As headers they would reach the application without a check by any proxy."""
_UNKNOWN: Final = 1 << 62
"""The head began in the middle of a chunk: its bytes are counted exactly."""


class Watch:
    """The time, as of the last sweep, and the limits that apply: shared by all connections of a server.

    Time in which this process could not look (stopped, or its loop blocked) is not counted: what its
    clients sent meanwhile is still to be read, and they are not late.
    """

    __slots__ = ("_looked", "_was_late", "limits", "now", "stall")

    def __init__(self, limits: Limits, stall: float) -> None:
        self.limits: Limits = limits
        self.stall: float = stall
        """Seconds after which a client that takes none of the bytes that wait for it is dropped."""
        self.now: float = 0.0
        """Counted by sweeps, each for an interval at most."""
        self._looked: float | None = None
        self._was_late = False

    def tick(self, time: float) -> bool:
        """Move the time on. False: this sweep is much too late, so end no connection now.

        If two sweeps in a row are too late, the second one may end connections: otherwise a loop that is always late
        would never end any.
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


@lru_cache(maxsize=256)
def _parts(target: bytes) -> tuple[str, bytes, bytes]:
    """Return path, path as it was sent, and query of a request's target."""
    parsed = httptools.parse_url(target)
    path = parsed.path.decode("ascii")
    return unquote(path) if "%" in path else path, parsed.path, parsed.query or b""


class Flow(FlowControl):
    """Flow control that reads nothing while too many requests wait."""

    _held = False

    def hold(self) -> None:
        """Read nothing until released. The waiting requests are complete, except perhaps the last."""
        self._held = True
        self.pause_reading()

    def release(self) -> None:
        """Read on."""
        self._held = False
        self.resume_reading()

    @override
    def resume_reading(self) -> None:
        if not self._held:
            super().resume_reading()


class GuardedProtocol(HttpToolsProtocol):
    """One connection. The steps of each request are our own, the rest is uvicorn's."""

    watch: Watch
    serve: Application
    parser: httptools.HttpRequestParser
    headers: Headers
    cycle: Cycle | None  # type: ignore[assignment]
    pipeline: deque[tuple[Cycle, Application]]  # type: ignore[assignment]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.defaults: DefaultHeaders = DefaultHeaders()
        self._phase = HEAD
        self._since = 0.0
        self._fed = 0
        self._limit = self.watch.limits.headers
        self._taken: int | None = None
        self._taken_at = 0.0
        self._refusal: Refused | None = None
        self._served: Cycle | None = None
        """The request whose turn it is while others wait for theirs; `cycle` is the newest."""

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._since = self.watch.now
        super().connection_made(transport)
        self.flow: Flow = Flow(transport)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._served is not None:
            self._served.lost()

    @property
    def is_idle(self) -> bool:
        """True if no request is partly received or unanswered."""
        waits = self._phase == IDLE or (self._phase == HEAD and not self._fed)
        return waits and (self.cycle is None or self.cycle.response_complete)

    @override
    def data_received(self, data: bytes) -> None:
        phase = self._phase
        if phase == IDLE:
            self._phase = HEAD
            self._since = self.watch.now
            self._fed = len(data)
        elif phase == HEAD:
            self._fed += len(data)
        elif phase == END:
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        except httptools.HttpParserUpgrade as offer:
            self._decline(memoryview(data)[offer.args[0] :])
        if self._phase == HEAD and self._fed > self._limit:
            self.refuse(self._too_large())

    def _decline(self, rest: memoryview) -> None:
        """Go on in HTTP/1.1 with a client that offers another protocol: this server has no other.

        The parser takes what follows such a head for the other protocol's, also the request's own body. So the head
        is read again, without the offer.
        """
        while True:
            start = (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
            head = b"%b %b HTTP/%b\r\n" % start + lines(
                header for header in self.headers if header[0] != b"upgrade"
            )
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            try:
                self.parser.feed_data(head + b"\r\n")
                self.parser.feed_data(rest)
            except httptools.HttpParserError:
                self.send_400_response("Invalid HTTP request received.")
            except httptools.HttpParserUpgrade as offer:
                rest = rest[offer.args[0] :]
                continue
            return

    @override
    def on_message_begin(self) -> None:
        self.url = b""
        self.expect_100_continue = False
        self.headers = []

    @override
    def on_headers_complete(self) -> None:
        url, parser, before = self.url, self.parser, self.cycle
        if url[0] != _SLASH:
            self._stop(Refused(400, "Bad request: the target must be a path"))
        # Count exactly only if the received bytes could exceed the limit.
        if self._fed > self._limit and self._head_size() > self._limit:
            self._stop(self._too_large())
        if parser.should_upgrade():
            if parser.get_method() == b"CONNECT":
                self._stop(Refused(400, "Bad request: this is no proxy"))
            return
        self._phase = BODY
        self._since = self.watch.now
        version = parser.get_http_version()
        # First: a target that cannot be read is refused, which is not possible after the request has begun.
        path, raw_path, query = _parts(url) if len(url) < _SHORT else _parts.__wrapped__(url)
        cycle = self.cycle = Cycle(
            self,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            expects=self.expect_100_continue,
        )
        cycle.scope = {
            "type": "http",
            "asgi": _ASGI,  # type: ignore[typeddict-item]
            "http_version": version,
            "method": parser.get_method().decode("ascii"),
            "scheme": self.scheme or "http",
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "headers": self.headers,
            "client": self.client,
            "server": self.server,
            "state": self.app_state.copy(),
            "extensions": {EXTENSION: cycle},  # type: ignore[dict-item]
        }
        self.headers = _TRAILERS
        if before is None or before.response_complete:
            self._start_asgi_task(cycle, self.serve)
        else:
            # The client sends its next request before it has the answer: it waits its turn.
            if not self.pipeline:
                self._served = before
            self.pipeline.appendleft((cycle, self.serve))
            if len(self.pipeline) >= _WAITING:
                self.flow.hold()

    @override
    def _start_asgi_task(self, cycle: Cycle, app: Application) -> None:  # type: ignore[override]
        # It removes itself from the set: a done-callback would cost another turn of the loop.
        task = cycle.task = self.loop.create_task(cycle.run_asgi(app))
        self.tasks.add(task)

    @override
    def on_body(self, body: bytes) -> None:
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return
        cycle.came(body)
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()

    @override
    def on_message_complete(self) -> None:
        if self._phase != BODY:
            return
        self._phase = IDLE
        self._fed = _UNKNOWN
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.ended()

    @override
    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        # From here on the connection is idle. The sweep ends it in time; it needs no timer of its own.
        self._since = self.watch.now
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._served = cycle if self.pipeline else None
            self._start_asgi_task(cycle, app)
        if self.flow.read_paused and len(self.pipeline) < _WAITING:
            self.flow.release()

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + _PER_HEADER for name, value in self.headers)

    def _too_large(self) -> Refused:
        return Refused(431, f"Request header fields too large: at most {self._limit} bytes")

    # Refusing

    def _stop(self, refusal: Refused) -> None:
        """Stop the parser: its exception leads to `send_400_response`."""
        self._refusal = refusal
        raise refusal

    @override
    def send_400_response(self, msg: str) -> None:
        self.refuse(self._refusal or Refused(400, f"Bad request: {msg}"))

    def refuse(self, refusal: Refused) -> None:
        """Answer a request that never reached the application, and end. Never into another answer."""
        cycle, transport = self.cycle, self.transport
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
        elif self._is_slow(waited) or self._stalls():
            self.transport.abort()
        elif (self._phase == END and waited > self.watch.interval) or (
            self.is_idle and waited > self.timeout_keep_alive
        ):
            self.transport.close()

    def _is_slow(self, waited: float) -> bool:
        """True if a body is late. The front refuses late bodies that it reads; this one may wait for its turn."""
        return (
            self._phase == BODY
            and not self.pipeline
            and waited > self.watch.limits.body_seconds + self.watch.interval
        )

    def _stalls(self) -> bool:
        """True if bytes wait, and the client has taken none for too long. The front mostly ends streams before that."""
        if not self.transport.get_write_buffer_size():
            self._taken = None
            return False
        before, self._taken = self._taken, bytes_taken(self.transport)
        if before is None or self._taken > before:
            self._taken_at = self.watch.now
        return self.watch.now - self._taken_at > self.watch.stall + self.watch.interval
