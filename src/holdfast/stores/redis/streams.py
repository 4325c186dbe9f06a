"""Streams: written first, then read, from any replica.

A process remembers the last events that it wrote to a stream (`recent_writes.py`), and sends with each append the position
that it follows. If that is not the end of the log, a failover has lost writes: the process restores them, with the same
positions, and appends again. Readers notice nothing, or receive a gap.
"""

from typing import Final

from holdfast.core.stream import Continuity, Event, NewEvents, Page, Position
from holdfast.errors import StoreUnavailable
from holdfast.stores.base import STANDALONE_FENCE, Attached, Probed, Refusal, WakeUp
from holdfast.stores.redis.core import flag
from holdfast.stores.redis.exchanges import ExchangeMethods, check
from holdfast.stores.redis.refusals import Later, Lost

_REFUSALS: Final = {
    b"none": Refusal.NO_SESSION,
    b"unresumable": Refusal.UNRESUMABLE,
    b"unbegun": Refusal.UNBEGUN,
    b"busy": Refusal.BUSY,
    b"withdrawn": Refusal.WITHDRAWN,
}
_FORK = Page(Continuity.FORK, [], None, finished=False)


class StreamMethods(ExchangeMethods):
    """open_stream, append, read, attach, detach."""

    async def open_stream(self, key: str, stream: str, fence: int, tag: int) -> Position:
        """Start an exchange's stream. A second call returns the same stream."""
        reply = await self.run("open_stream", key, stream, fence, str(tag))
        if reply[0] == b"lost" and await self._restore(key, stream, fence):
            reply = await self.run("open_stream", key, stream, fence, str(tag))
        check(reply)
        start = Position(reply[2], int(reply[3]))
        self._recent.begin(key, stream, start)
        return start

    async def append(self, key: str, stream: str, fence: int, events: NewEvents) -> Position:
        """Add events and wake up the reader. A log that has lost events is restored first."""
        tag = events[-1][0]
        recent = self._recent.get(key, stream) if fence != STANDALONE_FENCE else None
        expected: tuple[int | str, str] = ("", "")
        if recent is not None:
            if recent.top.tag != tag:
                self._recent.push(key, stream, recent, events)
            expected = (recent.before.seq, str(recent.before.tag))
        facts = (stream, fence, *self._budget[:3], self._report_step)
        pairs = [part for one_tag, data in events for part in (str(one_tag), data)]
        try:
            reply = await self.session("append", key, *facts, *expected, *pairs)
        except StoreUnavailable as error:
            # It was refused, so it is not in the log, and must not be restored from the recent writes.
            if not isinstance(error.__cause__, Lost | Later):
                self._recent.forget(key, stream)
            raise
        if reply[0] in {b"rollback", b"lost"} and await self._restore(key, stream, fence):
            # The restored log has these events already: this finds them by their last tag.
            reply = await self.session("append", key, *facts, "", "", *pairs)
        if reply[0] != b"ok":
            self._recent.forget(key, stream)
        check(reply)
        if recent is not None:
            recent.stored = reply[2]
        self._on_wake(WakeUp.STREAM, key, reply[3].decode())
        return Position(reply[2], tag)

    async def read(
        self, key: str, stream: str, cursor: Position, max_events: int, max_bytes: int
    ) -> Page | None:
        """Return the events after the cursor."""
        reply = await self.run("read", key, stream, cursor.seq, str(cursor.tag), max_events, max_bytes)
        if reply[0] == b"none":
            return None
        if reply[0] == b"fork":
            return _FORK
        _, _, start, low, finished, flat = reply
        events = [
            Event(Position(start + 1 + index // 2, int(flat[index])), flat[index + 1])
            for index in range(0, len(flat), 2)
        ]
        work = self._work.get(key)
        if work is not None and stream in work.readers:
            work.readers[stream] = events[-1].position.seq if events else start
        missed = (cursor.seq + 1, low) if reply[0] == b"gap" else None
        return Page(Continuity.GAP if missed else Continuity.OK, events, missed, bool(finished))

    async def attach(
        self,
        key: str,
        principal: str,
        stream: str | None,
        cursor: Position | None,
        *,
        since: int | None = None,
    ) -> Attached | Refusal:
        """Make the caller the stream's reader, on any replica. It replaces the reader before it."""
        at = ("", "") if cursor is None else (str(cursor.seq), str(cursor.tag))
        held = "" if since is None else since
        reply = await self.registered("attach", key, principal, stream or "", *at, held)
        if reply[0] != b"ok":
            return _REFUSALS[reply[0]]
        generation, seq, tag, returned, finished = reply[2:7]
        record = await self.readable(key, reply[7])
        if record is None:
            return Refusal.NO_SESSION
        self.work_in(key).readers[stream or record.standalone] = seq
        return Attached(record, generation, Position(seq, int(tag)), bool(returned), bool(finished))

    async def probe(self, key: str, stream: str) -> Probed | None:
        """Return which replica reads a stream, and wake it up."""
        reply = await self.run("probe", key, stream)
        if reply[0] == b"withdrawn":
            return Probed(running=False, kept=False, reader="", word=0, withdrawn=True)
        if reply[0] != b"ok":
            return None
        running, kept, reader, word, withdrawn = reply[2:7]
        return Probed(bool(running), bool(kept), reader.decode(), word, bool(withdrawn))

    async def vouch(self, key: str, stream: str, *, alive: bool) -> None:
        """Answer a probe: whether the stream's reader is alive."""
        await self.run("vouch", key, stream, flag(alive))

    async def detach(
        self, key: str, stream: str, generation: int, cursor: Position | None, *, broke: bool
    ) -> bool:
        """Give the reader's place back; if this break left no reader, the grace period starts."""
        at = ("", "") if cursor is None else (str(cursor.seq), str(cursor.tag))
        reply = await self.session("detach", key, stream, generation, *at, flag(broke))
        if reply[0] != b"ok":
            return False
        work = self._work.get(key)
        if work is not None:
            work.readers.pop(stream, None)
            self.forget_if_idle(key)
        return bool(reply[2])
