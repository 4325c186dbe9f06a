"""A cluster that moves slots and loses a shard: calls wait for the move, and the other shards continue."""

import asyncio
import gc
import warnings
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from limpet.core.stream import Position
from limpet.errors import StoreUnavailable
from limpet.stores.base import Claim, Claimed
from limpet.stores.redis import core
from limpet.stores.redis.link import connect
from limpet.stores.redis.store import RedisStore
from limpet.testing import VirtualClock
from limpet.testing.store.bench import IDLE, PRINCIPAL, record
from limpet.testing.store.fleet import LEASE
from tests.programs import program
from tests.redis_server import RedisServer, needs_redis, redis_cluster, wait_until_whole
from tests.support import async_test, stays

pytestmark = needs_redis


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[RedisServer]]:
    program("redis-server")
    with redis_cluster() as started:
        serve_the_rest(started)
        yield started


def serve_the_rest(nodes: list[RedisServer]) -> None:
    """Let the others serve their slots while one node is down."""
    for node in nodes:
        node.tell("CONFIG", "SET", "cluster-require-full-coverage", "no")


def url(nodes: list[RedisServer]) -> str:
    return f"redis+cluster://{','.join(f'127.0.0.1:{node.port}' for node in nodes)}"


class Moved:
    """A slot on its way from one node to another."""

    def __init__(self, nodes: list[RedisServer], key: str) -> None:
        self.slot = nodes[0].tell("CLUSTER", "KEYSLOT", key)
        self.source = node_of(nodes, key)
        self.target = next(node for node in nodes if node is not self.source)
        self._nodes = nodes
        self._ids = {node: node.tell("CLUSTER", "MYID") for node in nodes}

    def begin(self) -> None:
        self.target.tell("CLUSTER", "SETSLOT", self.slot, "IMPORTING", self._ids[self.source])
        self.source.tell("CLUSTER", "SETSLOT", self.slot, "MIGRATING", self._ids[self.target])

    def names(self) -> list[str]:
        return self.source.tell("CLUSTER", "GETKEYSINSLOT", self.slot, "100").split()

    def move(self, *keys: str) -> None:
        moved = self.source.tell(
            "MIGRATE", "127.0.0.1", str(self.target.port), "", "0", "5000", "KEYS", *keys
        )
        assert moved == "OK", moved

    def end(self) -> None:
        for node in (self.target, self.source, *self._nodes):
            node.tell("CLUSTER", "SETSLOT", self.slot, "NODE", self._ids[self.target])


def node_of(nodes: list[RedisServer], key: str) -> RedisServer:
    """Return the node that has a key's slot."""
    for node in nodes:
        if not node.tell("EXISTS", key).startswith("MOVED"):
            return node
    raise AssertionError("no node has this slot")


async def begin(store: RedisStore, key: str, stream: str, number: int = 1) -> int:
    claimed = await store.claim(key, PRINCIPAL, Claim(number, stream, b""))
    assert isinstance(claimed, Claimed)
    return claimed.fence


@async_test
async def test_calls_wait_for_a_slot_that_is_being_moved(nodes: list[RedisServer]) -> None:
    store = RedisStore(url(nodes), namespace="moving")
    async with aclosing(store):
        await store.open(record(), evict=False)
        key = record().key
        old, new, plain = [
            await begin(store, key, name, number) for number, name in enumerate(("old", "new", "plain"))
        ]
        start = await store.open_stream(key, "old", old, 1)
        await store.append(key, "old", old, [(2, b"one")])
        await store.open_stream(key, "new", new, 3)
        moving = Moved(nodes, store.key(key))
        moving.begin()
        work = [
            asyncio.ensure_future(one)
            for one in (
                store.append(key, "old", old, [(4, b"two")]),
                store.append(key, "new", new, [(5, b"one")]),
                store.settle(key, "plain", plain, None),
                store.add_state(key, "n", 3, op="a"),
            )
        ]
        logs = [name for name in moving.names() if name != store.key(key)]
        # The session is at one node, its log at the other.
        await stays(lambda: not any(one.done() for one in work), 0.2)
        moving.move(store.key(key))
        await stays(lambda: not any(one.done() for one in work), 0.3)
        moving.move(*logs)
        moving.end()
        await asyncio.gather(*work)
        await store.settle(key, "old", old, b"last", tag=6)
        page = await store.read(key, "old", Position(start.seq, 1), 10, 10_000)
        assert page is not None
        assert [event.data for event in page.events] == [b"one", b"two", b"last"]
        assert await store.add_state(key, "n", 0, op="b") == 3


@async_test
async def test_a_move_that_takes_too_long_is_unavailable_and_changes_nothing(
    nodes: list[RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "PATIENCE", 0.2)
    store = RedisStore(url(nodes), namespace="stuck")
    async with aclosing(store):
        await store.open(record(), evict=False)
        key = record().key
        fence = await begin(store, key, "a")
        await store.open_stream(key, "a", fence, 1)
        moving = Moved(nodes, store.key(key))
        moving.begin()
        with pytest.raises(StoreUnavailable):
            await store.settle(key, "a", fence, b"last", tag=2)
        moving.move(*moving.names())
        moving.end()
        await store.settle(key, "a", fence, b"last", tag=2)
        page = await store.read(key, "a", Position(1, 1), 10, 10_000)
        assert page is not None
        assert [event.data for event in page.events] == [b"last"]


@async_test
async def test_a_shard_that_is_down_stops_neither_sweeping_nor_reaping_on_the_others(
    nodes: list[RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "PATIENCE", 0.3)
    clock = VirtualClock()
    store, dying = (
        RedisStore(url(nodes), clock=clock, namespace="shards", replica=name) for name in ("a", "b")
    )
    index = node_of(nodes, store.key("*"))
    names = [f"s{number}" for number in range(30)]
    homes = {name: node_of(nodes, store.key(name)) for name in names}
    doomed = next(node for node in nodes if node is not index)
    for one in (store, dying):
        await one.renew(LEASE)
    for name in names:
        await store.open(record(name), evict=False)
        if name.endswith(("0", "5")):
            await begin(dying, name, "a")
    for _ in range(5):
        clock.advance(LEASE / 4)
        await store.renew(LEASE)
    doomed.stop()
    living = {name for name in names if homes[name] is not doomed}
    assert 0 < len(living) < len(names)
    orphans = {orphan.session for orphan in await store.orphans()}
    assert orphans == {name for name in living if name.endswith(("0", "5"))}
    assert orphans
    clock.advance(IDLE)
    swept = {closed.record.key for closed in await store.sweep()}
    assert swept == living - orphans
    for one in (store, dying):
        await one.aclose()
    # The cluster is as before for the next test.
    doomed.start()
    serve_the_rest(nodes)
    await asyncio.to_thread(wait_until_whole, nodes)


@async_test
async def test_a_link_that_is_closed_while_it_connects_leaves_no_connection(nodes: list[RedisServer]) -> None:
    with warnings.catch_warnings(record=True) as leaks:
        warnings.simplefilter("always", ResourceWarning)
        for steps in range(0, 400, 8):
            link = connect(url(nodes))
            command = asyncio.create_task(link.run("prove", "lp:0:closing:{*}", ("", "r.0", "n", "0")))
            for _ in range(steps):
                await asyncio.sleep(0)
            await link.aclose()
            await asyncio.gather(command, return_exceptions=True)
            del link, command
        gc.collect()
    assert [str(leak.message) for leak in leaks] == []


@async_test
async def test_more_commands_than_connections_wait_for_one(
    nodes: list[RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "PATIENCE", -1.0)
    store = RedisStore(url(nodes), namespace="many")
    async with aclosing(store):
        await store.open(record(), evict=False)
        added = await asyncio.gather(*(store.add_state("session", "n", 1, op=f"o{n}") for n in range(400)))
        assert sorted(added) == list(range(1, 401)), "no command has failed, and none was sent twice"
