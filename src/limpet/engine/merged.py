"""The answers of several requests that came in one POST, as one source of the delivery loop (`delivery.py`).

Each request is its own exchange, with its own stream. Their messages are merged in the order in which they come:

    PostedExchange     ──┐                         all have ended without a stream:  one batch with all ends
    PostedExchange     ──┼──▶ take ──▶ Batch  ──┤
    RepeatedExchange   ──┘                         otherwise:  each batch as it comes, each end when it is there

When the answers are taken. The client repeats the whole POST, so all of its answers are taken together, with the last
one: until then an end that was written is not reported as written, and is kept if the connection breaks
(`core/fate.py`).
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress

from typing_extensions import override

from limpet.engine.delivery import Batch
from limpet.engine.posted import PostedExchange, RepeatedExchange
from limpet.engine.reader import End, Reader
from limpet.engine.wake import Wake, wait_for_any
from limpet.errors import Cancelled, DuplicateId, McpError, SessionGone, Withdrawn
from limpet.wire.jsonrpc import refusal

Member = PostedExchange | RepeatedExchange
_End = tuple[Member | None, Batch]


class _Wakes(Wake):
    """The wake-ups of several sources."""

    __slots__ = ("_members",)

    def __init__(self, members: list[Member]) -> None:
        super().__init__()
        self._members = members

    @override
    def clear(self) -> None:
        for member in self._members:
            member.wake.clear()


class Merged:
    """The messages of several exchanges, for the POST that has sent their requests. Call `close` in any case."""

    def __init__(
        self, bind: Callable[[Reader], None], restart: Callable[[Member], Awaitable[None]], *, streams: bool
    ) -> None:
        """`bind` is called with each reader, `restart` with a repeat of a request of which nothing ran.

        It adds another member.

        `streams`: the response may become a stream.
        """
        self.members: list[Member] = []
        """Those that have not ended."""
        self._all: list[Member] = []
        self._bind = bind
        self._restart = restart
        self._bound: set[str] = set()
        self._streams = streams
        self._ends: list[_End] = []
        """Ends that are not written yet."""
        self._written: list[_End] = []
        """Ends that were written, and are not taken yet."""
        self._current: tuple[Member, Batch] | None = None
        """The messages that are being written, if they are no ends."""
        self._is_left = self._is_open = self._is_announced = False
        self.is_stream: bool = False
        """The response is a stream: ends are written when they are there."""
        self.wake: Wake = _Wakes(self.members)

    def add(self, member: Member) -> None:
        """Add the messages of a request."""
        self.members.append(member)
        self._all.append(member)
        if self._is_left:
            member.leave()

    def refuse(self, message: bytes) -> None:
        """Add the answer to a request that was refused."""
        self._ends.append((None, Batch((message,), finished=True)))

    async def begin(self) -> None:
        """Become a stream: an empty batch begins it."""
        await self._open_all()
        self._is_announced = True

    async def _open_all(self) -> None:
        """Become a stream. Calls that run get streams of their own, which can be resumed."""
        if self._is_open or not self._streams:
            return
        self.is_stream = self._is_open = True
        for member in self.members:
            # `take` answers a member that cannot be read: the others go on.
            with suppress(McpError, SessionGone):
                await self._open(member)

    async def _open(self, member: Member) -> None:
        reader = await member.open()
        if reader is not None and reader.stream not in self._bound:
            self._bound.add(reader.stream)
            self._bind(reader)

    def check_end(self) -> bool:
        return self._is_left or not (self.members or self._ends)

    def leave(self) -> None:
        """Record that the client has disconnected."""
        self._is_left = True
        for member in self._all:
            member.leave()

    def stop(self, end: End) -> None:
        """End the readers."""
        for member in self._all:
            member.stop(end)

    async def close(self) -> None:
        """Give the places of all members back."""
        for member in self._all:
            await member.close()

    async def take(self) -> Batch | None:
        """Return the next messages of one of them, or the ends of all."""
        if self._is_announced:
            self._is_announced, self._current = False, None
            return Batch(())
        for member in list(self.members):
            batch = await self._take_from(member)
            if batch is None:
                continue
            if not batch.finished:
                await self._open_all()
                self._current = member, batch
                return batch
            self._ends.append((member, batch))
            self.is_stream |= self._streams and len(batch.messages) > 1
        if self.is_stream:
            await self._open_all()
        return self._next_ends() if self._ends and (self.is_stream or not self.members) else None

    async def _take_from(self, member: Member) -> Batch | None:
        """Return the messages of a member; its end, if it cannot be read. A member that has ended is removed."""
        if isinstance(member, PostedExchange) and member.is_fenced:
            # Other replicas have ended it: only the end that they wrote counts.
            followed = member.follow()
            self._all.append(followed)
            self.members[self.members.index(member)] = member = followed
        try:
            batch = None if member.check_end() else await member.take()
            if batch is not None and not batch.messages:
                # Its stream has begun.
                batch = await member.take()
            if self.is_stream:
                await self._open(member)
            if batch is None and member.check_end():
                batch = self._unread(member)
        except Withdrawn:
            self.members.remove(member)
            await self._restart(member)
            return None
        except (McpError, SessionGone) as error:
            end = error if isinstance(error, McpError) else Cancelled("the session was closed")
            batch = Batch((refusal(member.id, end),), finished=True)
        if batch is not None and batch.finished:
            self.members.remove(member)
        return batch

    def _unread(self, member: Member) -> Batch:
        """Return the end of a member whose reader has ended early.

        On a stream it has none: its client can resume it.
        """
        is_taken_over = member.reader is not None and member.reader.end is End.TAKEN_OVER
        error = DuplicateId() if is_taken_over else Cancelled("the session was closed")
        return Batch(() if self.is_stream else (refusal(member.id, error),), finished=True)

    def _next_ends(self) -> Batch:
        """Return the ends as one batch; where the response is a stream, one of them."""
        self._current = None
        ends = self._ends[:1] if self.is_stream else self._ends
        self._ends = self._ends[len(ends) :]
        self._written += ends
        finished = not (self.members or self._ends)
        if self.is_stream:
            [(_, batch)] = ends
            return Batch(batch.messages, finished, batch.positions, batch.missed, batch.stream)
        return Batch([batch.messages[-1] for _, batch in ends], finished, ends=len(ends))

    def written(self, batch: Batch) -> None:
        """Move on. The ends are taken together."""
        if self._current is not None:
            member, own = self._current
            member.written(own)
        elif batch.finished:
            for ended, end in self._written:
                if ended is not None:
                    ended.written(end)

    async def wait(self, seconds: float | None) -> bool:
        """Wait until one of them has more. False: the time has passed, or a keep-alive was requested."""
        readers = [member.reader for member in self.members if member.reader is not None]
        patience = min((reader.patience(seconds) for reader in readers), default=seconds)
        is_woken = await wait_for_any([member.wake for member in self.members], patience)
        quiet = [reader for reader in readers if not reader.woke(is_woken=is_woken)]
        return is_woken and not quiet
