"""Replicas, clients and strangers in one simulated world; everything they do is decided by a seed."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from hashlib import sha256
from typing import Any, Final, cast
from unittest.mock import patch

import msgspec

from limpet.auth import Principal
from limpet.config import HttpSettings, Limits, ResponseMode, Settings, Times
from limpet.core.lifecycle import SessionInput
from limpet.engine.engine import Engine
from limpet.engine.exchange import Exchange
from limpet.engine.session import Session
from limpet.errors import AskError, StoreError
from limpet.fronts.http.front import HttpFront
from limpet.ports import Clock
from limpet.stores.base import Store
from limpet.testing import ScriptedBack, SeededRandom
from tests.simulation.faults import Faults, FaultyStore
from tests.simulation.ledger import Ledger, WatchedCluster, WatchedStore
from tests.simulation.loop import Actor, SimLoop, simulate
from tests.simulation.network import Call, Network, Node
from tests.simulation.sockets import TICK, SocketNode, TickNetwork

ASKS: Final = 3
GRACE: Final = 4.0
LEASE: Final = 3.0
DRAIN: Final = 6.0
TIMES: Final = Times(
    grace=GRACE, idle=60.0, stream_after=0.05, keep_alive=2.0, write_stall=5.0, lease=LEASE,
    lease_renewal=1.0, sweep=1.0, drain=DRAIN, retry=(0.05, 0.2),
)  # fmt: skip
SETTINGS: Final = Settings(limits=Limits(asks=ASKS, ask_seconds=20.0), times=TIMES)
MODES: Final[tuple[ResponseMode, ...]] = ("adaptive", "adaptive", "sse", "json")
GOODBYE: Final = 2.0
"""How long a server that has drained waits for its last connections."""
PATIENCE: Final = 300.0
"""Virtual seconds after which a run hangs."""

Script = Callable[["World"], Coroutine[Any, Any, None]]


class SimKeeper:
    """Keeps a lease as the real keeper does, from a task: a stopped process stops its threads too."""

    def __init__(
        self,
        store: Store,
        times: Times,
        clock: Clock,
        lost: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._store = store
        self._times = times
        self._lost = lost
        self._task: asyncio.Task[None] | None = None

    def tick(self) -> None:
        """Nothing to show: the loop runs, or nothing does."""

    def start(self, incarnation: int) -> None:
        self._task = asyncio.get_running_loop().create_task(self._keep(incarnation))

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _keep(self, incarnation: int) -> None:
        pause = self._times.lease_renewal
        while True:
            await asyncio.sleep(pause)
            pause = self._times.lease_renewal
            try:
                lease = await self._store.renew(self._times.lease)
            except StoreError:
                pause = min(pause, 0.5)
                continue
            if lease != incarnation:
                self._lost()
                return


class SimClock:
    """The loop's time."""

    def __init__(self, loop: SimLoop) -> None:
        self.now = self.wall = loop.time


class SimBack(ScriptedBack):
    """Runs the steps that a request names, and marks each message with its call."""

    def __init__(self, ledger: Ledger, replica: str, *, has_home: bool) -> None:
        super().__init__({"tools/call": self._call}, has_home=has_home)
        self._ledger = ledger
        self._replica = replica

    async def _call(self, exchange: Exchange) -> object:
        ledger, params = self._ledger, exchange.request.params
        if exchange.key:
            # A call without a session has none.
            ledger.starts[exchange.key] += 1
        ledger.started(params["nonce"])
        ledger.nonces[exchange.key] = params["nonce"]
        ledger.started_at[exchange.key].add(self._replica)
        ledger.note(f"the handler of {params['nonce']} starts as {exchange.key[:6]}")
        run = _Run(ledger, exchange, params["nonce"])
        for step, value in params["steps"]:
            await run.STEPS[step](run, value)
        return {**run.stamp, "n": run.sent}

    async def closed(self, session: Session, reason: SessionInput) -> None:
        self._ledger.told[session.record.key] += 1


class _Run:
    """One run of a handler."""

    def __init__(self, ledger: Ledger, exchange: Exchange, nonce: str) -> None:
        self._ledger = ledger
        self._exchange = exchange
        self._key = exchange.session.record.key
        self.nonce = nonce
        self.sent = 0
        self.asked = 0
        self.stamp = {"nonce": nonce, "session": self._key, "principal": exchange.caller.key}

    async def _tell(self, count: int) -> None:
        for _ in range(count):
            number, self.sent = self.sent, self.sent + 1
            await self._exchange.notify("notifications/message", {**self.stamp, "n": number})

    async def _wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _turn(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def _add(self, by: int) -> None:
        self._ledger.adding[self._key] += by
        await self._exchange.store.add_state(self._key, "n", by, op=f"{self._exchange.key}.{self.asked}.{by}")
        self._ledger.added[self._key] += by

    async def _ask(self, count: int) -> None:
        numbers = range(self.asked, self.asked + count)
        self.asked += count
        await asyncio.gather(*map(self._ask_one, numbers))

    async def _ask_one(self, number: int) -> None:
        name = f"{self.nonce}.{number}"
        try:
            answer = await self._exchange.ask("elicitation/create", {**self.stamp, "name": name})
        except AskError as error:
            answer = {"error": type(error).__name__}
        self._ledger.resolved[name].append(answer)

    STEPS: Final[dict[str, Callable[["_Run", Any], Awaitable[None]]]] = {
        "tell": _tell,
        "wait": _wait,
        "turn": _turn,
        "add": _add,
        "ask": _ask,
    }


async def _verify(token: str) -> Principal | None:
    return _PRINCIPALS.setdefault(token, Principal(subject=token))


_PRINCIPALS: dict[str, Principal] = {}


class Replica:
    """One process of the server."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.actor = Actor(name)
        self.back = SimBack(world.ledger, name, has_home=world.has_home)
        cluster, store = world.cluster, cast("Store", world.store)
        if cluster is not None:
            self.faulty = FaultyStore(world.loop, self.actor, cluster.connect(name), world.faults)
            store = self.faulty.store
        self.engine = Engine(
            self.back,
            world.settings,
            store=store,
            clock=SimClock(world.loop),
            random=SeededRandom(world.loop.random.getrandbits(32)),
        )
        http = HttpSettings(allow_anonymous=True, response=world.mode)
        front = HttpFront(self.engine, http, verifier=_verify)
        self.node = (
            SocketNode(self.actor, front, world.settings.limits)
            if cluster is None
            else Node(self.actor, front)
        )
        self.ready = False

    def __repr__(self) -> str:
        return f"<Replica {self.name}>"

    async def start(self) -> None:
        await self.world.loop.spawn(self.actor, self.engine.ensure_started())
        self.ready = True

    def crash(self) -> None:
        """Die by SIGKILL."""
        self.world.fired["crash"] += 1
        self.world.ledger.note(f"{self.name} crashes")
        self.ready = False
        self.world.network.kill(self.node)

    async def pause(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after a while."""
        self.world.fired["pause"] += 1
        self.world.ledger.note(f"{self.name} stops for {seconds:.1f} s")
        self.world.ledger.disturbed.add(self.name)
        self.world.loop.stop_actor(self.actor)
        await asyncio.sleep(seconds)
        self.world.loop.resume_actor(self.actor)
        self.world.ledger.note(f"{self.name} continues")

    def partition(self, seconds: float) -> None:
        """Keep it from the store."""
        self.world.ledger.note(f"{self.name} loses the store for {seconds:.1f} s")
        self.world.ledger.disturbed.add(self.name)
        self.faulty.cut_until = self.world.loop.time() + seconds

    async def drain(self) -> None:
        """SIGTERM: out of the balancer, drain while listening, let the last answers out, leave."""
        self.world.fired["drain"] += 1
        self.world.ledger.note(f"{self.name} drains")
        self.ready = False
        await asyncio.sleep(0.1)
        await self.world.loop.spawn(self.actor, self.engine.drain())
        self.node.is_listening = False
        deadline = self.world.loop.time() + GOODBYE
        while self.node.calls and self.world.loop.time() < deadline:
            await asyncio.sleep(0.05)
        await self.world.loop.spawn(self.actor, self.engine.aclose())
        self.world.ledger.note(f"{self.name} has left")
        self.world.network.kill(self.node)


class World:
    """Everything there is."""

    def __init__(
        self,
        loop: SimLoop,
        faults: Faults,
        settings: Settings,
        *,
        has_home: bool = False,
        is_alone: bool = False,
    ) -> None:
        """`is_alone`: one process with a store in memory serves on simulated sockets."""
        self.has_home = has_home
        self.loop = loop
        self.random = loop.random
        self.faults = faults
        self.settings = settings
        self.ledger = Ledger(loop.time)
        self.mode: ResponseMode = "adaptive"
        self.is_alone = is_alone
        made = WatchedStore if is_alone else WatchedCluster
        self.store: WatchedStore = made(settings.limits, SimClock(loop), self.ledger)
        self.network = TickNetwork(loop) if is_alone else Network(loop)
        if is_alone:
            self.mode = loop.random.choice(MODES)
        self.replicas: list[Replica] = []
        self.started = 0
        self.clients: list[Any] = []
        self._nonces = 0

    @property
    def cluster(self) -> WatchedCluster | None:
        """The store, if replicas share it."""
        return self.store if isinstance(self.store, WatchedCluster) else None

    @property
    def fired(self) -> Counter[str]:
        return self.faults.fired

    async def add_replica(self) -> Replica:
        self.started += 1
        replica = Replica(self, f"r{self.started}")
        self.replicas.append(replica)
        await replica.start()
        return replica

    def any_replica(self) -> Replica:
        """Return the replica that the balancer picks: any that looks ready, stopped ones included."""
        ready = [replica for replica in self.replicas if replica.ready] or self.replicas
        return ready[int(self.random.random() * len(ready))]

    def nonce(self) -> str:
        self._nonces += 1
        return f"n{self._nonces}"

    def cut_later(self, wire: Call) -> None:
        """Break a connection after a moment. In one process the moments are ticks, so that it meets the end of the call."""
        seconds = (
            TICK * self.random.choice([0, 0, 1, 2, 3, 7]) if self.is_alone else self.random.random() * 0.8
        )
        self.loop.call_later(seconds, wire.cut)

    async def pause(self) -> None:
        """Wait before a request is sent again."""
        if self.is_alone:
            await asyncio.sleep(TICK * self.random.choice([0, 0, 0, 1]))
        else:
            await self.sleep(0.05, 0.3)

    async def sleep(self, low: float, high: float) -> None:
        await asyncio.sleep(self.random.uniform(low, high))


class Run(msgspec.Struct):
    """How a run went."""

    seed: int
    ledger: Ledger
    fired: Counter[str]
    steps: int
    seconds: float

    @property
    def fingerprint(self) -> str:
        """A fingerprint of the run, to compare it with another of the same seed."""
        return sha256(f"{self.steps} {self.seconds} {self.ledger.trace}".encode()).hexdigest()


def run(
    seed: int,
    script: Script,
    faults: Faults,
    settings: Settings = SETTINGS,
    replicas: int = 3,
    *,
    has_home: bool = False,
    is_alone: bool = False,
) -> Run:
    """Run a scenario with a seed."""

    async def life(loop: SimLoop) -> Run:
        own = msgspec.structs.replace(faults, fired=Counter())
        world = World(loop, own, settings, has_home=has_home, is_alone=is_alone)
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*(world.add_replica() for _ in range(1 if is_alone else replicas)))
                await script(world)
        except TimeoutError:
            world.ledger.violate("I1", "a client still waits for an answer")
        world.store.counters()
        return Run(seed, world.ledger, world.fired, loop.steps, loop.time())

    with patch("limpet.engine.replica.LeaseKeeper", SimKeeper):
        return simulate(seed, life)
