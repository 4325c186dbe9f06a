"""The documents that this process knows: loaded, replaced, forgotten.

And wake-ups for everything that others have changed.

A wake-up of another replica may be lost, so sessions with work here are read again once a second (`look_again`).
Whenever a document learns something that others have written, everything here that waits for it is woken.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from limpet.config import Limits
from limpet.core.ledger import Charge, Ledger, encoded
from limpet.core.records import WakeUp
from limpet.core.rules.document import Document, replica_of
from limpet.errors import StoreError
from limpet.ports import Observer, Random
from limpet.stores.base import OnWake, SessionCommands
from limpet.stores.shared.commit import Stale
from limpet.stores.shared.draft import SharedDocument
from limpet.stores.shared.entry import KnownSession
from limpet.stores.shared.fields import Unreadable
from limpet.stores.shared.heads import NeedsIndex
from limpet.stores.shared.recent_writes import RecentWrites
from limpet.stores.shared.shelf import Shelf
from limpet.stores.shared.tables import NeedsAll

CACHE_BYTES: Final = 64 * 1024 * 1024
CACHE_SHARE: Final = 8
"""Of all documents that this process knows; and at most this part of the ledger. Beyond it, those of sessions
without work here are forgotten that were not used for the longest time."""
_ACCOUNT: Final = "shared store"
_AT_ONCE: Final = 64
"""Sessions that are read again at the same time."""


def nothing(doc: Document) -> None:
    """Change nothing: the document is read again."""


class KnownSessions(SessionCommands, Shelf):
    """The sessions that this process knows."""

    wake: OnWake
    _observer: Observer
    _state_bytes: int = 0
    """Of the state that is known (`state.py`)."""

    def __init__(self, limits: Limits, random: Random) -> None:
        self._limits = limits
        self._random = random
        self.over: int = -limits.streams_bytes
        self._entries: OrderedDict[str, KnownSession] = OrderedDict()
        self._taken: list[tuple[str, str]] = []
        self._charge: Charge | None = None
        self.forget_all()

    def forget_all(self) -> None:
        """Begin as a process that knows nothing."""
        self._entries.clear()
        self._cached = 0
        self._recent = RecentWrites()
        self._name = self._random.token(6)
        self._mark = float(int(self._random.uniform(1, 2**50)))

    def charge_all(self, ledger: Ledger) -> None:
        """Charge what this process knows of sessions to a ledger.

        It is there already, so no command is refused for it.
        """
        self._charge = ledger.account(_ACCOUNT).open()

    # What a backend adds

    async def register(self, key: str) -> None:
        """Note that this incarnation may have work in a session, before it has.

        Raises StoreUnavailable if it is dead.
        """
        raise NotImplementedError

    async def applied(self, key: str, doc: SharedDocument, known: Sequence[float], grown: int) -> None:
        """Carry a commit over to indexes in other places. If this fails, `doubt` follows.

        `known`: the numbers before it, as they were known here; that they were reported says nothing, because a sweep
        of another replica may have
        raised the hint. `grown`: by how many bytes it has changed the logs. Does nothing: the commit has changed the
        indexes too.
        """

    def doubt(self, key: str) -> None:
        """Indexes in other places may not know the last change of a session: compare them soon."""

    async def poisoned(self, key: str, error: Exception) -> None:
        """Forget a session that cannot be read."""
        raise NotImplementedError

    # Documents

    async def load(self, key: str) -> SharedDocument | None:
        """Return a document of its own, as it is stored now."""
        try:
            stored = await self.stored(key)
            if stored is None or stored.fields is None:
                return None
            return SharedDocument(stored.numbers, stored.fields)
        except Unreadable as error:
            await self._drop(key, error)
            return None

    def _entry(self, key: str) -> KnownSession:
        return self._entries.get(key) or self._entries.setdefault(key, KnownSession(key))

    def _weigh(self, entry: KnownSession) -> None:
        """After commands: count the memory of a document, and forget others if all of them take too much."""
        if self._entries.get(entry.key) is not entry:
            # Everything was forgotten meanwhile.
            return
        self._entries.move_to_end(entry.key)
        weight = entry.weighed()
        self._cached += weight - entry.weight
        entry.weight = weight
        most = self._most_cached
        if self._cached > most:
            for one in list(islice(self._entries.values(), _AT_ONCE)):
                if self._cached <= most:
                    break
                if one.has_work(self.me):
                    self._entries.move_to_end(one.key)
                else:
                    self._discard(one)
        self._count_known()

    def _count_known(self) -> None:
        if self._charge is not None:
            self._charge.set(self._cached + encoded(self._recent.bytes) + self._state_bytes)

    @property
    def _most_cached(self) -> int:
        if self._charge is None:
            return CACHE_BYTES
        return min(CACHE_BYTES, self._charge.account.ledger.total // CACHE_SHARE)

    def _discard(self, entry: KnownSession) -> None:
        """Forget what is known of a session."""
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]
            self._cached -= entry.weight

    async def _refresh(self, entry: KnownSession, known: bytes) -> bool:
        """Read a session. False if there is none."""
        key, before = entry.key, entry.doc or entry.last
        stored = await self.stored(key, known)
        if stored is None:
            self._forget(entry)
            return False
        if stored.fields is None:
            return True
        self._replace(entry, before, SharedDocument(stored.numbers, stored.fields))
        return True

    def _replace(self, entry: KnownSession, before: SharedDocument | None, doc: SharedDocument) -> None:
        """Replace the document by the stored one."""
        entry.doc, entry.last = doc, None
        last = doc.writers.get(entry.writer, 0)
        if last < entry.acknowledged and entry.writer == self._writer():
            entry.lost = last if entry.lost is None else min(last, entry.lost)
            # An incarnation that was declared dead has no number either: it is refused here.
            entry.registered = ""
            self.doubt(entry.key)
        entry.acknowledged = last
        entry.number = max(entry.number, last)
        if before is not None:
            for name in ("exchanges", "logs", "asks"):
                after = doc.tables[name]
                for one, value in dict.items(before.tables[name]):
                    self._wake_for(entry.key, name, one, value, after.stored(one))
        elif entry.asks:
            for name in entry.asks:
                self._wake_for(entry.key, "asks", name, entry.asks[name][0], doc.tables["asks"].stored(name))

    def _wake_for(self, key: str, table: str, name: str, before: Any, after: Any) -> None:
        """Wake everything here that waits for a change which others have made."""
        me = self.me
        if table == "exchanges":
            if before.reader == me and (after is None or replica_of(after.reader) != replica_of(me)):
                self._taken.append((key, name))
            if before.owner == me and after is not None and after.cancelled and not before.cancelled:
                self.wake(WakeUp.CANCEL, key, name)
        elif table == "asks":
            if before.owner == me and before.answer is None and (after is None or after.answer is not None):
                self.wake(WakeUp.ANSWER, key, name)
        elif after is not None and after.top != before.top:
            self.wake(WakeUp.STREAM, key, name)

    def _wake_taken(self) -> None:
        """Wake the readers that another replica has superseded, unless they have come back meanwhile."""
        taken, self._taken = self._taken, []
        for key, stream in taken:
            if not self.reads(key, stream):
                self.wake(WakeUp.TAKEN, key, stream)

    def opened_here(self, key: str, numbers: bytes, fields: Mapping[str, bytes], *, registered: bool) -> None:
        """Remember a session that this process has created."""
        if key in self._entries:
            self._discard(self._entries[key])
        entry = self._entry(key)
        if registered:
            entry.registered, entry.writer = self.me, self._writer()
        self._replace(entry, None, SharedDocument(numbers, fields))
        self._weigh(entry)
        # Its client may come to another process next.
        entry.shy = 1

    def _forget(self, entry: KnownSession) -> None:
        """The session does not exist any more."""
        had_work = entry.has_work(self.me) and (entry.doc or entry.last) is not None
        entry.doc = entry.last = None
        for stream in entry.running:
            self._recent.forget(entry.key, stream)
        entry.running.clear()
        entry.asks.clear()
        entry.acknowledged = entry.number = entry.doubted = 0
        entry.registered, entry.lost = "", None
        if had_work:
            self.wake(WakeUp.CLOSED, entry.key, "")

    async def _drop(self, key: str, error: Exception) -> None:
        self._observer.note("store.poisoned", session=key[:8], error=error)
        await self.poisoned(key, error)
        if key in self._entries:
            self._discard(self._entries[key])
        self.wake(WakeUp.CLOSED, key, "")

    async def _learn_more(
        self, entry: KnownSession, doc: SharedDocument, missing: NeedsAll | NeedsIndex, streams: set[str]
    ) -> None:
        """Read what a rule needs: all of the session, or the tags and sizes of the events of a stream."""
        if isinstance(missing, NeedsIndex):
            streams.add(missing.stream)
            if await self.learn_indexes(entry.key, doc, streams):
                return
        entry.unknown()

    async def learn_indexes(self, key: str, doc: SharedDocument, streams: Iterable[str]) -> bool:
        """Undo the changes of the rules, and read the tags and sizes of the events of streams.

        False: a log was written meanwhile.

        `streams` are all that the rules of this round have needed so far, because an undo forgets the indexes of the
        logs that the rules have changed: with one of two in turn the rules would never come to their end.
        """
        doc.undo()
        for stream in streams:
            log = doc.logs.stored(stream)
            if log is not None and log.index is None and not log.set_index(await self.sizes(key, stream)):
                return False
        return True

    def _writer(self) -> str:
        """Return the name under which this process numbers its commits."""
        return f"{self.me}/{self._name}"

    def _learn(self, entry: KnownSession, doc: SharedDocument, reply: Stale) -> None:
        """Take the fields that others have changed."""
        was = {name: doc.stored_entry(name) for name in reply.fields if name[:2] in {"x:", "a:", "l:"}}
        doc.learn(reply.numbers, reply.fields)
        for name, value in was.items():
            if value is not None:
                self._wake_for(entry.key, doc.table_of(name), name[2:], value, doc.stored_entry(name))

    # Wake-ups that were lost

    async def look_again(self) -> None:
        """Read the sessions that have work here again, and wake everything that had no wake-up."""
        for kind in (WakeUp.FORWARD, WakeUp.NEWS):
            self.wake(kind, "", "")
        keys = [key for key, entry in self._entries.items() if entry.has_work(self.me)]
        for start in range(0, len(keys), _AT_ONCE):
            await asyncio.gather(*(self.look_at(key) for key in keys[start : start + _AT_ONCE]))

    async def look_at(self, key: str) -> None:
        """Read a session again that has work here."""
        if key in self._entries:
            with suppress(StoreError):
                await self.apply(key, None, nothing)

    def reads(self, key: str, stream: str) -> bool:
        """Return True if the reader of a stream is here."""
        entry = self._entries.get(key)
        doc = None if entry is None else entry.doc or entry.last
        exchange = None if doc is None else doc.tables["exchanges"].stored(stream)
        return exchange is not None and exchange.reader == self.me

    def closed_elsewhere(self, key: str) -> None:
        """Another process has closed a session."""
        entry = self._entries.get(key)
        if entry is not None and not entry.is_busy:
            self._forget(entry)
            self._discard(entry)
