"""The messages of one stream on their way to the store: several in one append, while the handler continues.

    handler ── add ──▶ waiting, at most 64 ──▶ batch ── store.append ──▶ log
                          ▲                      │
                          └──── full: wait ──────┘ stored

With a store outside of this process an append costs a round trip or a commit, whether it has one event or many. So
`add` puts a message of the handler into the buffer and returns. A task begins in the next pass of the loop. It appends
all messages in the buffer, until the buffer is empty. So an append has the messages of one pass, or those that came
during the append before.

Why the order stays. Messages leave in the order in which they came. One batch at a time is on its way, and the code
that stores it holds `lock`: the task does, and so does the end of the exchange, which stores the remaining messages
and then itself.

Why no message is in the log twice. After a failed append it is not known whether the store has executed it. So the same
batch is stored again before anything else: a store recognises a repeated append by the tag of its last event.

Why no message is lost in silence. A batch that failed stays. The failure is raised at the next `add`. If there is none,
the end of the exchange stores the batch: if the store is unavailable, both are stored later; if it refuses this writer,
the end is refused too.

Why it is bounded (law 9). At most `EVENTS` messages and `BYTES` bytes wait, or one larger message; then `add` waits. A
batch on its way has at most as many.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from limpet.core.stream import NewEvents
from limpet.engine.wake import Wake
from limpet.errors import SessionGone, StoreError

EVENTS: Final = 64
"""Messages of a stream that may wait."""
BYTES: Final = 64 * 1024
"""Bytes of these messages."""

Append = Callable[[NewEvents], Awaitable[None]]
"""Appends events to the log of the stream."""


class StreamBuffer:
    """The messages that are not in the log yet, and the lock of all calls to the store that concern the stream.

    `wake` is set when messages were stored, and when that has failed. `append` may try again by itself while the store
    is unavailable.
    """

    __slots__ = ("_batch", "_failure", "_task", "_waiting", "_waiting_bytes", "events", "lock", "size")

    def __init__(self) -> None:
        self.lock: asyncio.Lock = asyncio.Lock()
        """Held while the store is asked to begin, extend or end the stream."""
        self.events: int = 0
        """How many messages are not in the log yet."""
        self.size: int = 0
        """How many bytes they have."""
        self._waiting: list[tuple[int, bytes]] = []
        self._waiting_bytes = 0
        self._batch: list[tuple[int, bytes]] = []
        """On its way to the store, or to be stored again because that has failed."""
        self._task: asyncio.Task[None] | None = None
        """Stores the messages in the buffer."""
        self._failure: Exception | None = None
        """Why the task has ended before it had stored everything; None after this was raised."""

    async def add(self, tag: int, message: bytes, append: Append, wake: Wake) -> None:
        """Put a message behind the others, when there is room for it.

        Raises:
            StoreError, SessionGone: earlier messages could not be stored. This message is not in the buffer.
        """
        self._raise_failure()
        while self._is_full(len(message)):
            await self.progress(append, wake)
        self.put(tag, message)
        self._begin(append, wake)

    def put(self, tag: int, message: bytes) -> None:
        """Put a message behind the others, also if there is no room. The caller stores it soon."""
        self._waiting.append((tag, message))
        self._waiting_bytes += len(message)
        self.events += 1
        self.size += len(message)

    async def progress(self, append: Append, wake: Wake) -> None:
        """Wait for the next wake-up. The messages in the buffer are stored meanwhile.

        Raises:
            StoreError, SessionGone: it could not be stored. It is still in the buffer.
        """
        if self.events:
            self._begin(append, wake)
        await wake.next()
        self._raise_failure()

    async def store(self, append: Append, wake: Wake) -> None:
        """Append everything now. The caller holds the lock.

        The next call continues with a batch that was not stored.
        """
        while self.events:
            if not self._batch:
                self._batch, self._waiting, self._waiting_bytes = self._waiting, [], 0
            try:
                await append(self._batch)
            except (StoreError, SessionGone):
                raise
            except Exception as error:
                # It would fail again, and the end of the exchange waits for it.
                self._forget_batch(wake)
                raise StoreError("the store could not append the messages of a handler") from error
            self._forget_batch(wake)

    def _forget_batch(self, wake: Wake) -> None:
        self.events -= len(self._batch)
        self.size -= sum(len(data) for _, data in self._batch)
        self._batch = []
        wake.set()

    def _is_full(self, more: int) -> bool:
        waiting = len(self._waiting)
        return waiting >= EVENTS or (waiting > 0 and self._waiting_bytes + more > BYTES)

    def _begin(self, append: Append, wake: Wake) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(append, wake))

    async def _run(self, append: Append, wake: Wake) -> None:
        try:
            async with self.lock:
                await self.store(append, wake)
        except (StoreError, SessionGone) as error:
            self._failure = error
        finally:
            self._task = None
            wake.set()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
