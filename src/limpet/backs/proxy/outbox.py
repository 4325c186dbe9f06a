"""Messages of the server that wait for a slow client: in order, bounded, sent by one task while there are any.

The code that receives from the server must not wait: the next message may be the result of another call. So a flood of
messages ends here. The queue is bounded by their number and by their bytes (law 9); they wait encoded, so their size
is their cost in memory. When it is full:

    progress              replaces the progress that came just before it: only the newest value is needed
    any other message     is dropped and noted, and so are the next ones, until all waiting messages are sent. Then the
                          client receives one log message that says how many messages of the server are missing

Changes of lists and resources do not come here: the engine has a set of them, which drops none (`engine/changes.py`).

A hosted object writes each message within one call, and so does the response to a POST. The code that reads them waits
for `room`: such a server is slowed down to the speed of its client. On the pipe of a program the messages of all
calls come mixed, and waiting for one client would delay the results of the others (law 7).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from limpet.core.ledger import Charge
from limpet.errors import LimpetError
from limpet.ports import Observer
from limpet.wire.jsonrpc import encode

Send = Callable[[str, msgspec.Raw], Awaitable[None]]
"""Sends a notification: method and encoded params."""
_PROGRESS: Final = "notifications/progress"
_LOG: Final = "notifications/message"


ACCOUNT: Final = "messages of servers behind"
"""For messages that belong to no client alone. It is no address, and no key of a principal."""


class Space:
    """The limits of the queues of one process: number and bytes for each queue, and the bytes of all together."""

    __slots__ = ("all_bytes", "bytes", "charge", "messages", "used")

    def __init__(self, messages: int, own_bytes: int, all_bytes: int) -> None:
        self.messages: int = messages
        self.bytes: int = own_bytes
        self.all_bytes: int = all_bytes
        self.used: int = 0
        """The bytes that wait in all queues."""
        self.charge: Charge | None = None
        """For these bytes; None before the start."""

    def has_room(self, size: int) -> bool:
        """True if so many bytes fit. If nothing waits, any size fits."""
        charge = self.charge
        return not self.used or (
            self.used + size <= self.all_bytes
            and (charge is None or charge.account.has_room(size, urgent=True))
        )

    def count(self, size: int) -> None:
        """Add to the bytes that wait; a negative size subtracts."""
        self.used += size
        if self.charge is not None:
            self.charge.set(self.used)


class Outbox:
    """A queue of notifications. An empty queue takes a message of any size."""

    __slots__ = (
        "_bytes",
        "_is_closed",
        "_is_full",
        "_lost",
        "_observer",
        "_send",
        "_sending",
        "_space",
        "_waiting",
    )

    def __init__(self, send: Send, space: Space, observer: Observer) -> None:
        self._send = send
        self._space = space
        self._observer = observer
        self._waiting: deque[tuple[str, msgspec.Raw]] = deque()
        self._bytes = 0
        self._sending: asyncio.Task[None] | None = None
        self._is_full = self._is_closed = False
        self._lost: tuple[int, object] = (0, None)
        """How many messages were dropped since the queue was full, and the level of the first log message among
        them."""

    def put(self, method: str, params: dict[str, Any]) -> None:
        """Take a message; never waits."""
        waiting = self._waiting
        text = msgspec.Raw(encode(params))
        if self._is_closed:
            return
        if self._is_full and waiting and method == waiting[-1][0] == _PROGRESS:
            self._count(-len(waiting.pop()[1]))
            has_room = self._space.has_room(len(text))
        else:
            has_room = self._has_room(method, len(text))
        if not has_room:
            self._is_full = bool(waiting)
            self._drop(method, params)
            return
        waiting.append((method, text))
        self._count(len(text))
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._run())

    def _has_room(self, method: str, size: int) -> bool:
        space = self._space
        is_full = self._waiting and (
            (self._is_full and method != _PROGRESS)
            or len(self._waiting) >= space.messages
            or self._bytes + size > space.bytes
        )
        return not is_full and space.has_room(size)

    def _count(self, size: int) -> None:
        self._bytes += size
        self._space.count(size)

    def _drop(self, method: str, params: dict[str, Any]) -> None:
        self._observer.note("upstream.dropped", method=method)
        if method != _PROGRESS:
            count, level = self._lost
            self._lost = count + 1, level or params.get("level")

    @property
    def is_crowded(self) -> bool:
        """True if the sender should wait for `flush` before it sends more."""
        space = self._space
        return len(self._waiting) > space.messages // 2 or self._bytes > space.bytes // 2

    async def flush(self) -> None:
        """Wait until every message so far is sent or could not be sent. Never raises."""
        if self._sending is not None:
            await asyncio.wait({self._sending})

    def close(self) -> None:
        """Drop the messages that wait, and take no more."""
        self._is_closed = True
        self._count(-sum(len(text) for _, text in self._waiting))
        self._waiting.clear()
        if self._sending is not None:
            self._sending.cancel()

    async def _run(self) -> None:
        try:
            while self._waiting:
                method, text = self._waiting.popleft()
                try:
                    await self._deliver(method, text)
                finally:
                    self._count(-len(text))
                if not self._waiting:
                    self._is_full = False
                    await self._report_loss()
        finally:
            self._sending = None

    async def _report_loss(self) -> None:
        (count, level), self._lost = self._lost, (0, None)
        if count:
            data = f"{count} messages of the server were dropped: they came faster than this client reads"
            text = encode({"level": level or "warning", "logger": "limpet", "data": data})
            await self._deliver(_LOG, msgspec.Raw(text))

    async def _deliver(self, method: str, text: msgspec.Raw) -> None:
        try:
            await self._send(method, text)
        except (LimpetError, OSError) as error:
            # The exchange has ended, the answer is plain JSON, or the store is unavailable: the call itself continues.
            self._observer.note("upstream.undelivered", method=method, error=error)
