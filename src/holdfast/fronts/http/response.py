"""The response to one request: a JSON body, or a stream of events. Both eras decide it here.

A response begins undecided. The endpoint's mode and the first event decide its form:

    mode        the terminal message alone    another message     silence for `stream_after`
    ────────    ──────────────────────────    ────────────────    ──────────────────────────
    adaptive    one JSON body                 stream              stream
    sse         one event, in one write       stream              stream
    json        one JSON body                 not sent            keep waiting

A stream begins with the opening of its kind: events that can be resumed begin with an event id, others with their first
message. While it is silent it gets a comment each `keep_alive` seconds: proxies close connections that carry nothing.
A terminal message that is in a log is never alone: its client must get the event id, so it is written as a stream.

A call that has ended after one turn of the event loop has its answer before a `HttpSink` exists: `PostedCall` and
`SessionlessCall` write it in one step, in the same form.
"""

from collections.abc import Awaitable, Callable

from holdfast.config import ResponseMode, Times
from holdfast.engine.delivery import Batch
from holdfast.engine.session import event_id
from holdfast.fronts.http.answer import Answer, ready_answer
from holdfast.fronts.http.connection import Connection
from holdfast.fronts.http.request import Gone
from holdfast.wire import sse

Opening = Callable[[], Awaitable[bytes]]
"""Returns the first bytes of a stream that can be resumed; no bytes: it cannot begin yet."""
Whole = Callable[[Batch], Answer]
"""Returns the answer for a terminal message that is sent alone."""


class ResponseForm:
    """The form of responses of an endpoint."""

    __slots__ = ("is_json", "keep_alive", "mode", "stall", "stream_after")

    def __init__(self, mode: ResponseMode, times: Times) -> None:
        self.mode: ResponseMode = mode
        self.is_json: bool = mode == "json"
        """A response can only be one JSON body."""
        self.stream_after: float | None = None if self.is_json else times.stream_after
        """Seconds of silence after which a response becomes a stream."""
        self.keep_alive: float | None = None if self.is_json else times.keep_alive
        """Seconds of silence after which a stream gets a comment."""
        self.stall: float = times.write_stall


class HttpSink:
    """A sink (`engine/delivery.py`) that writes to one connection. Raises `Gone` when the connection takes no bytes."""

    __slots__ = (
        "_connection",
        "_form",
        "_is_complete",
        "_opening",
        "_resumable",
        "_stall",
        "_whole",
        "patience",
        "streaming",
    )

    def __init__(
        self,
        connection: Connection,
        form: ResponseForm,
        *,
        whole: Whole | None = None,
        opening: Opening | None = None,
        resumable: bool = False,
    ) -> None:
        """`resumable`: its events have ids, from which a client can resume."""
        self._connection = connection
        self._form = form
        self._whole = whole
        self._opening = opening
        self._resumable = resumable
        self._stall = form.stall
        self.streaming: bool = False
        """It has become a stream."""
        self.patience: float | None = form.stream_after
        """Seconds of silence after which it becomes a stream, or gets a comment."""
        self._is_complete = False

    async def write(self, batch: Batch) -> None:
        """Answer as a whole, or write events. Returns for the terminal message when the client has taken it.

        Raises:
            Gone: the client has not taken it, or takes no bytes.
        """
        if self.streaming:
            await self._connection.write(self._events(batch), self._stall)
        elif batch.finished and (
            self._form.is_json
            or (len(batch.messages) == batch.ends and not (self._resumable and batch.positions))
        ):
            whole = self._whole
            answer = ready_answer(batch.messages[-1], self._form.mode) if whole is None else whole(batch)
            if not await self._connection.answer(answer):
                raise Gone
        elif not self._form.is_json:
            await self._begin(self._events(batch))
        if batch.finished:
            await self.end()

    async def silence(self) -> None:
        """Become a stream, or write a comment."""
        if self.streaming:
            await self._connection.write(sse.KEEP_ALIVE, self._stall)
        elif not self._form.is_json:
            await self._begin(b"" if self._opening is not None else sse.KEEP_ALIVE)

    async def begin(self) -> None:
        """Become a stream before the first message."""
        await self._begin(b"")

    async def end(self) -> None:
        """Complete the stream, if it is one."""
        if self.streaming and not self._is_complete:
            self._is_complete = True
            await self._connection.end_stream(self._stall)

    async def _begin(self, events: bytes) -> None:
        opening = b"" if self._opening is None else await self._opening()
        if opening or events:
            self.streaming = True
            self.patience = self._form.keep_alive
            await self._connection.start_stream(opening + events, self._stall)

    def _events(self, batch: Batch) -> bytes:
        if not (self._resumable and batch.positions):
            events = b"".join(map(sse.event, batch.messages))
        else:
            named = zip(batch.messages, batch.positions, strict=True)
            events = b"".join([sse.event(data, event_id(batch.stream, position)) for data, position in named])
        return events if batch.missed is None else sse.comment("gap {}-{}".format(*batch.missed)) + events
