"""One connection: its requests are served one after another, in the order in which they came.

Nothing of a request runs while its bytes are parsed: after each read the next request is served. So a request whose
framing is wrong is refused before anything of it runs, if its error is in the bytes that were read.

A request whose head is like one of the last heads of its connection is not parsed again (`known_heads.py`).

The requests that wait for their turn are bounded. A long read goes to the parser in slices; when enough requests wait,
the rest of the read waits too.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from math import inf
from typing import Any, Final, cast

from typing_extensions import override

from limpet.fronts.http.decide.started_call import StartedCall
from limpet.fronts.http.http1.acknowledged import is_acknowledged
from limpet.fronts.http.http1.answers import AUDITED, FAILED, FULL, NO_MEMORY, refusal_bytes
from limpet.fronts.http.http1.channel import HIGH_WATER, SocketChannel, bytes_taken
from limpet.fronts.http.http1.connection_charge import ConnectionCharge
from limpet.fronts.http.http1.deadlines import KEEP_ALIVE, Deadlines
from limpet.fronts.http.http1.framing import Parsed, RefusedRequest
from limpet.fronts.http.http1.half_closed import HalfClosed
from limpet.fronts.http.http1.known_heads import SHAPES, KnownHead, known_head
from limpet.fronts.http.http1.members import Members
from limpet.fronts.http.http1.parser import BODY, HEAD, IDLE, RequestParser
from limpet.fronts.http.read.body import AWAKE
from limpet.fronts.http.read.request import RawRequest

_WAITING: Final = 8
"""When so many requests of a connection wait, no more are read. Then the end of the connection is not noticed."""
_SLICE: Final = 4_096
"""Bytes that the parser gets in one call: they hold few requests."""
_BODY_SLICE: Final = 65_536
"""The same within a body."""
_READ_SECONDS: Final = 5.0
"""A client that has taken no byte for so long does not read its answer: a stop does not wait for it."""


class HttpConnection(asyncio.Protocol):
    """A connection."""

    __slots__ = (
        "__weakref__", "_after", "_deadlines", "_held", "_is_over", "_is_paused", "_known", "_late", "_lingers", "_newest", "_pace",
        "_parser", "_room", "_served", "_started", "_taken", "_unread", "_waiting", "address", "client",
        "half_closed", "is_full", "members", "peer", "scheme", "since", "taken_at", "transport",
    )  # fmt: skip

    def __init__(self, members: Members) -> None:
        self.members: Members = members
        self._deadlines: Deadlines = members.deadlines
        self.transport: asyncio.Transport
        self._parser = RequestParser(self, members.deadlines.limits.headers)
        self._is_over = False
        """Nothing more is read: a request was refused, or the client has closed its side."""
        self._lingers = False
        """Our side is closed, and the client has a moment to read the last answer."""
        self._newest: SocketChannel | None = None
        """The request whose body arrives."""
        self._served: SocketChannel | None = None
        self._started: StartedCall | None = None
        """The call of this request, until it is checked."""
        self._late: StartedCall | None = None
        """The call of this request, while it has no task and is not answered."""
        self._waiting: list[SocketChannel] = []
        self._unread = b""
        """The rest of a read, behind requests that wait."""
        self._is_paused = False
        """Nothing is read: too many requests wait, or too many bytes of a body."""
        self._known: tuple[KnownHead, ...] = ()
        """The last heads, the newest first."""
        self._after: RefusedRequest | None = None
        """The refusal that follows the answers of earlier requests."""
        self.half_closed: HalfClosed | None = None
        """Set when the client has closed its side."""
        # Writing
        self.is_full: bool = False
        """The client has not taken enough of the written bytes."""
        self._room: asyncio.Event | None = None
        self._taken: int | None = None
        self.taken_at: float = 0.0
        """When the client took bytes, or bytes began to wait for it."""
        self._pace = inf
        """How many bytes the client takes between two sweeps; infinite until it was measured."""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transports of uvloop have this interface, and are no subclasses.
        self.transport = cast("asyncio.Transport", transport)
        self.since: float = self._deadlines.now
        peer, address = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        is_unix = isinstance(address, str | bytes)
        self.peer: tuple[str, int] | None = peer[:2] if isinstance(peer, tuple) else None
        self.address: tuple[str, int | None] | None = (
            (str(address), None) if is_unix else address[:2] if address else None
        )
        self.client: str | None = self.peer[0] if self.peer else None
        self.scheme: str = "https" if transport.get_extra_info("sslcontext") else "http"
        self._held = ConnectionCharge(self.members.account(self.client), tls=self.scheme == "https")
        if not self.members.admit(self, has_room=self._held.begin()):
            self.refuse(FULL)
            if self.members.has_many_refused:
                # It does not wait until the client has read its answer: a flood must not hold descriptors.
                self.transport.abort()
        elif self.client is None and not is_unix:
            # The client has reset the connection before it was accepted. A request that it has sent must not be served
            # as one of this machine.
            self._is_over = True
            self.transport.abort()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.members.leave(self)
        if self._started is not None:
            self._started.left()
        lost = [self._served, *self._waiting]
        # These break the reference cycles: a closed connection must not wait for the garbage collector.
        self._parser.close()
        self._is_over = True
        self._held.end()
        self._newest = self._served = None
        self._waiting, self._known, self._unread = [], (), b""
        for channel in lost:
            if channel is not None:
                channel.lost()
        self._await_late(lost[0])
        self.resume_writing()

    @override
    def eof_received(self) -> bool:
        """Serve a client that has closed its side only, unless it has disconnected, or its request is incomplete."""
        if self._parser.phase != IDLE or self._served is None or not self.transport.can_write_eof():
            return False
        self._is_over = True
        self.half_closed = HalfClosed(self.transport, self._served.harmless)
        return not self.half_closed.is_gone()

    @property
    def is_idle(self) -> bool:
        """True if no request is partly received or unanswered."""
        return self._parser.is_fresh and self._served is None

    @property
    def is_spare(self) -> bool:
        """True if nothing is lost with it: it waits for a request, or has a stream that its client can resume.

        A server with few connections also closes one whose client sends requests without reading the answers.
        """
        served = self._served
        if self._waiting or self.transport.get_write_buffer_size():
            return self._deadlines.is_hurried
        return self._deadlines.is_long_ago(self.since) and (
            served is None or not served.has_all or served.is_resumable
        )

    # Reading

    @override
    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        if len(data) > self._held.longest:
            self._held.read(len(data))
        if self._served is None and self._parser.phase == IDLE:
            for known in self._known:
                if start := known.match(data):
                    # The request is complete, and its head need not be parsed.
                    channel = self._newest = self._served = SocketChannel(
                        self, known.parsed, known.request, self.transport,
                        _body=data[start:], has_all=True, is_bodiless=known.parsed.is_bodiless,
                    )  # fmt: skip
                    self._begin(channel)
                    return
        if self._unread:
            self._unread += data
        else:
            self._feed(data)
        self._recount()

    def _recount(self) -> None:
        """Charge the memory of the connection; close it if there is no room for what its client has sent."""
        if self._is_over:
            return
        received = len(self._unread) + self._parser.held + sum(known.cost for known in self._known)
        if self._served is not None:
            received += self._served.held + sum(channel.held for channel in self._waiting)
        if not self._held.count(received, self.unsent):
            self.refuse(NO_MEMORY)

    def _feed(self, data: bytes) -> None:
        """Parse, and serve the first request. Bytes behind many waiting requests wait too."""
        try:
            self._parse(data)
        except RefusedRequest as refusal:
            self.refuse(refusal)
        if self._is_crowded():
            self._pause()
        if self._served is None and (self._waiting or self._after is not None):
            self._next()

    def _is_crowded(self) -> bool:
        """True if too many requests wait, or too many bytes of them."""
        waiting = self._waiting
        return bool(waiting) and (
            len(waiting) >= _WAITING or sum(channel.held for channel in waiting) > HIGH_WATER
        )

    def _parse(self, data: bytes) -> None:
        parser = self._parser
        if len(data) <= _SLICE:
            is_fresh = parser.is_fresh
            parser.feed(data)
            newest = self._newest
            if is_fresh and parser.phase == IDLE and parser.began == 1 and newest:
                self._remember(data, newest)
            return
        rest = memoryview(data)
        while rest:
            if self._is_crowded():
                self._unread = bytes(rest)
                return
            size = _BODY_SLICE if parser.phase == BODY else _SLICE
            parser.feed(rest[:size])
            rest = rest[size:]

    def _remember(self, data: bytes, channel: SocketChannel) -> None:
        """Remember the head of a request that was exactly one read."""
        limit = self._deadlines.limits.headers
        known = known_head(data, self._parser.length, channel.request, channel.parsed, limit)
        if known is not None:
            self._known = (known, *self._known[: SHAPES - 1])

    # Called by the parser

    def head_began(self) -> None:
        """Begin to wait for a head."""
        self.since = self._deadlines.now

    def request_came(self, request: RawRequest, parsed: Parsed, *, expects: bool) -> None:
        """Let a request wait for its turn, and begin to wait for its body."""
        self.since = self._deadlines.now
        channel = self._newest = SocketChannel(
            self, parsed, request, self.transport,
            is_last=parsed.is_last, expects=expects, is_bodiless=parsed.is_bodiless,
        )  # fmt: skip
        self._waiting.append(channel)

    def part_came(self, part: bytes) -> None:
        """Take a part of the body. If the request was answered already, drop it."""
        channel = self._newest
        if channel is not None and not channel.is_complete:
            channel.came(part)
            if channel.has_much:
                self._pause()

    def request_ended(self) -> None:
        """Take the end of a body."""
        if self._newest is not None:
            self._newest.ended()

    def read_on(self) -> None:
        """Read, unless too many requests wait, or too many bytes of a body."""
        if not self._is_paused or self._unread or self._is_crowded():
            return
        if self._newest is None or not self._newest.has_much:
            self._is_paused = False
            if not self.transport.is_closing():
                self.members.context().run(self.transport.resume_reading)

    def _pause(self) -> None:
        if not self._is_paused and not self.transport.is_closing():
            self._is_paused = True
            self.transport.pause_reading()

    # Serving

    def _next(self, *, soon: bool = False) -> None:
        """Serve the next request, and continue to read; or end the connection if it was the last one.

        `soon`: other connections have their turn first.
        """
        if self._waiting:
            channel = self._served = self._waiting.pop(0)
            if soon:
                self.members.loop.call_soon(self._begin, channel, context=self.members.context())
            else:
                self._begin(channel)
        if self._unread and not self._is_crowded():
            rest, self._unread = self._unread, b""
            self._feed(rest)
        self.read_on()
        if self._served is None and self._is_over:
            if self._after is not None:
                self._write_refusal(self._after)
            else:
                self._close()

    def _begin(self, channel: SocketChannel) -> None:
        """Serve a request: a plain call is checked after one pass of the loop, and gets a task if it takes longer."""
        serve = self.members.serve
        try:
            unfinished = serve(channel.request, channel)
        except Exception as error:  # noqa: BLE001 - one way to fail for all requests
            self._fail(channel, error)
        else:
            if isinstance(unfinished, StartedCall):
                self._started = unfinished
                self.members.loop.call_soon(self._look, channel, unfinished)
            elif unfinished is not None:
                self._run(channel, unfinished)
            else:
                self._check_answered(channel)

    def _look(self, channel: SocketChannel, call: StartedCall) -> None:
        # From here on the channel reports the end of the connection. This also breaks the reference cycle.
        self._started = None
        try:
            if call.answer_nowait():
                return
            if call.look_later(partial(self._look_again, channel, call)):
                self._late = call
            else:
                self._run(channel, call.response.conclude(call.wait()))
        except Exception as error:  # noqa: BLE001 - as in `_begin`
            self._fail(channel, error)

    def _look_again(self, channel: SocketChannel, call: StartedCall, woken: bool) -> None:  # noqa: FBT001
        if self._late is not call:
            return
        try:
            if call.answer_later(woken=woken):
                self._late = None
        except Exception as error:  # noqa: BLE001 - as in `_begin`
            self._fail(channel, error)
        self._await_late(channel)

    def _await_late(self, channel: SocketChannel | None) -> None:
        """Let a task await the late call, if there is one: a stop waits for tasks, and a lost call still has an end."""
        call, self._late = self._late, None
        if channel is not None and call is not None:
            self._run(channel, call.response.conclude(call.wait()))

    def _run(self, channel: SocketChannel, work: Coroutine[Any, Any, object]) -> None:
        members = self.members
        # It removes itself from the set: a done-callback would cost another pass of the loop.
        task = members.loop.create_task(self._serve(channel, work))
        # An eager task (Python 3.12) may have ended.
        if not task.done():
            channel.task = task
            members.tasks.add(task)

    async def _serve(self, channel: SocketChannel, work: Coroutine[Any, Any, object]) -> None:
        """Serve a request that takes time. Afterwards it is answered, or its connection is closed."""
        try:
            await work
            self._check_answered(channel)
        except Exception as error:  # noqa: BLE001 - as in `_begin`
            self._fail(channel, error)
        finally:
            if not channel.is_complete:
                self._close()
            if channel.task is not None:
                self.members.tasks.discard(channel.task)
                channel.task = None

    def _check_answered(self, channel: SocketChannel) -> None:
        if not (channel.is_complete or channel.is_lost or self.transport.is_closing()):
            self._fail(channel, RuntimeError("the application ended without an answer"))

    def _fail(self, channel: SocketChannel, error: Exception) -> None:
        """Answer a request that was not answered, or close its connection."""
        self.members.observer.note("request.failed", error=error)
        if not channel.answer(*FAILED):
            self._close()

    def completed(self, channel: SocketChannel) -> None:
        """Record that a response is complete."""
        if channel is not self._served:
            return
        self._served = None
        # From here on the connection is idle. The sweep ends it in time; it needs no timer.
        self.since = self._deadlines.now
        if not channel.is_last:
            if self._waiting or self._unread or self._is_paused or self._is_over:
                self._next(soon=True)
        elif channel.has_all:
            self.transport.close()
        else:
            self._linger()

    def make_last(self) -> None:
        """End the connection after the answers that its client waits for."""
        self._await_late(self._served)
        if self._served is None:
            self.transport.close()
        else:
            (self._waiting[-1] if self._waiting else self._served).is_last = True

    def abort(self) -> None:
        """Close the connection at once."""
        self.transport.abort()

    # Refusing

    def refuse(self, refusal: RefusedRequest) -> None:
        """Refuse a request, after the answers of earlier ones, and end. Never write it into another answer."""
        if self._is_over or self.transport.is_closing():
            return
        self._is_over = True
        self.members.refused(AUDITED.get(refusal.status, "malformed"), self.client)
        broken = self._newest
        if broken is not None and not (broken.has_all or broken.is_complete):
            if self._waiting and self._waiting[-1] is broken:
                self._waiting.pop()
            if self._served is broken:
                self._served = None
            is_begun = broken.is_begun
            broken.lost()
            if is_begun:
                self.transport.close()
                return
        if self._served is None and not self._waiting:
            self._write_refusal(refusal)
        else:
            self._after = refusal

    def _write_refusal(self, refusal: RefusedRequest) -> None:
        self._after = None
        self.transport.write(refusal_bytes(refusal, self.members.common))
        self._linger()

    def _linger(self) -> None:
        """Close our side. The client has a moment to read: a close with unread bytes would reset the connection."""
        self._is_over = self._lingers = True
        self.since = self._deadlines.now
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def _close(self) -> None:
        """Close the connection, unless it lingers: then the sweep closes it."""
        if not self._lingers:
            self.transport.close()

    # Writing

    @override
    def pause_writing(self) -> None:
        self.is_full = True
        self._recount()

    @override
    def resume_writing(self) -> None:
        self.is_full = False
        self._recount()
        if self._room is not None:
            self._room.set()
            self._room = None

    async def room(self) -> None:
        """Wait until the client has taken most of the written bytes."""
        if self._room is None:
            self._room = asyncio.Event()
        await self._room.wait()

    # Deadlines

    def sweep(self) -> None:
        """End the connection if its client is late with its request, or takes no bytes of its answer."""
        self._recount()
        deadlines = self._deadlines
        limits = deadlines.limits
        waited = deadlines.now - self.since
        if self._expects(HEAD) and waited > limits.header_seconds:
            self.refuse(
                RefusedRequest(408, f"Request timeout: the head took longer than {limits.header_seconds:g} s")
            )
        elif self._is_slow(waited) or self._stalls() or (self.half_closed and self.half_closed.is_gone()):
            self.transport.abort()
        elif self._served is None and (
            (self._is_over and waited > deadlines.interval) or (self.is_idle and waited > KEEP_ALIVE)
        ):
            self.transport.close()

    def _expects(self, phase: int) -> bool:
        """True if the client must still send this part of a request."""
        return self._parser.phase == phase and not (self._is_over or self._unread)

    def _is_slow(self, waited: float) -> bool:
        """True if a body is late. The front refuses late bodies that it reads, and needs `AWAKE` more after a pause."""
        deadlines = self._deadlines
        late = waited > deadlines.limits.body_seconds + AWAKE + deadlines.interval
        return late and self._expects(BODY) and not self._waiting

    def _stalls(self) -> bool:
        """True if bytes wait, and the client has taken none for too long. The front mostly ends streams before that."""
        if not self._has_unsent():
            self._taken, self._pace = None, inf
            return False
        deadlines = self._deadlines
        before, self._taken = self._taken, bytes_taken(self.transport)
        if before is None or self._taken > before:
            self.taken_at = deadlines.now
        if before is not None:
            taken = max(0, self._taken - before)
            self._pace = taken if self._pace == inf else (self._pace + taken) / 2
        return deadlines.now - self.taken_at > deadlines.stall + deadlines.interval

    @property
    def unsent(self) -> int:
        """The bytes that wait for the client."""
        owed = 0 if self._served is None else self._served.owed
        return self.transport.get_write_buffer_size() + owed

    @property
    def seconds_left(self) -> float:
        """How long the client needs for the bytes that wait, at the pace of its last seconds.

        0 if they have just begun to wait.
        """
        return inf if self._pace == 0 else self.unsent / self._pace * self._deadlines.interval

    def _has_unsent(self) -> bool:
        """True if bytes wait for the client. A close of TLS also waits for the last message of the client."""
        return self._has_bytes() or (self.scheme != "http" and self.transport.is_closing())

    def _has_bytes(self) -> bool:
        """True if bytes of answers wait. With TLS the transport does not count bytes that it has encrypted."""
        transport = self.transport
        if transport.get_write_buffer_size() or self.scheme == "http":
            return transport.get_write_buffer_size() > 0
        return is_acknowledged(transport.get_extra_info("socket")) is False

    # Stopping

    @property
    def is_owed(self) -> bool:
        """True if a request that has arrived is not answered, or not all of its answer was sent."""
        return (self._served is not None and self._served.has_all) or self._has_bytes()

    def is_read(self) -> bool:
        """True if an answer is on its way and its client takes the bytes."""
        if self._has_bytes() and self._taken is not None:
            return self._deadlines.now - self.taken_at <= _READ_SECONDS
        return self.is_owed
