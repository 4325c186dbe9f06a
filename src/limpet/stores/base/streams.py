"""Streams: an append-only log for each exchange, and one standalone stream for each session.

`limpet.core.stream.Log` is such a log in memory, and defines the effect of each call: positions, trimming, reading.

The standalone stream exists from the first call that needs it. It begins at `Position(0, 0)`, it is never complete,
and every replica may write it: its fence is STANDALONE_FENCE.

The order in which data is forgotten when an append has no room (law 9):

1. The oldest events of the stream itself, down to `Limits.stream_events` and `Limits.stream_bytes`.
2. While the session is over `Limits.session_bytes`: complete streams of the session without a reader. First those that
   were delivered to their end, then in the order of their ends. Then the oldest events of the session's largest log, at
   least an eighth of it each time.
3. While the store is over `Limits.streams_bytes`: first complete streams without a reader, then the oldest events of a
   log. A store may choose the session. A store of one process, and SQLite, take complete streams of the writing
   session, then of all others, then cut the largest log of the writing session. A store that principals share over a
   network should take them from the principal with the most bytes, as Redis does: then no principal can fill the
   store for the others.

The newest event of a stream is never forgotten, so a terminal message can always be delivered. A session also has at
most `Limits.finished_streams` complete streams; beyond that they are forgotten in the order of step 2.
"""

from typing import Protocol

from limpet.core.records import Attached, Probed, Refusal
from limpet.core.rules import readers, streams
from limpet.core.stream import NewEvents, Position, StreamPage
from limpet.stores.backend import GONE, Backend


class RoomPart(Backend, Protocol):
    """Room in the whole store."""

    async def _make_room(self, key: str) -> None:
        """After a write: while the store is over its budget, forget complete streams, then cut the largest log."""
        while self.over > 0 and (oldest := await self.oldest_finished()) is not None:
            if not await self.apply(oldest[0], False, streams.forget_finished, oldest[1]):  # noqa: FBT003
                break
        while (over := self.over) > 0:
            if not await self.apply(key, False, streams.cut_largest, over, self._limits):  # noqa: FBT003
                break


class StreamPart(RoomPart, Protocol):
    """The calls for streams and their readers."""

    async def open_stream(self, key: str, stream: str, fence: int, tag: int) -> Position:
        """Begin the stream of an exchange, so that it can be written and resumed. Returns where it begins.

        Opened again it is the same stream, with its first tag; the position before its oldest retained event is
        returned.

        Raises:
            Fenced, StreamClosed, SessionGone: as `settle`.
        """
        return await self.apply(key, GONE, streams.open_stream, stream, fence, tag)

    async def append(self, key: str, stream: str, fence: int, events: NewEvents) -> Position:
        """Add one or more events, in this order, and send STREAM once. Returns the position of the last one.

        They get consecutive positions, and are added all or not at all. The limits hold again when all are added: then
        the oldest events of the stream may be forgotten, also the first of these.

        With STANDALONE_FENCE they go to the standalone stream, and `stream` is ignored. If the newest event of the
        stream has the tag of the last of these events, this is the same append sent again: the position of the newest
        event is returned, and nothing is written.

        Raises:
            Fenced: another fence owns the exchange, or it was never claimed. Nothing was written.
            StreamClosed: the exchange has ended, or its stream was never opened. Nothing was written.
            SessionGone: the session is unknown or closed.
        """
        position: Position = await self.apply(key, GONE, streams.append, stream, fence, events, self.at())
        if self.over > 0:
            await self._make_room(key)
        return position

    async def read(
        self, key: str, stream: str, cursor: Position, max_events: int, max_bytes: int
    ) -> StreamPage | None:
        """Return the events after the cursor, within the bounds but at least one. None if there is no such stream.

        A cursor whose events were trimmed away is answered with GAP, the sequence numbers that are missing, and the
        retained events. A cursor that never was a position of the stream is answered with FORK and no event.
        `finished`
        says that the stream is complete and the page reaches its end.
        """

    async def attach(
        self,
        key: str,
        principal: str,
        stream: str | None,
        cursor: Position | None,
        *,
        since: int | None = None,
    ) -> Attached | Refusal:
        """Make the caller the stream's reader, in the place of the reader before it. A sign of the client.

        `stream` None is the standalone stream. Without a cursor, a reader of the standalone stream begins where the
        readers before it were (`detach`), a reader of an exchange where its stream began. A cursor whose events were
        trimmed away is accepted, also the beginning; `read` answers GAP.

        `since` is the generation of a reader that was superseded and is still there. It gets the place only if no
        other reader has it, and begins at the furthest of its cursor and the readers before it. If the place is
        still its own, nothing changes.

        NO_SESSION if the session is unknown, closed or another principal's. UNBEGUN if the exchange is in flight and
        has no stream yet. UNRESUMABLE if the session has no such stream or position. WITHDRAWN if its claim was given
        back. BUSY if another reader has the place (only with `since`).
        """
        now = self.now()
        return await self.apply(
            key, Refusal.NO_SESSION, readers.attach, principal, stream, cursor, since, self.me, now
        )

    async def detach(
        self, key: str, stream: str, generation: int, cursor: Position | None, *, broke: bool
    ) -> bool:
        """Remove the reader of a stream, and note how far it has read. A sign of the client.

        Returns True if this made the session detached: `broke` is True, and no other stream of the session has a
        reader. A reader that ends without a break leaves the session attached. If the answer was kept for a repeat
        and the reader has received the whole stream, the answer is no longer kept.

        If the session or the stream is unknown, or the stream has no reader or one of another generation, nothing
        changes and False is returned.
        """
        now = self.now()
        return await self.apply(key, False, readers.detach, stream, generation, cursor, now, broke=broke)  # noqa: FBT003

    async def probe(self, key: str, stream: str) -> Probed | None:
        """Return where an exchange is read, and send PROBE there if it is another replica. None if it is unknown."""
        return await self.apply(key, None, readers.probe, stream, self.me)

    async def vouch(self, key: str, stream: str, *, alive: bool) -> None:
        """Answer a probe: the reader of the stream is alive, or was silent for so long that another takes its place."""
        await self.apply(key, None, readers.vouch, stream, alive=alive)
