"""A shared backend in plain dicts: it does in Python exactly what `stores/shared/shelf.py` says. Several stores may share one `Shelves`."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import inf

from msgspec.structs import replace

from holdfast.config import Limits
from holdfast.core.lifecycle import SessionInput
from holdfast.core.records import Closed, Refusal, SessionRecord, Status, WakeUp
from holdfast.core.rules.document import Index, Told
from holdfast.core.rules.life import is_crowded
from holdfast.core.stream import Event, Position
from holdfast.errors import SessionGone
from holdfast.ports import Clock, Observer, Random, SilentObserver, SystemRandom
from holdfast.stores.base import LINGER_SECONDS, LINGER_SHARE, OneProcess, Totals
from holdfast.stores.memory.state import Cells, MemoryState
from holdfast.stores.memory.tasks import MemoryTasks, TaskMethods
from holdfast.stores.shared.commit import (
    PLACES,
    Commit,
    Done,
    Fate,
    LostWrites,
    NewEvent,
    Reply,
    Stale,
    fate,
    merged,
    unpack,
)
from holdfast.stores.shared.draft import SharedDocument, opened
from holdfast.stores.shared.entry import Entry
from holdfast.stores.shared.sessions import SharedSessions
from holdfast.stores.shared.shelf import Erasure, Piece, Stored


class Session:
    """A session as it is stored."""

    def __init__(self, record: SessionRecord, numbers: bytes, fields: Mapping[str, bytes]) -> None:
        self.record: SessionRecord = record
        self.numbers: bytes = numbers
        self.fields: dict[str, bytes] = dict(fields)
        self.logs: defaultdict[str, dict[int, tuple[int, bytes]]] = defaultdict(dict)
        self.cells: Cells = Cells(record.principal)

    def add(self, events: Sequence[NewEvent]) -> None:
        """Add events to logs."""
        for event in events:
            log = self.logs[event.stream]
            for seq in [seq for seq in log if seq >= event.seq]:
                del log[seq]
            log[event.seq] = event.tag, event.data

    def commit(self, commit: Commit) -> Reply:
        """Compare and apply."""
        if commit.exact == self.numbers:
            return self._apply(commit, commit.after)
        verdict = fate(commit, int(self.fields.get(f"o:{commit.writer}", 0)))
        if verdict is not Fate.APPLY:
            return Done(self.numbers, sent_before=True) if verdict is Fate.BEFORE else LostWrites()
        if commit.compare is None:
            return Stale(self.numbers, dict(self.fields))
        given = commit.compare.items()
        differ = {name: self.fields.get(name) for name, value in given if self.fields.get(name) != value}
        numbers = merged(commit, self.numbers)
        if differ or numbers is None:
            return Stale(self.numbers, differ)
        return self._apply(commit, numbers)

    def _apply(self, commit: Commit, numbers: bytes) -> Done:
        """Apply a commit."""
        self.numbers = numbers
        self.fields |= commit.put
        for name in commit.delete:
            self.fields.pop(name, None)
        self.fields[f"o:{commit.writer}"] = str(commit.number).encode()
        for stream in commit.drop:
            self.logs.pop(stream, None)
        self.add(commit.events)
        for stream, until in commit.cut.items():
            for seq in [seq for seq in self.logs[stream] if seq <= until]:
                del self.logs[stream][seq]
        return Done(numbers)


class Shelves:
    """The data that several stores share."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.due: dict[str, float] = {}
        self.kept: Counter[str] = Counter()
        """The bytes of the subscriptions of each session."""
        self.subscribers: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self.left: dict[tuple[str, str], tuple[float, bytes, dict[int, tuple[int, bytes]]]] = {}
        """Streams of closed sessions: until when, their heads, their events."""


class DictStore(SharedSessions, MemoryState, TaskMethods, OneProcess):
    """A store over `Shelves`."""

    now: Callable[[], float]

    def __init__(
        self,
        limits: Limits = Limits(),
        clock: Clock | None = None,
        shelves: Shelves | None = None,
        random: Random | None = None,
        observer: Observer | None = None,
    ) -> None:
        OneProcess.__init__(self, clock)
        self._observer = observer or SilentObserver()
        self.me: str = f"{self.replica}.1"
        SharedSessions.__init__(self, limits, random or SystemRandom())
        MemoryState.__init__(self, limits, self.now)
        self._tasks = MemoryTasks(limits, self.now)
        self.shelves: Shelves = shelves or Shelves()

    # Documents and logs

    async def stored(self, key: str, known: bytes = b"") -> Stored | None:
        """Return a session."""
        session = self.shelves.sessions.get(key)
        if session is None:
            return None
        return Stored(session.numbers, None if session.numbers == known else dict(session.fields))

    async def create(self, record: SessionRecord, numbers: bytes, fields: Mapping[str, bytes]) -> bool:
        """Keep a new session."""
        made = Session(record, numbers, fields)
        return self.shelves.sessions.setdefault(record.key, made) is made

    async def commit(self, key: str, commit: Commit) -> Reply:
        """Compare and apply."""
        session = self.shelves.sessions.get(key)
        return None if session is None else session.commit(commit)

    async def remove(self, key: str, erasure: Erasure) -> bool:
        """End a session."""
        session = self.shelves.sessions.get(key)
        if session is None or session.numbers != erasure.exact:
            return False
        session.add(erasure.events)
        until = self.now() + LINGER_SECONDS
        for stream, head in erasure.left.items():
            self.shelves.left[key, stream] = until, head, session.logs[stream]
        most = self._limits.streams_bytes // LINGER_SHARE
        while sum(len(data) for _, _, log in self.shelves.left.values() for _, data in log.values()) > most:
            del self.shelves.left[next(iter(self.shelves.left))]
        del self.shelves.sessions[key]
        self.shelves.due.pop(key, None)
        for uri in erasure.subscriptions:
            self.shelves.subscribers[uri].pop(key, None)
        session.cells.keep(-session.cells.kept, self._kept)
        self._kept.add(erasure.record.principal, -self.shelves.kept.pop(key, 0))
        return True

    async def tell(self, key: str, told: Sequence[tuple[WakeUp, str, str]]) -> None:
        """Do nothing: there is one replica."""

    async def piece(self, key: str, stream: str, seq: int, max_events: int, max_bytes: int) -> Piece | None:
        """Return a part of a log."""
        session = self.shelves.sessions.get(key)
        head = None if session is None else session.fields.get(f"l:{stream}")
        log = {} if session is None else session.logs[stream]
        if head is None:
            until, head, log = self.shelves.left.get((key, stream), (-inf, b"", {}))
            if until <= self.now():
                return None
        events: list[Event] = []
        size = 0
        for number, (tag, data) in log.items():
            size += len(data) if number > seq else 0
            if number <= seq or (events and (size > max_bytes or len(events) >= max_events)):
                continue
            events.append(Event(Position(number, tag), data))
        return Piece(head, log[seq][0] if seq in log else None, events)

    async def sizes(self, key: str, stream: str) -> Sequence[tuple[int, int, int]]:
        """Return the events of a stream without their data."""
        log = self.shelves.sessions[key].logs[stream]
        return [(seq, tag, len(data)) for seq, (tag, data) in log.items()]

    # Sessions

    async def open(self, record: SessionRecord, *, evict: bool) -> list[Closed] | Refusal:
        """Keep a new session."""
        sessions = self.shelves.sessions
        if record.key in sessions:
            return []
        evicted: list[Closed] = []
        own = await self.listed(record.principal) if evict else []
        if is_crowded(self._limits, len(sessions), len(own)):
            docs = [doc for key in own if (doc := await self.load(key)) is not None]
            idle = [doc for doc in docs if not doc.running and not doc.readers]
            if not idle:
                return Refusal.FULL
            oldest = min(idle, key=lambda doc: doc.touched).record.key
            closed = await self.close(oldest, SessionInput.EVICTED)
            evicted += [] if closed is None else [closed]
        numbers, fields = opened(record, self.now(), self._mark)
        await self.create(record, numbers, fields)
        self.shelves.due[record.key] = unpack(numbers)[PLACES["hint"]]
        return evicted

    async def register(self, key: str) -> None:
        """Do nothing: there is one replica."""

    async def applied(self, entry: Entry, doc: SharedDocument, told: list[Told]) -> None:
        """Change the indexes."""
        self.shelves.due[entry.key] = entry.reported = doc.hint
        entry.size = doc.size
        self._kept.add(doc.record.principal, doc.kept - self.shelves.kept[entry.key])
        self.shelves.kept[entry.key] = doc.kept
        for what, name, _ in told:
            if what is Index.SUBSCRIBED:
                self.shelves.subscribers[name][entry.key] = None
            elif what is Index.UNSUBSCRIBED:
                self.shelves.subscribers[name].pop(entry.key, None)
        self.over: int = self._bytes() - self._limits.streams_bytes

    def _bytes(self) -> int:
        return sum(int(unpack(one.numbers)[PLACES["size"]]) for one in self.shelves.sessions.values())

    async def poisoned(self, key: str, error: Exception) -> None:
        """Forget a session."""
        self.shelves.sessions.pop(key, None)

    async def due(self) -> list[str]:
        """Return the sessions whose hint has passed."""
        keys = [key for key, hint in self.shelves.due.items() if hint <= self.now()]
        for key in keys:
            self.shelves.due[key] = inf
        return keys

    async def listed(self, principal: str | None = None) -> list[str]:
        """Return the keys of sessions."""
        sessions = self.shelves.sessions.items()
        return [key for key, one in sessions if principal is None or one.record.principal == principal]

    async def subscribers(self, uri: str) -> list[str]:
        """Return the sessions that have subscribed."""
        return list(self.shelves.subscribers[uri])

    async def oldest_finished(self) -> tuple[str, str] | None:
        """Return the oldest complete stream without a reader."""
        found: list[tuple[float, str, str]] = []
        for key in list(self.shelves.sessions):
            doc = await self.load(key)
            if doc is not None:
                found += [
                    (ended, key, name)
                    for name, ended in doc.finished.items()
                    if not doc.exchanges[name].reader
                ]
        return min(found)[1:] if found else None

    async def spare_kept(self, key: str) -> int:
        """Return the kept bytes that the principal of a session may still add."""
        session = self.shelves.sessions.get(key)
        return 0 if session is None else self._kept.spare(session.record.principal)

    async def totals(self) -> Totals:
        """Return the totals of all sessions."""
        numbers = [unpack(one.numbers) for one in self.shelves.sessions.values()]
        detached = sum(one[PLACES["state"]] == 1 for one in numbers)
        return Totals(len(numbers), detached, self._bytes(), self._kept.bytes)

    async def look(self, key: str) -> Status | None:
        """Return an open session."""
        status = await super().look(key)
        cells = self.shelves.sessions[key].cells if status is not None else None
        return (
            None
            if status is None or cells is None
            else replace(status, kept_bytes=status.kept_bytes + cells.kept)
        )

    async def sweep(self) -> list[Closed]:
        """Close the sessions that are due, and forget everything else whose time is over."""
        self._tasks.sweep()
        self._scopes.sweep()
        return await super().sweep()

    async def aclose(self) -> None:
        """Forget everything here."""
        self.forget_all()

    def _cells(self, scope: str) -> Cells:
        if (cells := self._scopes.get(scope)) is not None:
            return cells
        if (session := self.shelves.sessions.get(scope)) is None:
            raise SessionGone
        return session.cells
