"""The commands of sessions over a shared store.

SharedSessions ── sessions.py   commands that are more than a rule: closing, reading, the work of dead replicas
 └─ CommandRounds ── rounds.py         rules on a draft, then a commit, until it is applied
     └─ KnownSessions ── known.py   the documents that this process knows
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from limpet.core.lifecycle import SessionInput
from limpet.core.records import Closed, Ending, Orphan, WakeUp
from limpet.core.rules import calls, life
from limpet.core.stream import Continuity, Event, Log, Position, StreamPage
from limpet.stores.backend import Why
from limpet.stores.shared.draft import SharedDocument
from limpet.stores.shared.fields import decode_log, encode_log
from limpet.stores.shared.heads import HeadLog, NeedsIndex
from limpet.stores.shared.rounds import CommandRounds, left_by
from limpet.stores.shared.shelf import Erasure

_STRAY_SECONDS: Final = 10.0
"""Seconds after which an exchange that is ours in the store, and unknown here, is an orphan. Younger ones may be
beginning."""


class SharedSessions(CommandRounds):
    """All commands that concern one session."""

    async def spare_kept(self, key: str) -> int:  # noqa: ARG002
        """Return all that a principal may keep: the commit is refused if it is too much."""
        return self._limits.principal_kept_bytes

    # The work of dead replicas

    async def left_by(self, owner: str, key: str) -> list[Orphan] | None:
        """Return the exchanges of an incarnation that was declared dead; its readers and turns are forgotten.

        None: nothing is left.
        """
        found = await self.apply(key, None, left_by, owner, self.now())
        if not found:
            return None
        return [Orphan(key, stream, one.id, one.owner) for stream, one in found if one.id is not None]

    async def strays(self, key: str) -> list[Orphan] | None:
        """Return exchanges of this process that it does not run: they had ended, and a failover brought them back.

        Send HELD for each stream with a reader here: it may be a reader that had left.
        """
        doc = await self.load(key)
        if doc is None:
            return None
        for stream, one in doc.exchanges.items():
            # A POST has generation 0, and leaves with its exchange.
            if one.reader == self.me and one.generation:
                self.wake(WakeUp.HELD, key, stream)
        entry = self._entries.get(key)
        known = entry.running if entry is not None else {}
        oldest = (self.now() - _STRAY_SECONDS) * 1_000_000
        return [
            Orphan(key, stream, one.id, self.me)
            for stream, one in doc.exchanges.items()
            if one.running
            and one.owner == self.me
            and stream not in known
            and one.fence <= oldest
            and one.id is not None
        ]

    async def reap(self, orphan: Orphan, terminal: bytes, *, tag: int) -> bool:
        facts = (orphan.stream, orphan.owner, terminal, self.at())
        return await self.apply(orphan.session, False, calls.reap, *facts, tag=tag)  # noqa: FBT003

    # Closing, reading, totals

    async def sweep(self) -> list[Closed]:
        """Close the sessions that are due, those of one round at the same time."""
        closed: list[Closed] = []
        while keys := await self.due():
            ended = await asyncio.gather(*(self.end(key, self._examine) for key in keys))
            closed += [one for one in ended if one is not None]
        return closed

    async def end(self, key: str, why: Why, ending: Ending | None = None) -> Closed | None:
        """Close a session. If it was changed after it was loaded, decide again."""
        while (doc := await self.load(key)) is not None:
            reason = why(doc)
            if reason is not None:
                left = await self._closed(doc, reason, ending)
                closed = None if left is None else await self.erase(doc, reason, left)
                if closed is not None:
                    return closed
            elif await self.apply(key, None, why) is None:
                return None
        return None

    async def _closed(
        self, doc: SharedDocument, reason: SessionInput, ending: Ending | None
    ) -> Mapping[str, Log] | None:
        """Apply the rule that closes a session to a document that was loaded for it.

        None: a log was written meanwhile.
        """
        needed: set[str] = set()
        while True:
            try:
                return life.close(doc, reason, ending, self.at())
            except NeedsIndex as index:
                needed.add(index.stream)
                if not await self.learn_indexes(doc.record.key, doc, needed):
                    return None

    async def erase(
        self, doc: SharedDocument, reason: SessionInput, left: Mapping[str, Log]
    ) -> Closed | None:
        """Forget a session, if it is still as it was loaded."""
        record = doc.record
        event = self._random.token(12)
        heads = {name: log for name, log in left.items() if isinstance(log, HeadLog)}
        erasure = Erasure(
            exact=doc.known_bytes,
            reason=reason,
            record=record,
            event=event,
            left={name: encode_log(log) for name, log in heads.items()},
            events={name: log.new for name, log in heads.items() if log.new},
            size=sum(log.bytes for log in heads.values()),
            told=self._for_others(doc),
            writers=list(doc.writers),
            subscriptions=list(doc.subscriptions),
        )
        if not await self.remove(record.key, erasure):
            return None
        entry = self._entries.get(record.key)
        if entry is not None:
            entry.doc = None
            self._forget(entry)
            if not entry.is_busy:
                self._discard(entry)
        self._wake_here(record.key, doc.told)
        return Closed(record, reason, event)

    async def read(
        self, key: str, stream: str, cursor: Position, max_events: int, max_bytes: int
    ) -> StreamPage | None:
        page = self._remembered(key, stream, cursor, max_events, max_bytes)
        if page is not None:
            return page
        piece = await self.piece(key, stream, cursor.seq, max_events, max_bytes)
        if piece is None:
            return None
        head = decode_log(piece.head)
        head.name = stream
        return _page(head, cursor, piece.tag, list(piece.events))

    def _remembered(
        self, key: str, stream: str, cursor: Position, max_events: int, max_bytes: int
    ) -> StreamPage | None:
        """Return the events after the cursor if they were written here, by an exchange that runs here."""
        entry = self._entries.get(key)
        if entry is None or stream not in entry.running or entry.doc is None:
            return None
        head: HeadLog | None = entry.doc.logs.stored(stream)
        if head is None or cursor.seq < head.low.seq:
            return None
        found = self._recent.after(key, stream, cursor.seq, head.top, max_events, max_bytes)
        return None if found is None else _page(head, cursor, *found)


def _page(head: HeadLog, cursor: Position, tag: int | None, events: list[Event]) -> StreamPage:
    """Return a page of a log: the events after the cursor, where the event of the cursor has this tag."""
    is_inside = head.low.seq < cursor.seq < head.top.seq
    if not (tag == cursor.tag if is_inside else head.proves(cursor)):
        return StreamPage(Continuity.FORK, [], None, finished=False)
    is_gap = cursor.seq < head.low.seq
    end = events[-1].position.seq if events else max(cursor.seq, head.low.seq)
    finished = head.closed and end == head.top.seq
    missed = (cursor.seq + 1, head.low.seq) if is_gap else None
    return StreamPage(Continuity.GAP if is_gap else Continuity.OK, events, missed, finished)
