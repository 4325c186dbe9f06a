"""Sessions with very many streams, and state whose time is over."""

from contextlib import aclosing

from redis import Redis

from limpet.core.lifecycle import SessionInput
from limpet.core.rules.document import ExchangeRecord
from limpet.core.stream import Position
from limpet.stores.base import Claim, Claimed
from limpet.stores.redis.store import RedisStore
from limpet.stores.shared.fields import encode, encode_log
from limpet.stores.shared.heads import HeadLog
from limpet.testing.store.bench import KEY, PRINCIPAL, record
from limpet.testing.store.limits import tight
from tests.redis_server import RedisServer
from tests.support import all_closed, async_test

MAIN = f"lp:1:default:{{{KEY}}}"
STREAMS = 9_000


def fill(client: Redis) -> None:
    """Store finished streams, each with a reader, as thousands of calls would leave them."""
    log = HeadLog(Position(1, 1))
    log.append(2, b"x", final=True)
    exchange = ExchangeRecord(None, b"", False, 1, "x.1", "x.1", running=False)
    fields = {"x": encode(exchange), "l": encode_log(log), "f": encode(1.0)}
    pipe = client.pipeline(transaction=False)
    for number in range(1, STREAMS + 1):
        pipe.hset(MAIN, mapping={f"{table}:x{number}": value for table, value in fields.items()})
        pipe.xadd(f"{MAIN}:e:x{number}", {"t": "2", "d": "x"}, id="2-0")
    pipe.execute()


@async_test
async def test_a_session_with_thousands_of_streams_is_written_and_closed(server: RedisServer) -> None:
    limits = tight(finished_streams=20_000, session_bytes=2)
    first, store = RedisStore(server.url, limits), RedisStore(server.url, limits)
    async with aclosing(first), aclosing(store):
        await first.open(record(), evict=False)
        claimed = await first.claim(KEY, PRINCIPAL, Claim(1, "a", b""))
        assert isinstance(claimed, Claimed)
        start = await first.open_stream(KEY, "a", claimed.fence, 1)
        with Redis.from_url(server.url) as client:
            fill(client)
        # Over its budget the session goes through all its streams.
        await store.append(KEY, "a", claimed.fence, [(2, b"long enough")])
        page = await store.read(KEY, "a", Position(start.seq, 1), 10, 1_000)
        assert page is not None
        assert [event.data for event in page.events] == [b"long enough"]
        await store.settle(KEY, "a", claimed.fence, b"last", tag=3)
        assert await store.close(KEY, SessionInput.DELETED) is not None
        assert server.tell("EXISTS", *(f"{MAIN}:e:x{number}" for number in range(1, STREAMS + 1))) == "0"


@async_test
async def test_no_key_of_a_handle_stays_after_its_ttl(server: RedisServer) -> None:
    store = RedisStore(server.url)
    async with aclosing(store):
        assert await store.open_area("handle", PRINCIPAL, 60)
        await store.set_state("handle", "f", b"x", op="1")
        assert await store.find_area("handle", PRINCIPAL)
        left = {key: int(server.tell("PTTL", key)) for key in server.tell("KEYS", "*").split()}
        assert any("{handle}" in key for key in left)
        assert {key: ttl for key, ttl in left.items() if not 0 < ttl <= 61_000} == {}


async def stored(store: RedisStore, key: str, stream: str) -> list[bytes]:
    page = await store.read(key, stream, Position(1, 1), 1_000, 1 << 20)
    assert page is not None
    return [event.data for event in page.events]


async def running(store: RedisStore, key: str, principal: str) -> int:
    """Open a session with a call that runs and has a stream."""
    assert await store.open(record(key, principal), evict=False) == []
    claimed = await store.claim(key, principal, Claim(1, "a", b""))
    assert isinstance(claimed, Claimed)
    await store.open_stream(key, "a", claimed.fence, 1)
    return claimed.fence


@async_test
async def test_a_principal_that_fills_the_store_makes_room_for_the_others(server: RedisServer) -> None:
    store = RedisStore(server.url, tight(streams_bytes=10_000, stream_bytes=4_000, sessions=100))
    async with aclosing(store):
        modest = await running(store, "modest", "modest")
        done = await running(store, "done", "modest")
        words = [b"%d" % number * 100 for number in range(10)]
        for number, word in enumerate(words):
            await store.append("modest", "a", modest, [(10 + number, word)])
        await store.settle("done", "a", done, b"last" * 100, tag=2)
        for session in range(10):
            fence = await running(store, f"greedy{session}", "greedy")
            for number in range(20):
                await store.append(f"greedy{session}", "a", fence, [(10 + number, b"x" * 200)])
        more = [b"more" * 50 for _ in range(5)]
        for number, word in enumerate(more):
            await store.append("modest", "a", modest, [(30 + number, word)])
        assert await stored(store, "modest", "a") == [*words, *more], "nothing of the others is lost"
        assert await stored(store, "done", "a") == [b"last" * 100]
        kept = [await store.read(f"greedy{n}", "a", Position(1, 1), 1_000, 1 << 20) for n in range(10)]
        assert all(page is not None and page.events for page in kept), "the newest event is always there"
        size = sum(len(event.data) for page in kept if page is not None for event in page.events)
        assert size <= 10_000 - len(b"".join([*words, *more])) - 400


@async_test
async def test_two_replicas_that_write_one_session_make_room_in_it(server: RedisServer) -> None:
    limits = tight(streams_bytes=10_000, stream_bytes=8_000, session_bytes=20_000, sessions=100)
    stores = RedisStore(server.url, limits), RedisStore(server.url, limits)
    async with all_closed(*stores):
        await stores[0].open(record(), evict=False)
        fences = []
        for number, store in enumerate(stores):
            claimed = await store.claim(KEY, PRINCIPAL, Claim(number, f"s{number}", b""))
            assert isinstance(claimed, Claimed)
            await store.open_stream(KEY, f"s{number}", claimed.fence, 1)
            fences.append(claimed.fence)
        for event in range(20):
            for number, store in enumerate(stores):
                await store.append(KEY, f"s{number}", fences[number], [(10 + event, b"x" * 400)])
        for number, store in enumerate(stores):
            assert (await stored(store, KEY, f"s{number}"))[-1] == b"x" * 400, (
                "the newest event is always there"
            )
        assert 0 < (await stores[0].totals()).log_bytes <= 10_000
