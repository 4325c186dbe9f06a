"""A shared store for simulated replicas: one memory store holds the data, and each replica has a connection to it.

It keeps what `limpet.stores.base` says of replicas: owners, leases, orphans, inboxes, news, and wake-ups
that go where something waits. Every call is one step of the loop, so it is atomic.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Collection
from math import inf
from typing import Any, Final, cast

from msgspec.structs import replace
from typing_extensions import override

from limpet.config import Limits
from limpet.core.lifecycle import SessionInput
from limpet.core.rules.calls import reap
from limpet.core.rules.document import Index
from limpet.core.rules.readers import lose_readers
from limpet.core.rules.tasks import StoredTask, TaskBounds
from limpet.core.rules.turns import lose_turns
from limpet.core.stream import NewEvents, Position
from limpet.ports import Clock
from limpet.stores.base import (
    STANDALONE_FENCE,
    UNREPORTED_SECONDS,
    Attached,
    Claim,
    Claimed,
    Closed,
    Duplicate,
    Ending,
    Forwarded,
    OnWake,
    Orphan,
    OrphanTask,
    Refusal,
    Store,
    WakeUp,
    is_inbox_full,
)
from limpet.stores.base.replicas import lease_ended
from limpet.stores.base.tasks import Swapped
from limpet.stores.memory import MemoryStore
from limpet.stores.memory.backend import MemoryDocument

Operation = tuple[str, int]
"""Names one call, so that it can be sent again."""
_REMEMBERED: Final = frozenset(
    {"attach", "close", "remove_forwarded", "settle", "sweep", "unreported_closings"}
)
"""Calls whose second sending must be answered as the first: they leave nothing behind that tells them apart."""


class ReplicaConnection:
    """One replica's connection to the shared store.

    Use it as a `Store` through `store`; `call` sends one call, or sends it again.
    """

    is_shared = True

    def __init__(self, cluster: "Cluster", replica: str) -> None:
        self._cluster = cluster
        self.replica = replica
        self.owner: str = f"{replica}.0"
        self.on_wake: OnWake | None = None

    def __repr__(self) -> str:
        return f"<ReplicaConnection {self.owner}>"

    @property
    def store(self) -> Store:
        """The connection, typed as the engine sees it."""
        return cast("Store", self)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self.call(name, args, kwargs)

        return call

    def call(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], op: Operation | None = None
    ) -> Awaitable[Any]:
        """Do one call; with the `op` of an earlier one it is that one, sent again."""
        return self._cluster.serve(self, name, args, kwargs, op)

    def bind(self, on_wake: OnWake) -> None:
        """Send wake-ups to this function from now on."""
        self.on_wake = on_wake

    def twin(self) -> Store:
        """Return this connection: there is only one loop."""
        return self.store

    async def aclose(self) -> None:
        """Ignore wake-ups from now on."""
        self.on_wake = None


class Cluster(MemoryStore):
    """The data that all connections share."""

    is_shared = True

    def __init__(self, limits: Limits, clock: Clock) -> None:
        super().__init__(limits, clock)
        self._connections: dict[str, ReplicaConnection] = {}
        self._me = ReplicaConnection(self, "observer")
        self._incarnations = 0
        self._leases: dict[str, float] = {}
        """Owner → the end of its lease; 0: it was declared dead."""
        self._seen: dict[str, tuple[float, float, float]] = {}
        """Owner → since when it has renewed without a gap, when last, and for how long."""
        self._inboxes: defaultdict[str, OrderedDict[str, tuple[float, bytes]]] = defaultdict(OrderedDict)
        self._closings: dict[str, tuple[float, Closed]] = {}
        self._closed = 0
        self._notices: dict[str, tuple[float, bytes]] = {}
        """Replica → the end of its last notice, and the notice."""
        self._done: dict[Operation, Any] = {}
        super().bind(self._route)

    def connect(self, replica: str) -> ReplicaConnection:
        """Return the connection of a replica."""
        return self._connections.setdefault(replica, ReplicaConnection(self, replica))

    async def serve(
        self,
        connection: ReplicaConnection,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        op: Operation | None,
    ) -> Any:
        """Do a call for a replica, in one step."""
        self._me, self.me = connection, connection.owner
        if op is not None and op in self._done:
            return self._done.pop(op)
        result = await getattr(self, name)(*args, **kwargs)
        if op is not None and name in _REMEMBERED:
            self._done[op] = result
        return result

    # Wake-ups

    def _route(self, what: WakeUp, key: str, name: str) -> None:
        self._wake(dict.fromkeys(f"{replica}." for replica in self._connections), what, key, name)

    @override
    def applied(self, doc: MemoryDocument) -> None:
        told, doc.told = doc.told, tuple(one for one in doc.told if isinstance(one[0], Index))
        super().applied(doc)
        for what, name, to in told:
            if what is WakeUp.CLOSED:
                self._route(what, doc.record.key, name)
            elif isinstance(what, WakeUp):
                mine = {self.me: None} if what is WakeUp.STREAM else {}
                self._wake({**mine, to: None}, what, doc.record.key, name)

    def _wake(self, owners: dict[str, None], what: WakeUp, key: str, name: str) -> None:
        for replica in dict.fromkeys(owner.rpartition(".")[0] for owner in owners):
            connection = self._connections.get(replica)
            if connection is not None and connection.on_wake is not None:
                connection.on_wake(what, key, name)

    # Notices

    @override
    async def post_notice(self, notice: bytes, *, seconds: float) -> list[bytes]:
        now, me = self.now(), self._me.replica
        if notice:
            self._notices[me] = (now + seconds, notice)
        return [value for replica, (until, value) in self._notices.items() if replica != me and until > now]

    # Owners

    @override
    async def claim(self, key: str, principal: str, claim: Claim) -> Claimed | Duplicate | Refusal:
        if key not in self._sessions or claim.stream not in self._sessions[key].exchanges:
            self._must_live()
        return await super().claim(key, principal, claim)

    @override
    async def attach(self, *args: Any, **more: Any) -> Attached | Refusal:
        self._must_live()
        return await super().attach(*args, **more)

    @override
    async def append(self, key: str, stream: str, fence: int, events: NewEvents) -> Position:
        # Sent again, an event may no longer be the newest: a handler's other messages overtake a lost reply.
        doc = self._sessions.get(key)
        name = doc.record.standalone if doc is not None and fence == STANDALONE_FENCE else stream
        log = doc.logs.get(name) if doc is not None else None
        for event in log.events if log is not None else ():
            if event.position.tag == events[-1][0]:
                return event.position
        return await super().append(key, stream, fence, events)

    @override
    def end_nowait(self, doc: MemoryDocument, reason: SessionInput, ending: Ending | None = None) -> Closed:
        closed = super().end_nowait(doc, reason, ending)
        self._closed += 1
        closed = replace(closed, event=f"{closed.record.key}.{self._closed}")
        self._closings[closed.event] = self.now(), closed
        return closed

    # Leases, and the work of dead replicas

    @override
    async def renew(self, seconds: float) -> int:
        connection, now = self._me, self.now()
        if not self._leases.get(connection.owner):
            self._incarnations += 1
            connection.owner = f"{connection.replica}.{self._incarnations}"
        since, renewed, _ = self._seen.get(connection.owner, (now, now, seconds))
        self._seen[connection.owner] = now if abs(now - renewed) > seconds / 2 else since, now, seconds
        self._leases[connection.owner] = now + seconds
        return int(connection.owner.rpartition(".")[2])

    @override
    async def prove(self) -> None:
        owner = self._me.owner
        if self._leases.get(owner, 0.0) <= self.now() and not owner.endswith(".0"):
            raise lease_ended()

    @override
    async def release(self) -> None:
        self._leases[self._me.owner] = 0.0

    @override
    async def replicas(self) -> dict[str, float]:
        now = self.now()
        return {owner.rpartition(".")[0]: until - now for owner, until in self._leases.items() if until > now}

    @override
    async def orphans(self) -> list[Orphan]:
        now = self.now()
        if self._may_reap(self._me.owner):
            ended = [
                owner for owner, until in self._leases.items() if until <= now or self._is_from_before(owner)
            ]
            self._leases.update(dict.fromkeys(ended, 0.0))
        found: list[Orphan] = []
        for owner in [owner for owner, until in self._leases.items() if not until]:
            left = [orphan for doc in self._sessions.values() for orphan in self._left_by(owner, doc)]
            found += left
            if not left:
                del self._leases[owner]
                self._seen.pop(owner, None)
        return found

    def _may_reap(self, owner: str) -> bool:
        """True if a replica has seen the store for one whole lease."""
        since, renewed, seconds = self._seen.get(owner, (inf, 0.0, 0.0))
        return self.now() - since >= seconds and abs(self.now() - renewed) <= seconds / 2

    def _is_from_before(self, owner: str) -> bool:
        """True if the clock was set back, and a replica has not renewed its lease since then."""
        _, renewed, seconds = self._seen.get(owner, (0.0, 0.0, 0.0))
        return renewed - self.now() > seconds / 2

    def _left_by(self, owner: str, doc: MemoryDocument) -> list[Orphan]:
        """Forget the readers and turns of a dead replica, and return the exchanges that it ran."""
        lose_readers(doc, owner, self.now())
        lose_turns(doc, owner)
        self.applied(doc)
        return [
            Orphan(doc.record.key, stream, exchange.id, owner)
            for stream, exchange in doc.exchanges.items()
            if exchange.running and exchange.owner == owner and exchange.id is not None
        ]

    @override
    async def reap(self, orphan: Orphan, terminal: bytes, *, tag: int) -> bool:
        return await self.apply(
            orphan.session, False, reap, orphan.stream, orphan.owner, terminal, self.at(), tag=tag
        )

    @override
    async def swap_task(
        self, key: str, before: StoredTask | None, after: StoredTask, most: TaskBounds | None
    ) -> Swapped:
        if before is None:
            self._must_live()
        return await super().swap_task(key, before, after, most)

    def _must_live(self) -> None:
        owner = self._me.owner
        if not self._leases.get(owner) and not owner.endswith(".0"):
            raise lease_ended()

    @override
    async def orphan_tasks(self, known: Collection[str] | None = None) -> list[OrphanTask]:
        def is_stray(task: OrphanTask) -> bool:
            return known is not None and task.owner == self._me.owner and task.key not in known

        return [task for task in self._tasks.owned() if not self._leases.get(task.owner) or is_stray(task)]

    # Requests and news

    @override
    async def forward(self, replica: str, name: str, payload: bytes, *, seconds: float) -> bool:
        box = self._inboxes[replica]
        if replica not in await self.replicas():
            return False
        if name not in box:
            if is_inbox_full([one for _, one in box.values()], payload):
                return False
            box[name] = self.now() + seconds, payload
        self._wake({f"{replica}.": None}, WakeUp.FORWARD, "", "")
        return True

    @override
    async def inbox(self) -> list[Forwarded]:
        waiting = self._inboxes[self._me.replica].items()
        return [Forwarded(name, payload) for name, (expires, payload) in waiting if expires > self.now()]

    @override
    async def remove_forwarded(self, name: str, *, replica: str = "") -> bool:
        return self._inboxes[replica or self._me.replica].pop(name, None) is not None

    @override
    async def closing_reported(self, closed: Closed) -> None:
        self._closings.pop(closed.event, None)

    @override
    async def unreported_closings(self) -> list[Closed]:
        now = self.now()
        late = [event for event, (at, _) in self._closings.items() if at <= now - UNREPORTED_SECONDS]
        found = [self._closings[event][1] for event in late]
        self._closings.update({closed.event: (now, closed) for closed in found})
        return found
