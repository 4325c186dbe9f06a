"""Ten ways to live and to die. Each is a few seconds of virtual time, decided by a seed, with all invariants after it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct

from tests.simulation.clients import Client, Neighbour, Steps, Stranger
from tests.simulation.faults import Faults
from tests.simulation.invariants import check
from tests.simulation.keyed import KeyedClient
from tests.simulation.ledger import Json
from tests.simulation.sockets import TICK
from tests.simulation.world import GRACE, LEASE, SETTINGS, Replica, World
from tests.simulation.world import Run as Run  # noqa: PLC0414 - what `play` returns
from tests.simulation.world import run as run_world

IDS: Final[list[int | str]] = [1, "1", 2, "2"]
_SHORT: Final[Steps] = [
    *(("turn", turns) for turns in range(4)),
    *(("wait", ticks * TICK) for ticks in (1, 2, 7)),
]
"""The steps of a handler in the scenario of one process: in turns and ticks, so that its end meets cuts and repeats."""
SWEEPS: Final = 2.5
"""Seconds after the end of a lease or a grace period until everything that is due was swept."""


async def claim(world: World) -> None:
    """Racing duplicates, repeats word for word, and ids that only look alike, at all replicas at once."""
    client = Client(world)
    await client.open()
    random = world.random
    calls: list[Awaitable[object]] = []
    for _ in range(3):
        request_id: int | str = random.choice(IDS)
        nonce = world.nonce()
        steps: Steps = [("wait", random.random() * 0.3), ("tell", random.randrange(2)), ("add", 1)]
        calls += [
            client.call(request_id, steps, cut=0.2, nonce=nonce) for _ in range(random.choice([1, 2, 3]))
        ]
        calls.append(client.call(request_id, [("add", 1)]))
    random.shuffle(calls)
    await asyncio.gather(*calls, Stranger(world, client).intrude())
    await _quiet(world, client)


async def log(world: World) -> None:
    """Streams that are cut and resumed anywhere, by two readers at once too, while they are written."""
    client = Client(world)
    await client.open()
    random = world.random
    calls: list[Awaitable[object]] = []
    for number in range(3):
        steps: Steps = []
        for _ in range(random.randrange(1, 4)):
            # The last one is more than one append of the engine has.
            steps += [("tell", random.choice([1, 2, 3, 70])), ("wait", random.random() * 0.4)]
        if random.random() < 0.5:
            # The end follows its last messages at once.
            steps.pop()
        calls.append(client.call(number, steps, cut=0.7, shadow=random.random() < 0.3))
    await asyncio.gather(_news(world, client), *calls)
    await Neighbour(world, "eve").resume(random.choice(world.ledger.requests))
    await _quiet(world, client)


async def _news(world: World, client: Client) -> None:
    """Push to the session from all replicas while its client follows with many cuts."""
    following = asyncio.create_task(client.follow(1.5))
    for number in range(4):
        await world.sleep(0.0, 0.3)
        replica = world.any_replica()
        push = replica.engine.sessions.push(client.key, "notifications/message", {"n": number})
        await world.loop.spawn(replica.actor, push)
    got = [message["params"]["n"] for message in await following]
    first = got[0] if got and client.missed_opening else 0
    if got != list(range(first, first + len(got))):
        world.ledger.violate("I2", f"the client received {got} outside of its requests")


async def answer(world: World) -> None:
    """Asks, several at once, answered at any replica: late, twice, differently."""
    clients = [Client(world, "alice"), Client(world, "bob")]
    random = world.random
    await asyncio.gather(*(client.open() for client in clients))
    calls: list[Awaitable[object]] = []
    for client in clients:
        for number in range(2):
            steps: Steps = [("tell", 1), ("ask", random.randrange(1, 5)), ("add", 1)]
            calls.append(client.call(number, steps, cut=0.2))
    if random.random() < 0.3:
        calls.append(clients[1].cancel(random.randrange(2)))
    await asyncio.gather(*calls)
    await Stranger(world, clients[0]).intrude()
    await _quiet(world, *clients)


async def grace(world: World) -> None:
    """Clients that leave and come back around the deadline, with every replica sweeping; one that says goodbye."""
    clients = [Client(world, "alice"), Client(world, "bob")]
    await asyncio.gather(*(client.open() for client in clients))
    await asyncio.gather(*(_come_and_go(world, client) for client in clients))
    left = world.loop.time()
    if world.random.random() < 0.4:
        await asyncio.gather(clients[0].end(), clients[0].end())
    await _quiet(world, *clients)
    await asyncio.sleep(max(0.0, left + GRACE + SWEEPS + 0.5 - world.loop.time()))
    for client in clients:
        if client.key in await world.store.sessions() and not world.ledger.disturbed:
            world.ledger.violate("I8", f"the session of {client.token} outlived its grace")


async def _come_and_go(world: World, client: Client) -> None:
    random = world.random
    for number in range(2):
        if random.random() < 0.5:
            await client.listen(random.random())
        else:
            await client.call(number, [("tell", 1), ("wait", random.random())], cut=0.5)
        # On either side of the deadline, as close as the latency of the store.
        await asyncio.sleep(random.choice([0.1, GRACE + random.uniform(-0.3, 1.3)]))
    # Long enough, sometimes, to outlast the grace of a break that the server notices only now.
    await client.listen(random.choice([0.3, 0.3, GRACE + 2.0]))


async def drain(world: World) -> None:
    """Every replica is replaced, one after another, while clients work; no running request is lost."""
    client = Client(world)
    await client.open()
    calls = [asyncio.create_task(_work(world, client, start)) for start in (0, 100)]
    for old in list(world.replicas):
        await world.add_replica()
        await world.sleep(0.0, 0.4)
        await old.drain()
    await asyncio.gather(*calls)
    for request in world.ledger.requests:
        if any("error" in message for message in request.terminals):
            world.ledger.violate("G11", f"{request.nonce} was lost by a rolling restart: {request.terminals}")
    await _quiet(world, client)


async def _work(world: World, client: Client, first: int) -> None:
    for number in range(first, first + 4):
        steps: Steps = [("tell", 1), ("wait", world.random.random() * 0.6), ("tell", 1), ("add", 1)]
        await client.call(number, steps, cut=0.1)


async def takeover(world: World) -> None:
    """Crashes, zombies and partitions; each call ends once, with a result or with outcome unknown."""
    client = Client(world)
    await client.open()
    random = world.random
    calls: list[Awaitable[object]] = [_disturb(world)]
    for number in range(4):
        steps: Steps = [("tell", 1), ("wait", random.random() * 2.0), ("tell", 1)]
        steps += [("wait", random.random()) if random.random() < 0.5 else ("add", 1), ("tell", 1)]
        calls.append(client.call(number, steps, cut=0.3))
    staying = asyncio.create_task(client.stay()) if random.random() < 0.5 else None
    await asyncio.gather(*calls)
    await asyncio.sleep(LEASE + SWEEPS)
    if staying is not None:
        staying.cancel()
    await _quiet(world, client)


async def home(world: World) -> None:
    """The home of a session dies, is stopped, is cut off or drains, and so may another replica: calls start once and end once.

    After that the session has a home, and its next call succeeds.
    """
    client = Client(world)
    await client.open()
    random = world.random
    calls: list[Awaitable[object]] = [_move(world, client)]
    for number in range(8):
        steps: Steps = [("tell", random.randrange(2)), ("wait", random.random() * 0.8), ("add", 1)]
        calls.append(_later(world, client, number, steps))
    await asyncio.gather(*calls)
    await asyncio.sleep(LEASE + SWEEPS)
    last = await client.call(99, [("add", 1)])
    codes = [
        message["error"]["code"]
        for one in world.ledger.requests
        for message in one.terminals
        if "error" in message
    ]
    # A handler whose store is unavailable fails with an error of its own.
    allowed = {-31002, -32603} if world.fired["partition"] else {-31002}
    if set(codes) - allowed:
        world.ledger.violate("G11", f"calls ended with {codes}")
    if client.key in world.store._sessions and not any("result" in message for message in last.terminals):
        world.ledger.violate("G11", f"the session has no home any more: {last.terminals}, {last.refusals}")
    if codes and not world.ledger.disturbed and not world.fired["crash"]:
        world.ledger.violate("G11", f"a home that drained lost {codes}")
    await _quiet(world, client)


async def _later(world: World, client: Client, number: int, steps: Steps) -> None:
    await world.sleep(0.0, 1.5)
    await client.call(number, steps, cut=0.2)


async def _move(world: World, client: Client) -> None:
    """Take its home from a session, by one of the ways to go; sometimes disturb another replica too."""
    random = world.random
    await world.sleep(0.1, 1.0)
    name = world.store._sessions[client.key].record.home
    [one] = [replica for replica in world.replicas if replica.name == name]
    others = [replica for replica in world.replicas if replica is not one]
    first: Callable[[Replica], Awaitable[None]] = random.choice(
        [_crash, _zombie, _zombie, _partition, _replaced, _replaced]
    )
    second: Callable[[Replica], Awaitable[None]] = random.choice([_zombie, _spare, _spare])
    await asyncio.gather(first(one), second(random.choice(others)))


async def _replaced(replica: Replica) -> None:
    await replica.world.add_replica()
    await replica.drain()


async def outage(world: World) -> None:
    """The store is unavailable for every replica, for longer than the lease, while calls run: no call is lost.

    One replica may really die meanwhile: each of its calls ends once, with outcome unknown.
    """
    client = Client(world)
    await client.open()
    random = world.random
    calls: list[Awaitable[object]] = [_away(world)]
    for number in range(4):
        steps: Steps = [("tell", 1), ("wait", random.random() * LEASE * 3), ("tell", 1)]
        calls.append(client.call(number, steps, cut=0.2))
    await asyncio.gather(*calls)
    dead = {replica.name for replica in world.replicas if not replica.ready}
    for request in world.ledger.requests:
        codes = [message["error"]["code"] for message in request.terminals if "error" in message]
        if codes and not dead:
            world.ledger.violate("G11", f"{request.nonce} was lost by an outage: {codes}")
    await asyncio.sleep(2 * LEASE + SWEEPS)
    await _quiet(world, client)


async def _away(world: World) -> None:
    """Cut all replicas off together. After a long outage they find back within half a lease of each other."""
    random = world.random
    await world.sleep(0.3, 1.0)
    leases, apart = random.choice([(0.4, 0.05), (1.0, 0.5), (2.0, 0.5)])
    for replica in world.replicas:
        replica.partition(LEASE * (leases + random.random() * apart))
    if random.random() < 0.3:
        world.any_replica().crash()


async def alone(world: World) -> None:
    """One process with a store in memory: plain calls, cut around their ends, repeated, cancelled and resumed."""
    client = Client(world)
    await client.open()
    random = world.random
    calls: list[Awaitable[object]] = []
    for number in range(6):
        steps: Steps = [random.choice(_SHORT)]
        if world.mode != "json" and random.random() < 0.3:
            steps.append(("tell", random.randrange(1, 3)))
        steps += [random.choice(_SHORT), ("add", 1)]
        nonce = world.nonce()
        calls += [client.call(number, steps, cut=0.7, nonce=nonce) for _ in range(random.choice([1, 1, 2]))]
        if random.random() < 0.15:
            calls.append(client.cancel(number))
    if world.mode != "json":
        # An endpoint that only answers with JSON refuses every GET.
        calls.append(Stranger(world, client).intrude())
    await asyncio.gather(*calls)
    await _quiet(world, client)
    [session] = world.store._sessions.values()
    if session.readers:
        world.ledger.violate("I8", f"{session.readers} readers are left, and no connection is open")


async def keys(world: World) -> None:
    """Calls of 2026-07-28 with idempotency keys, repeated at any replica through crashes, stops and partitions: each runs once."""
    client, random = KeyedClient(world), world.random
    nonces = [world.nonce() for _ in range(3)]
    answers: dict[str, list[Json | None]] = {nonce: [] for nonce in nonces}

    async def send(nonce: str, steps: Steps) -> None:
        await world.sleep(0.0, 0.5)
        answers[nonce].append(await client.call(f"key-of-{nonce}", nonce, steps, cut=0.4))

    calls: list[Awaitable[object]] = [_disturb(world)] if random.random() < 0.5 else []
    for nonce in nonces:
        steps: Steps = [("tell", 1), ("wait", random.random() * 2.0), ("tell", random.randrange(2))]
        calls += [send(nonce, steps) for _ in range(random.choice([1, 2, 3]))]
    await asyncio.gather(*calls)
    await asyncio.gather(*(client.misuse(f"key-of-{nonce}") for nonce in nonces))
    for nonce in nonces:
        client.judge(nonce, answers[nonce])


async def _disturb(world: World) -> None:
    random = world.random
    await world.sleep(0.1, 1.0)
    one, two, _ = random.sample(world.replicas, 3)
    first: Callable[[Replica], Awaitable[None]] = random.choice([_crash, _zombie, _partition])
    second: Callable[[Replica], Awaitable[None]] = random.choice([_crash, _zombie, _partition, _spare])
    await asyncio.gather(first(one), second(two))


async def _crash(replica: Replica) -> None:
    await replica.world.sleep(0.0, 0.5)
    replica.crash()


async def _zombie(replica: Replica) -> None:
    await replica.world.sleep(0.0, 0.5)
    await replica.pause(replica.world.random.choice([1.0, LEASE + 2.0]))


async def _partition(replica: Replica) -> None:
    await replica.world.sleep(0.0, 0.5)
    replica.partition(replica.world.random.choice([0.5, LEASE + 2.0]))


async def _spare(replica: Replica) -> None:
    """Leave it in peace."""


async def _quiet(world: World, *clients: Client) -> None:
    """Let everything come to rest."""
    for client in clients:
        await client.finish()
    await asyncio.sleep(1.0)
    check(world)


class Scenario(Struct, frozen=True):
    """A script and its faults."""

    script: Callable[[World], Awaitable[None]]
    faults: Faults
    expected: tuple[str, ...]
    """Faults that happen in any few hundred seeds, or else nothing was tried."""
    has_home: bool = False
    """Sessions have homes, as behind a back in front of another server."""
    is_alone: bool = False
    """One process with a store in memory serves on simulated sockets."""


_STORE: Final = ("lost reply", "lost wake-up", "cut")

SCENARIOS: Final = {
    "claim": Scenario(claim, Faults(lost_reply=0.1, lost_wakeup=0.1), _STORE),
    "log": Scenario(log, Faults(lost_reply=0.1, lost_wakeup=0.3), (*_STORE, "lost reply of several events")),
    "answer": Scenario(answer, Faults(lost_reply=0.1, lost_wakeup=0.3), _STORE),
    "grace": Scenario(grace, Faults(lost_reply=0.1, lost_wakeup=0.1), _STORE),
    "drain": Scenario(drain, Faults(lost_reply=0.05, lost_wakeup=0.1), (*_STORE, "drain")),
    "takeover": Scenario(
        takeover, Faults(lost_reply=0.05, lost_wakeup=0.1), (*_STORE, "crash", "pause", "partition")
    ),
    "home": Scenario(
        home,
        Faults(lost_reply=0.05, lost_wakeup=0.1),
        (*_STORE, "crash", "pause", "partition", "drain"),
        has_home=True,
    ),
    "keys": Scenario(
        keys, Faults(lost_reply=0.05, lost_wakeup=0.1), (*_STORE, "crash", "pause", "partition")
    ),
    "outage": Scenario(outage, Faults(lost_reply=0.05, lost_wakeup=0.1), (*_STORE, "crash", "partition")),
    "alone": Scenario(alone, Faults(), ("cut",), is_alone=True),
}


def play(name: str, seed: int) -> Run:
    """Run a scenario with a seed."""
    scenario = SCENARIOS[name]

    async def script(world: World) -> None:
        await scenario.script(world)

    return run_world(
        seed, script, scenario.faults, SETTINGS, has_home=scenario.has_home, is_alone=scenario.is_alone
    )
