"""The keys in Redis: under a namespace, with an expiry, without a client's text, and deleted with the sessions."""

import asyncio
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis

from limpet.config import Limits
from limpet.core.lifecycle import SessionInput
from limpet.errors import ConfigError, StoreUnavailable
from limpet.stores.base import LINGER_SECONDS, Attached, Claim, Claimed, Refusal
from limpet.stores.redis.store import RedisStore
from limpet.testing import NotingObserver, VirtualClock
from limpet.testing.store.bench import IDLE, KEY, PRINCIPAL, record
from tests.redis_server import RedisServer
from tests.support import BOUND, async_test, until


async def use_everything(store: RedisStore, key: str = KEY) -> None:
    await store.renew(10)
    await store.open(record(key), evict=True)
    claimed = await store.claim(key, PRINCIPAL, Claim("tell me a secret", "a", b"d"))
    assert isinstance(claimed, Claimed)
    await store.open_stream(key, "a", claimed.fence, 1)
    await store.append(key, "a", claimed.fence, [(2, b"x" * 5_000)])
    await store.ask(key, "a.1", "a")
    await store.answer(key, PRINCIPAL, "a.1", b"d", b"{}")
    await store.set_state(key, "f", b"1", op="o1")
    await store.add_state(key, "f", 1, op="o2")
    await store.subscribe(key, "file:///home/alice")
    reader = await store.attach(key, PRINCIPAL, None, None)
    assert isinstance(reader, Attached)
    await store.append(key, "", -1, [(3, b"{}")])
    await store.settle(key, "a", claimed.fence, b"last", tag=4)
    await store.keep(key, "b", Claim(2, "b", b""), b"kept", tag=5)
    await store.detach(key, f"{key}-standalone", reader.generation, None, broke=True)


async def shared_things(store: RedisStore) -> None:
    await store.open_area("area", PRINCIPAL, 60)
    await store.set_state("area", "f", b"1", op="o1")
    await store.open_task("task", PRINCIPAL, b"{}", ttl=60)
    await store.forward(store.replica, "f", b"{}", seconds=60)
    await store.announce("a", b"{}")
    await store.secret("seal", b"key", seconds=60)


ADD = (
    "local t = cmsgpack.unpack(redis.call('HGET', KEYS[1], 'h')) t[#t + 1] = 'kept' "
    "redis.call('HSET', KEYS[1], 'h', cmsgpack.pack(t))"
)
"""A later release's member at the end of the head of the state."""
MEMBERS = ("m", "x:a", "l:a", "a:a.1")
"""Structures, at whose end a later release may add members."""
ADD_NUMBER = "redis.call('HSET', KEYS[1], 'n', redis.call('HGET', KEYS[1], 'n') .. 'number')"
READ_NUMBER = "return string.sub(redis.call('HGET', KEYS[1], 'n'), -6)"
READ = "local t = cmsgpack.unpack(redis.call('HGET', KEYS[1], 'h')) return t[#t]"


def keys(server: RedisServer) -> list[str]:
    return server.tell("KEYS", "*").splitlines()


@async_test
async def test_every_key_has_an_end(server: RedisServer) -> None:
    store = RedisStore(server.url, namespace="ttl")
    async with aclosing(store):
        await use_everything(store)
        await shared_things(store)
        await store.open(record("second"), evict=False)
        await store.close("second", SessionInput.DELETED)
        await store.sweep()
        found = keys(server)
        assert len(found) > 20
        assert [key for key in found if int(server.tell("PTTL", key)) <= 0] == []


@async_test
async def test_every_key_has_namespace_and_format_and_no_clients_words(server: RedisServer) -> None:
    store = RedisStore(server.url, namespace="mine")
    async with aclosing(store):
        await use_everything(store)
        await shared_things(store)
        found = keys(server)
        assert [key for key in found if not key.startswith("lp:1:mine:{")] == ["lp:0:mine:{*}:format"]
        assert not any("secret me" in key or "alice" in key or "tell" in key for key in found)


@async_test
async def test_an_expired_handle_leaves_no_key(server: RedisServer) -> None:
    store = RedisStore(server.url, namespace="handles")
    async with aclosing(store):
        await store.open_area("area", PRINCIPAL, 60)
        await store.set_state("area", "f", b"1", op="o1")
        found = [key for key in keys(server) if "{area}" in key]
        assert len(found) == 2
        assert [key for key in found if not 0 < int(server.tell("PTTL", key)) <= 60_000] == []
        await store.open_area("short", PRINCIPAL, 0.05)
        await store.set_state("short", "f", b"1", op="o1")
        await until(lambda: not [key for key in keys(server) if "{short}" in key])


@async_test
async def test_nothing_remains_after_all_sessions_ended(server: RedisServer) -> None:
    store = RedisStore(server.url)
    async with aclosing(store):
        for number in range(10):
            await use_everything(store, f"k{number}")
        for number in range(10):
            closed = await store.close(f"k{number}", SessionInput.DELETED)
            assert closed is not None
            await store.closing_reported(closed)
        await store.release()
        # A stream that has a reader can be read to its end.
        left = [
            key for key in keys(server) if not 0 < int(server.tell("PTTL", key)) <= LINGER_SECONDS * 1_000
        ]
        assert sorted(left) == ["lp:0:default:{*}:format", "lp:1:default:{*}:incarnations"]


@async_test
async def test_every_channel_has_namespace_and_format(server: RedisServer) -> None:
    store, other = (RedisStore(server.url, namespace="mine", replica=name) for name in ("one", "two"))
    async with aclosing(store), aclosing(other):
        client: Redis = Redis.from_url(server.url)
        async with aclosing(client):
            async with client.pubsub(ignore_subscribe_messages=True) as heard:
                await heard.psubscribe("*")
                await heard.get_message(timeout=1)
                await use_everything(store)
                await shared_things(store)
                await other.renew(10)
                await other.open(record("second"), evict=False)
                claimed = await other.claim("second", PRINCIPAL, Claim(1, "z", b""))
                assert isinstance(claimed, Claimed)
                await store.cancel("second", PRINCIPAL, 1)
                await store.close(KEY, SessionInput.DELETED)
                await client.publish("end", "")
                channels = set()
                while b"end" not in channels:
                    message = await heard.get_message(timeout=BOUND)
                    assert message is not None
                    channels.add(message["channel"])
            assert channels - {b"end"} == {b"lp:1:mine:bell", b"lp:1:mine:bell:one", b"lp:1:mine:bell:two"}


@async_test
async def test_keys_outside_of_sessions_stay_in_their_namespace_too(server: RedisServer) -> None:
    mine, other = RedisStore(server.url, namespace="mine"), RedisStore(server.url, namespace="other")
    async with aclosing(mine), aclosing(other):
        await mine.renew(10)
        await shared_things(mine)
        assert await mine.find_area("area", PRINCIPAL)
        assert not await other.find_area("area", PRINCIPAL)
        assert await mine.get_task("task", PRINCIPAL) is not None
        assert await other.get_task("task", PRINCIPAL) is None
        assert await other.secret("seal", b"another", seconds=60) == b"another"
        assert await other.replicas() == {}
        assert not await other.forward(mine.replica, "f", b"{}", seconds=60)
        assert (await other.announced("0-1")).events == []
        assert (await mine.announced("0-1")).events == [b"{}"]


@async_test
async def test_with_a_later_format_in_the_store_no_replica_starts_and_running_ones_may_finish(
    server: RedisServer,
) -> None:
    clock = VirtualClock()
    old, late = (
        RedisStore(server.url, clock=clock, namespace="mine", replica=name) for name in ("old", "late")
    )
    async with aclosing(old), aclosing(late):
        await old.renew(10)
        await old.open(record(), evict=False)
        server.tell("SET", "lp:0:mine:{*}:format", "6")
        with pytest.raises(StoreUnavailable, match=r"later Limpet.*format 6, this one knows 1.*upgrade"):
            await late.renew(10)
        clock.advance(9)
        assert await old.renew(10) == old.incarnation
        assert isinstance(await old.claim(KEY, PRINCIPAL, Claim(1, "a", b"")), Claimed)
        assert server.tell("GET", "lp:0:mine:{*}:format") == "6", "it does not take the mark away"
        await old.release()
        with pytest.raises(StoreUnavailable, match="later Limpet"):
            await old.renew(10)
        elsewhere = RedisStore(server.url, clock=clock, namespace="other")
        async with aclosing(elsewhere):
            await elsewhere.renew(10)


@async_test
async def test_replicas_of_two_formats_warn_and_name_both_once(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, notes = VirtualClock(), NotingObserver()
    monkeypatch.setattr(RedisStore, "format", 5)
    store = RedisStore(server.url, clock=clock, namespace="mine", observer=notes)

    async with aclosing(store):

        async def warned(*others: int) -> bool:
            await store.renew(10)
            await store.renew(10)
            return [(one["format"], one["other"]) for one in notes.named("store.formats")] == [
                (5, n) for n in others
            ]

        assert await warned()
        server.tell("ZADD", "lp:4:other:{*}:rep", "99999999999999", "a.1")
        server.tell("ZADD", "lp:4:mine:{*}:rep", "1", "dead.1")
        assert await warned(), "another namespace, and a lease that has ended"
        server.tell("ZADD", "lp:4:mine:{*}:rep", "99999999999999", "old.1")
        assert await warned(4)
        server.tell("ZREM", "lp:4:mine:{*}:rep", "old.1")
        assert await warned(4)
        server.tell("SET", "lp:0:mine:{*}:format", "6")
        assert await warned(4, 6)


@async_test
async def test_a_later_format_leaves_its_mark(server: RedisServer) -> None:
    store = RedisStore(server.url, namespace="mine")
    async with aclosing(store):
        await store.renew(10)
        assert server.tell("GET", "lp:0:mine:{*}:format") == "1"
        later = RedisStore(server.url, namespace="mine")
        later._prefix = "lp:6:mine:"
        async with aclosing(later):
            await later.renew(10)
            assert server.tell("GET", "lp:0:mine:{*}:format") == "6"
            assert await store.renew(10) == store.incarnation
            assert server.tell("GET", "lp:0:mine:{*}:format") == "6"


@async_test
async def test_fields_that_this_release_does_not_know_are_kept_when_it_writes(server: RedisServer) -> None:
    store = RedisStore(server.url, namespace="mine")
    async with aclosing(store):
        await store.renew(10)
        await store.open(record(), evict=False)
        claimed = await store.claim(KEY, PRINCIPAL, Claim(1, "a", b"d"))
        assert isinstance(claimed, Claimed)
        main = f"lp:1:mine:{{{KEY}}}"
        await store.open_stream(KEY, "a", claimed.fence, 1)
        await store.ask(KEY, "a.1", "a")
        server.tell("HSET", main, "later", "kept")
        await store.add_state(KEY, "n", 1, op="1")
        server.tell("EVAL", ADD, "1", f"{main}:k")
        await store.add_state(KEY, "n", 1, op="2")
        client: Redis = Redis.from_url(server.url)

        async with aclosing(client):

            async def members(field: str) -> list[Any]:
                value: Any = await client.hget(main, field)
                return msgspec.msgpack.decode(value, type=list[Any])

            before = {field: await members(field) for field in MEMBERS}
            for field, known in before.items():
                await client.hset(main, field, msgspec.msgpack.encode([*known, "kept"]))
            server.tell("EVAL", ADD_NUMBER, "1", main)
            await store.subscribe(KEY, "file:///x")
            await store.change(KEY, level="error")
            await store.append(KEY, "a", claimed.fence, [(2, b"{}")])
            await store.answer(KEY, PRINCIPAL, "a.1", b"d", b"{}")
            await store.find(KEY, PRINCIPAL)
            for field, known in before.items():
                after = await members(field)
                assert (len(after), after[-1], after[:-1] != known) == (
                    len(known) + 1,
                    "kept",
                    field != "x:a",
                ), field
            await store.settle(KEY, "a", claimed.fence, b"last", tag=3)
            ended = await members("x:a")
            assert ended[-1] == "kept"
            assert ended[:-1] != before["x:a"]
            assert server.tell("EVAL", READ, "1", f"{main}:k") == "kept"
            assert server.tell("HGET", main, "later") == "kept"
            assert server.tell("EVAL", READ_NUMBER, "1", main) == "number"
            other = RedisStore(server.url, namespace="mine", replica="other")
            async with aclosing(other):
                for number, replica in enumerate((other, store) * 2):
                    assert isinstance(
                        await replica.claim(KEY, PRINCIPAL, Claim(f"n{number}", f"s{number}", b"d")), Claimed
                    )
                assert server.tell("EVAL", READ_NUMBER, "1", main) == "number", (
                    "also where two replicas write"
                )


@async_test
async def test_a_session_of_one_namespace_does_not_exist_in_another(server: RedisServer) -> None:
    mine, other = RedisStore(server.url, namespace="mine"), RedisStore(server.url, namespace="other")
    async with aclosing(mine), aclosing(other):
        await use_everything(mine)
        assert await other.find(KEY, PRINCIPAL) is None
        assert await other.claim(KEY, PRINCIPAL, Claim(1, "z", b"")) is Refusal.NO_SESSION
        assert await other.attach(KEY, PRINCIPAL, "a", None) is Refusal.NO_SESSION
        assert await other.sessions() == []
        assert await other.close(KEY, SessionInput.DELETED) is None
        assert await mine.sessions() == [KEY]


@async_test
async def test_a_namespace_that_could_be_mistaken_for_another_is_refused(server: RedisServer) -> None:
    for name in ("", "a:b", "{x}", "a b", "x" * 65):
        try:
            RedisStore(server.url, namespace=name)
        except ConfigError:
            continue
        raise AssertionError(name)


@async_test
async def test_a_session_whose_keys_are_gone_leaves_no_hint(server: RedisServer) -> None:
    clock = VirtualClock()
    store = RedisStore(server.url, clock=clock)
    async with aclosing(store):
        await store.open(record(), evict=False)
        server.tell("DEL", f"lp:1:default:{{{KEY}}}")
        assert await store.sessions() == [KEY]
        clock.advance(IDLE)
        assert await store.sweep() == []
        assert await store.sessions() == []


@async_test
async def test_a_session_that_lives_on_keeps_everything_it_has(server: RedisServer) -> None:
    clock = VirtualClock()
    store = RedisStore(server.url, clock=clock)
    async with aclosing(store):
        await use_everything(store)
        found = [key for key in keys(server) if f"{{{KEY}}}" in key]
        assert len(found) > 5
        for key in found:
            server.tell("PEXPIRE", key, "60000")
        clock.advance(IDLE - 1)
        await store.find(KEY, PRINCIPAL)
        clock.advance(2)
        assert await store.sweep() == []
        assert [key for key in found if int(server.tell("PTTL", key)) < 3_600_000] == []


@async_test
async def test_by_the_clock_of_redis_a_hint_that_came_too_early_is_put_back_exactly(
    server: RedisServer,
) -> None:
    store = RedisStore(server.url)
    async with aclosing(store):
        opened = record(idle=1.0, lifetime=100.0)
        await store.open(opened, evict=False)
        await store.attach(KEY, PRINCIPAL, None, None)
        await asyncio.sleep(1.05)  # real time is the subject: the idle time passes by the clock of Redis
        assert await store.sweep() == []
        score = float(server.tell("ZSCORE", "lp:1:default:{*}:due", KEY))
        assert score == int(score), "no sweep looks at it any more"
        assert 90_000 < score - float(server.tell("TIME").split()[0]) * 1000 < 101_000


@async_test
async def test_of_many_sessions_the_longest_idle_one_is_evicted(server: RedisServer) -> None:
    clock = VirtualClock()
    store = RedisStore(server.url, Limits(sessions_per_principal=250), clock)
    async with aclosing(store):
        for number in range(250):
            await store.open(record(f"k{number}", idle=1e6, lifetime=1e6), evict=True)
            clock.advance(1)
        for number in [*range(120), *range(130, 250)]:
            await store.find(f"k{number}", PRINCIPAL)
            clock.advance(1)
        await store.attach("k120", PRINCIPAL, None, None)
        for number in range(3):
            closed = await store.open(record(f"new{number}", idle=1e6, lifetime=1e6), evict=True)
            assert not isinstance(closed, Refusal)
            assert [one.record.key for one in closed] == [f"k{121 + number}"]


@async_test
async def test_the_record_of_readers_does_not_grow_with_their_number(server: RedisServer) -> None:
    store = RedisStore(server.url, namespace="readers")
    async with aclosing(store):
        await store.open(record(), evict=False)
        sizes = []
        for _ in range(3):
            for _ in range(20):
                await store.attach(KEY, PRINCIPAL, None, None)
            sizes.append(int(server.tell("HSTRLEN", f"{store.key(KEY)}", f"x:{record().standalone}")))
        # Numbers grow by a byte or two; twenty operations by hundreds.
        assert sizes[2] - sizes[1] < 40
        assert sizes[0] > 0
