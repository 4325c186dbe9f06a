"""The documents of the memory store, and their indexes: by key, principal, deadline, end of a stream, and subscription.

A rule changes the document itself, so the commit of a command only carries the changes over to the indexes (`applied`).
"""

import heapq
from collections import defaultdict
from collections.abc import Callable
from math import inf
from typing import Final

from limpet.config import Limits
from limpet.core.empty_table import EMPTY
from limpet.core.ledger import Account, Charge, encoded
from limpet.core.lifecycle import SessionInput
from limpet.core.records import Closed, Ending, Refusal, SessionRecord
from limpet.core.rules.document import Document, Index
from limpet.core.rules.life import close, is_crowded
from limpet.core.stream import Position, StreamPage
from limpet.errors import SessionGone
from limpet.stores.backend import GONE, P, R, Rule, Why
from limpet.stores.base import LINGER_SHARE, OnWake, SessionCommands
from limpet.stores.kept import Kept
from limpet.stores.memory.lingering import Lingering
from limpet.stores.memory.state import KeptFields

STREAM_BYTES: Final = 1_536
"""The memory of a stream or a kept answer besides its bytes (`python -m tests.attacks.costs`: about 1,000)."""
EXCHANGE_BYTES: Final = 512
"""The memory of an exchange without a log: of the end of an answer that was dropped (`python -m
tests.attacks.costs`: about 400)."""
_SPARE_HINTS: Final = 64
"""The number of hints of closed sessions that may always stay in the heap."""


class MemoryDocument(Document):
    """A document, its state, and the numbers of it that the indexes of the store have counted."""

    __slots__ = ("charge", "counted", "counted_kept", "listed", "state_fields")

    def __init__(self, record: SessionRecord, now: float) -> None:
        super().__init__(record, now)
        self.listed: float = inf
        """Its hint in the heap."""
        self.counted: int = 0
        self.counted_kept: int = 0
        self.charge: Charge | None = None
        """The memory of its streams and kept answers."""
        self.state_fields: KeptFields | None = None


class MemoryBackend(SessionCommands):
    """Documents in the dicts of one process."""

    now: Callable[[], float]
    wake: OnWake
    _kept: Kept

    def __init__(self, limits: Limits, me: str) -> None:
        self._limits = limits
        self.me = me
        self._sessions: dict[str, MemoryDocument] = {}
        self._principals: defaultdict[str, dict[str, MemoryDocument]] = defaultdict(dict)
        self._due: list[tuple[float, str]] = []
        self._bytes = 0
        self.over: int = -limits.streams_bytes
        self._presser: Account | None = None
        """The principal or address that uses more memory of the process than its share, if the last change has shown
        one."""
        self._finished: dict[tuple[str, str], None] = {}
        """Complete streams of all sessions, oldest first."""
        self._subscribers: defaultdict[str, set[str]] = defaultdict(set)
        self._lingering = Lingering(self.now, limits.streams_bytes // LINGER_SHARE)

    def forget_sessions(self) -> None:
        """Delete all documents and indexes."""
        self._sessions.clear()
        self._principals.clear()
        self._due.clear()
        self._finished.clear()
        self._subscribers.clear()
        self._lingering.clear()
        self._bytes = 0
        self.over = -self._limits.streams_bytes

    # Documents

    async def apply(self, key: str, absent: R, rule: Rule[P, R], *args: P.args, **more: P.kwargs) -> R:
        """Apply a rule to the document itself: no other process can change it, and nothing waits meanwhile."""
        doc = self._sessions.get(key)
        if doc is None:
            if absent is GONE:
                raise SessionGone
            return absent
        result = rule(doc, *args, **more)
        self.applied(doc)
        return result

    def applied(self, doc: MemoryDocument) -> None:
        """Carry the changes of a document over to the indexes, and send its wake-ups."""
        if doc.size != doc.counted:
            self._bytes += doc.size - doc.counted
            doc.counted = doc.size
            self.over = self._bytes - self._limits.streams_bytes
            if doc.charge is not None:
                self._charge(doc, doc.charge)
        if doc.hint < doc.listed:
            self._list(doc)
        if doc.told:
            told, doc.told = doc.told, ()
            for what, name, _ in told:
                if isinstance(what, Index):
                    self._index(doc, what, name)
                else:
                    self.wake(what, doc.record.key, name)
        if not doc.ids:
            # A dict without entries keeps the room of its former ones.
            doc.ids = EMPTY

    def _charge(self, doc: MemoryDocument, charge: Charge) -> None:
        # As `encoded`, without a call.
        charge.set(
            doc.size + (doc.size >> 1) + len(doc.logs) * STREAM_BYTES + len(doc.exchanges) * EXCHANGE_BYTES
        )
        owner = charge.account.owner
        is_over = owner.over > max(self.over, 0)
        self._presser = owner if is_over else None
        self.over = owner.over if is_over else self.over

    def charge_to(self, key: str, account: Account) -> None:
        """Charge the streams and kept answers of a session to an account.

        They are charged without a question. If the owner of the account uses more than its share, its oldest complete
        streams are forgotten.
        """
        if (doc := self._sessions.get(key)) is not None:
            doc.charge = account.open()

    def _list(self, doc: MemoryDocument) -> None:
        """Push the hint of a session."""
        doc.listed = doc.hint
        heapq.heappush(self._due, (doc.hint, doc.record.key))
        if len(self._due) > 2 * len(self._sessions) + _SPARE_HINTS:
            self._due = [(one.listed, key) for key, one in self._sessions.items()]
            heapq.heapify(self._due)

    def _index(self, doc: MemoryDocument, what: Index, name: str) -> None:
        key = doc.record.key
        match what:
            case Index.FINISHED:
                self._finished[key, name] = None
            case Index.FORGOTTEN:
                self._finished.pop((key, name), None)
            case Index.SUBSCRIBED:
                self._subscribers[name].add(key)
                self._count_kept(doc)
            case Index.UNSUBSCRIBED:
                self._forget_subscriber(name, key)
                self._count_kept(doc)

    def _count_kept(self, doc: MemoryDocument) -> None:
        self._kept.add(doc.record.principal, doc.kept - doc.counted_kept)
        doc.counted_kept = doc.kept

    def _forget_subscriber(self, uri: str, key: str) -> None:
        keys = self._subscribers[uri]
        keys.discard(key)
        if not keys:
            del self._subscribers[uri]

    async def open(self, record: SessionRecord, *, evict: bool) -> list[Closed] | Refusal:
        return self.open_nowait(record, evict=evict)

    def open_nowait(self, record: SessionRecord, *, evict: bool) -> list[Closed] | Refusal:
        if record.key in self._sessions:
            return []
        evicted: list[Closed] = []
        own = self._principals.get(record.principal, {}) if evict else {}
        if is_crowded(self._limits, len(self._sessions), len(own)):
            idle = [doc for doc in own.values() if not doc.running and not doc.readers]
            if not idle:
                return Refusal.FULL
            oldest = min(idle, key=lambda doc: doc.touched)
            evicted.append(self.end_nowait(oldest, SessionInput.EVICTED))
        doc = MemoryDocument(record, self.now())
        # Eviction may have removed the principal's entry: look it up again.
        self._sessions[record.key] = self._principals[record.principal][record.key] = doc
        doc.schedule()
        self.applied(doc)
        return evicted

    async def end(self, key: str, why: Why, ending: Ending | None = None) -> Closed | None:
        doc = self._sessions.get(key)
        if doc is None:
            return None
        reason = why(doc)
        if reason is not None:
            return self.end_nowait(doc, reason, ending)
        self.applied(doc)
        return None

    def end_nowait(self, doc: MemoryDocument, reason: SessionInput, ending: Ending | None = None) -> Closed:
        """Close and forget a session."""
        left = close(doc, reason, ending, self.at())
        record = doc.record
        self._lingering.sweep()
        if doc.charge is not None:
            doc.charge.set(sum(encoded(log.bytes) + STREAM_BYTES for log in left.values()))
        for name, log in left.items():
            self._lingering.keep(record.key, name, log, doc.charge)
        del self._sessions[record.key]
        own = self._principals[record.principal]
        del own[record.key]
        if not own:
            del self._principals[record.principal]
        for uri in doc.subscriptions:
            self._forget_subscriber(uri, record.key)
        for name in doc.finished:
            self._finished.pop((record.key, name), None)
        doc.size = doc.kept = 0
        doc.charge = None
        doc.hint = inf
        self._count_kept(doc)
        self.applied(doc)
        return Closed(record, reason)

    # Logs and indexes

    async def read(
        self, key: str, stream: str, cursor: Position, max_events: int, max_bytes: int
    ) -> StreamPage | None:
        doc = self._sessions.get(key)
        log = doc.logs.get(stream) if doc is not None and stream in doc.exchanges else None
        if log is None and (doc is None or stream not in doc.exchanges):
            log = self._lingering.get(key, stream)
        return None if log is None else log.read(cursor, max_events, max_bytes)

    async def due(self) -> list[str]:
        """Take the sessions whose hint has passed out of the heap."""
        now = self.now()
        keys: list[str] = []
        while self._due and self._due[0][0] <= now:
            hint, key = heapq.heappop(self._due)
            doc = self._sessions.get(key)
            if doc is not None and doc.listed == hint:
                doc.listed = inf
                keys.append(key)
        return keys

    async def sessions(self, principal: str | None = None) -> list[str]:
        return list(self._sessions if principal is None else self._principals.get(principal, ()))

    async def subscribers(self, uri: str) -> list[str]:
        return list(self._subscribers.get(uri, ()))

    async def oldest_finished(self) -> tuple[str, str] | None:
        """Return the oldest complete stream without a reader.

        Only of the client that uses too much memory, if there is one.
        """
        for key, name in self._finished:
            doc = self._sessions[key]
            is_other = self._presser is not None and (
                doc.charge is None or doc.charge.account.owner is not self._presser
            )
            if not is_other and not doc.exchanges[name].reader:
                return key, name
        return None

    # Totals

    async def spare_kept(self, key: str) -> int:
        doc = self._sessions.get(key)
        return 0 if doc is None else self._kept.spare(doc.record.principal)
