"""A complete backend in plain dicts: it does in Python exactly what `stores/shared/shelf.py` says.

`DictStore` is a store for one process, `DictReplica` one of several replicas that share a `Shelves`. It has no indexes:
it looks at all sessions. docs/stores.md shows this file.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import inf
from typing import cast

from msgspec import Struct
from msgspec.structs import replace
from typing_extensions import override

from limpet.config import Limits
from limpet.core.lifecycle import SessionInput
from limpet.core.records import Closed, Orphan, Refusal, SessionRecord, Status, WakeUp
from limpet.core.rules.life import is_crowded
from limpet.core.rules.tasks import StoredTask, TaskBounds
from limpet.core.stream import Event, Position
from limpet.errors import SessionGone
from limpet.ports import Clock, Random, SilentObserver, SystemRandom
from limpet.stores.base import (
    LINGER_SECONDS,
    LINGER_SHARE,
    UNREPORTED_SECONDS,
    Announced,
    Forwarded,
    OneProcess,
    OnWake,
    OrphanTask,
    Totals,
    is_inbox_full,
    lease_ended,
)
from limpet.stores.base.tasks import Swapped
from limpet.stores.kept import Kept
from limpet.stores.memory.state import Areas, KeptFields, MemoryState
from limpet.stores.memory.tasks import MemoryTasks, TaskMethods
from limpet.stores.shared.commit import (
    PLACES,
    Commit,
    CommitFate,
    Done,
    LostWrites,
    Reply,
    Stale,
    fate,
    merged,
    unpack,
)
from limpet.stores.shared.draft import opened
from limpet.stores.shared.fields import TABLES, decode_value
from limpet.stores.shared.sessions import SharedSessions
from limpet.stores.shared.shelf import Erasure, NotKept, Piece, Stored


class DictSession:
    """A session as it is stored: numbers, fields, logs and state."""

    def __init__(self, record: SessionRecord, numbers: bytes, fields: Mapping[str, bytes]) -> None:
        self.record: SessionRecord = record
        self.numbers: bytes = numbers
        self.fields: dict[str, bytes] = dict(fields)
        self.logs: defaultdict[str, dict[int, tuple[int, bytes]]] = defaultdict(dict)
        """The events of each stream: number, tag, data."""
        self.state: KeptFields = KeptFields(record.principal)

    def number(self, name: str) -> float:
        """Return one of the numbers."""
        return float(unpack(self.numbers)[PLACES[name]])

    def add(self, events: Mapping[str, Sequence[Event]]) -> None:
        """Add events to logs."""
        for stream, added in events.items():
            self.logs[stream].update({seq: (tag, data) for (seq, tag), data in added})

    def commit(self, commit: Commit, spare: int) -> Reply:
        """Compare and apply; `spare`: the kept bytes that the principal may still add."""
        if commit.exact == self.numbers:
            return self._apply(commit, commit.after, spare)
        verdict = fate(commit, int(self.fields.get(f"o:{commit.writer}", 0)))
        if verdict is not CommitFate.APPLY:
            return Done(self.numbers, sent_before=True) if verdict is CommitFate.BEFORE else LostWrites()
        if commit.compare is None:
            return Stale(self.numbers, dict(self.fields))
        given = commit.compare.items()
        differ = {name: self.fields.get(name) for name, value in given if self.fields.get(name) != value}
        numbers = merged(commit, self.numbers)
        if differ or numbers is None:
            return Stale(self.numbers, differ)
        return self._apply(commit, numbers, spare)

    def _apply(self, commit: Commit, numbers: bytes, spare: int) -> Done:
        if commit.keeps > max(spare, 0):
            raise NotKept
        self.numbers = numbers
        self.fields |= commit.put
        for name in commit.delete:
            self.fields.pop(name, None)
        self.fields[f"o:{commit.writer}"] = b"%d" % commit.number
        for stream in commit.drop:
            self.logs.pop(stream, None)
        self.add(commit.events)
        for stream, until in commit.cut.items():
            for seq in [seq for seq in self.logs[stream] if seq <= until]:
                del self.logs[stream][seq]
        return Done(numbers)


class Lease(Struct):
    """The lease of an incarnation. `until` is 0 after it was declared dead."""

    until: float
    seconds: float
    renewed: float
    since: float
    """Since when it has renewed without a gap of half a lease."""


class Shelves:
    """The data that several replicas share."""

    def __init__(self, limits: Limits = Limits(), clock: Clock | None = None) -> None:
        self.one: OneProcess = OneProcess(clock)
        """Announcements and secrets."""
        self.sessions: dict[str, DictSession] = {}
        self.left: dict[tuple[str, str], tuple[float, bytes, dict[int, tuple[int, bytes]]]] = {}
        """Streams of closed sessions: until when, their heads, their events."""
        self.kept: Kept = Kept(limits)
        self.areas: Areas = Areas(limits, self.one.now, self.kept)
        self.tasks: MemoryTasks = MemoryTasks(self.one.now)
        self.closings: dict[str, tuple[float, Closed]] = {}
        """Closings that were not reported, each with the time of its last report to a caller."""
        self.leases: dict[str, Lease] = {}
        self.incarnations: int = 0
        self.wakes: dict[str, OnWake] = {}
        """The replicas that listen."""
        self.inboxes: defaultdict[str, dict[str, tuple[float, bytes]]] = defaultdict(dict)
        self.notices: dict[str, tuple[float, bytes]] = {}


class DictStore(SharedSessions, MemoryState, TaskMethods, OneProcess):
    """A store for one process."""

    now: Callable[[], float]

    def __init__(
        self, limits: Limits = Limits(), clock: Clock | None = None, shelves: Shelves | None = None
    ) -> None:
        OneProcess.__init__(self, clock)
        SharedSessions.__init__(self, limits, cast("Random", SystemRandom()))
        self._observer = SilentObserver()
        self.me: str = f"{self.replica}.0"
        self.shelves: Shelves = shelves or Shelves(limits, clock)
        self._kept, self._areas, self._tasks = self.shelves.kept, self.shelves.areas, self.shelves.tasks

    # Documents and logs

    @override
    async def stored(self, key: str, known: bytes = b"") -> Stored | None:
        session = self.shelves.sessions.get(key)
        if session is None:
            return None
        return Stored(session.numbers, None if session.numbers == known else dict(session.fields))

    @override
    async def create(self, record: SessionRecord, numbers: bytes, fields: Mapping[str, bytes]) -> bool:
        made = DictSession(record, numbers, fields)
        return self.shelves.sessions.setdefault(record.key, made) is made

    @override
    async def commit(self, key: str, commit: Commit) -> Reply:
        session = self.shelves.sessions.get(key)
        if session is None:
            return None
        before, kept = session.numbers, session.number("kept")
        reply = session.commit(commit, self._kept.spare(session.record.principal))
        if session.numbers != before:
            self._kept.add(session.record.principal, int(session.number("kept") - kept))
            self.over: int = self._bytes() - self._limits.streams_bytes
            await self.tell(key, commit.told)
        return reply

    def _bytes(self) -> int:
        return int(sum(session.number("size") for session in self.shelves.sessions.values()))

    @override
    async def remove(self, key: str, erasure: Erasure) -> bool:
        session = self.shelves.sessions.get(key)
        if session is None or session.numbers != erasure.exact:
            return erasure.event in self.shelves.closings
        session.add(erasure.events)
        left, until = self.shelves.left, self.now() + LINGER_SECONDS
        left.update({(key, name): (until, head, session.logs[name]) for name, head in erasure.left.items()})
        most = self._limits.streams_bytes // LINGER_SHARE
        while sum(len(data) for _, _, log in left.values() for _, data in log.values()) > most:
            del left[next(iter(left))]
        self._erase(key, session)
        closed = Closed(erasure.record, erasure.reason, erasure.event)
        self.shelves.closings[erasure.event] = self.now(), closed
        replicas = {writer.rpartition(".")[0] for writer in erasure.writers} | {erasure.record.home}
        await self.tell(
            key, [*erasure.told, *((WakeUp.CLOSED, "", one) for one in replicas - {self.replica})]
        )
        return True

    def _erase(self, key: str, session: DictSession) -> None:
        del self.shelves.sessions[key]
        self._kept.add(session.record.principal, -int(session.number("kept")) - session.state.kept)

    @override
    async def poisoned(self, key: str, error: Exception) -> None:
        if (session := self.shelves.sessions.get(key)) is not None:
            self._erase(key, session)

    @override
    async def tell(self, key: str, told: Sequence[tuple[WakeUp, str, str]]) -> None:
        for kind, name, replica in told:
            if (wake := self.shelves.wakes.get(replica)) is not None:
                wake(kind, key, name)

    @override
    async def piece(self, key: str, stream: str, seq: int, max_events: int, max_bytes: int) -> Piece | None:
        session = self.shelves.sessions.get(key)
        if session is not None and f"l:{stream}" in session.fields:
            head, log = session.fields[f"l:{stream}"], session.logs[stream]
        else:
            until, head, log = self.shelves.left.get((key, stream), (-inf, b"", {}))
            if until <= self.now():
                return None
        events: list[Event] = []
        size = 0
        for number, (tag, data) in log.items():
            size += len(data) if number > seq else 0
            if number > seq and (not events or (size <= max_bytes and len(events) < max_events)):
                events.append(Event(Position(number, tag), data))
        return Piece(head, log[seq][0] if seq in log else None, events)

    @override
    async def sizes(self, key: str, stream: str) -> Sequence[tuple[int, int, int]]:
        session = self.shelves.sessions.get(key)
        log = session.logs[stream] if session is not None else {}
        return [(seq, tag, len(data)) for seq, (tag, data) in log.items()]

    # Places, indexes, totals

    async def open(self, record: SessionRecord, *, evict: bool) -> list[Closed] | Refusal:
        """Keep a new session; if the principal or the store has too many, end the principal's longest idle one."""
        if record.key in self.shelves.sessions:
            return []
        evicted: list[Closed] = []
        own = await self.sessions(record.principal) if evict else []
        if is_crowded(self._limits, len(self.shelves.sessions), len(own)):
            docs = [doc for key in own if (doc := await self.load(key)) is not None]
            idle = [doc for doc in docs if not doc.running and not doc.readers]
            if not idle:
                return Refusal.FULL
            oldest = min(idle, key=lambda doc: doc.touched).record.key
            closed = await self.close(oldest, SessionInput.EVICTED)
            evicted += [] if closed is None else [closed]
        await self.create(record, *opened(record, self.now(), self._mark))
        return evicted

    @override
    async def register(self, key: str) -> None:
        """Do nothing: there is one replica."""

    async def due(self) -> list[str]:
        """Return the sessions whose hint has passed."""
        return [key for key, one in self.shelves.sessions.items() if one.number("hint") <= self.now()]

    async def sessions(self, principal: str | None = None) -> list[str]:
        """Return the keys of sessions."""
        sessions = self.shelves.sessions.items()
        return [key for key, one in sessions if principal is None or one.record.principal == principal]

    async def subscribers(self, uri: str) -> list[str]:
        """Return the sessions that have subscribed."""
        sessions = self.shelves.sessions.items()
        return [key for key, one in sessions if uri in decode_value("subscriptions", one.fields.get("u"))]

    async def oldest_finished(self) -> tuple[str, str] | None:
        """Return the complete stream without a reader that ended first."""
        return min(self._finished(), default=(b"", None))[1]

    def _finished(self) -> Iterator[tuple[bytes, tuple[str, str]]]:
        for key, session in self.shelves.sessions.items():
            for name, ended in session.fields.items():
                if (
                    name[:2] == "f:"
                    and not TABLES["exchanges"].decode(session.fields["x:" + name[2:]]).reader
                ):
                    yield ended, (key, name[2:])

    async def totals(self) -> Totals:
        """Return the totals of all sessions."""
        sessions = self.shelves.sessions.values()
        detached = sum(session.number("state") == 1 for session in sessions)
        return Totals(len(sessions), detached, self._bytes(), self._kept.bytes)

    @override
    async def look(self, key: str) -> Status | None:
        status, session = await super().look(key), self.shelves.sessions.get(key)
        if status is None or session is None:
            return None
        return replace(status, kept_bytes=status.kept_bytes + session.state.kept)

    @override
    async def sweep(self) -> list[Closed]:
        self._tasks.sweep()
        self._areas.sweep()
        return await super().sweep()

    async def aclose(self) -> None:
        """Forget everything that this process knows."""
        self.forget_all()

    @override
    def _fields(self, area: str) -> KeptFields:
        if (fields := self._areas.get(area)) is not None:
            return fields
        if (session := self.shelves.sessions.get(area)) is None:
            raise SessionGone
        return session.state


class DictReplica(DictStore):
    """One of several replicas."""

    is_shared = True
    wake: OnWake
    me: str

    def __init__(self, limits: Limits, clock: Clock, shelves: Shelves, replica: str) -> None:
        self.replica: str = replica
        super().__init__(limits, clock, shelves)

    # Wake-ups

    @override
    def bind(self, on_wake: OnWake) -> None:
        self.shelves.wakes[self.replica] = on_wake
        self.wake: OnWake = self._wake

    def _wake(self, kind: WakeUp, key: str, name: str) -> None:
        """Wake this replica; all of them for a task or an announcement."""
        for replica, wake in self.shelves.wakes.items():
            if replica == self.replica or kind in {WakeUp.TASK, WakeUp.NEWS}:
                wake(kind, key, name)

    @override
    async def aclose(self) -> None:
        await super().aclose()
        self.shelves.wakes.pop(self.replica, None)

    # Leases, and the work of dead replicas

    def _lease(self, owner: str) -> Lease | None:
        lease = self.shelves.leases.get(owner)
        return lease if lease is not None and lease.until else None

    def _must_live(self) -> str:
        if self._lease(self.me) is None and not self.me.endswith(".0"):
            raise lease_ended()
        return self.me

    @override
    async def renew(self, seconds: float) -> int:
        now, lease = self.now(), self._lease(self.me)
        if lease is None:
            self.shelves.incarnations += 1
            self.me: str = f"{self.replica}.{self.shelves.incarnations}"
            lease = self.shelves.leases[self.me] = Lease(0.0, seconds, now, now)
        if abs(now - lease.renewed) > seconds / 2:
            lease.since = now
        lease.until, lease.seconds, lease.renewed = now + seconds, seconds, now
        return int(self.me.rpartition(".")[2])

    @override
    async def release(self) -> None:
        if (lease := self._lease(self.me)) is not None:
            lease.until = 0.0

    @override
    async def replicas(self) -> dict[str, float]:
        leases, now = self.shelves.leases.items(), self.now()
        return {owner.rpartition(".")[0]: one.until - now for owner, one in leases if one.until > now}

    @override
    async def prove(self) -> None:
        if not self.me.endswith(".0") and self.replica not in await self.replicas():
            raise lease_ended()

    @override
    async def register(self, key: str) -> None:
        self._must_live()

    @override
    async def orphans(self) -> list[Orphan]:
        now, mine, leases = self.now(), self._lease(self.me), self.shelves.leases
        if mine and now - mine.since >= mine.seconds and abs(now - mine.renewed) <= mine.seconds / 2:
            for lease in leases.values():
                # A lease that was renewed in the future: the clock was set back.
                if lease.until <= now or lease.renewed - now > lease.seconds / 2:
                    lease.until = 0.0
        found: list[Orphan] = []
        for owner in [owner for owner, lease in leases.items() if not lease.until]:
            left = [await self.left_by(owner, key) for key in list(self.shelves.sessions)]
            found += [orphan for some in left for orphan in some or ()]
            if not any(left):
                del leases[owner]
        return found

    @override
    async def swap_task(
        self, key: str, before: StoredTask | None, after: StoredTask, most: TaskBounds | None
    ) -> Swapped:
        if before is None:
            self._must_live()
        return await super().swap_task(key, before, after, most)

    @override
    async def orphan_tasks(self, known: Collection[str] | None = None) -> list[OrphanTask]:
        def is_stray(task: OrphanTask) -> bool:
            return known is not None and task.owner == self.me and task.key not in known

        return [one for one in self._tasks.owned() if self._lease(one.owner) is None or is_stray(one)]

    # Between replicas

    @override
    async def forward(self, replica: str, name: str, payload: bytes, *, seconds: float) -> bool:
        inbox = self.shelves.inboxes[replica]
        if replica not in await self.replicas():
            return False
        if name not in inbox:
            if is_inbox_full([one for _, one in inbox.values()], payload):
                return False
            inbox[name] = self.now() + seconds, payload
        await self.tell("", [(WakeUp.FORWARD, "", replica)])
        return True

    @override
    async def inbox(self) -> list[Forwarded]:
        waiting = self.shelves.inboxes[self.replica].items()
        return [Forwarded(name, payload) for name, (until, payload) in waiting if until > self.now()]

    @override
    async def remove_forwarded(self, name: str, *, replica: str = "") -> bool:
        return self.shelves.inboxes[replica or self.replica].pop(name, None) is not None

    @override
    async def announce(self, name: str, event: bytes) -> None:
        await self.shelves.one.announce(name, event)
        self.wake(WakeUp.NEWS, "", "")

    @override
    async def announced(self, after: str) -> Announced:
        return await self.shelves.one.announced(after)

    @override
    async def secret(self, name: str, candidate: bytes, *, seconds: float) -> bytes:
        return await self.shelves.one.secret(name, candidate, seconds=seconds)

    @override
    async def post_notice(self, notice: bytes, *, seconds: float) -> list[bytes]:
        now, notices = self.now(), self.shelves.notices
        if notice:
            notices[self.replica] = now + seconds, notice
        return [
            value for replica, (until, value) in notices.items() if replica != self.replica and until > now
        ]

    @override
    async def closing_reported(self, closed: Closed) -> None:
        self.shelves.closings.pop(closed.event, None)

    @override
    async def unreported_closings(self) -> list[Closed]:
        now, closings = self.now(), self.shelves.closings
        late = [closed for at, closed in closings.values() if at <= now - UNREPORTED_SECONDS]
        closings.update({closed.event: (now, closed) for closed in late})
        return late
