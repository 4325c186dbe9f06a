"""The cost of a call on Redis, counted by Redis itself."""

import re
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Final

from limpet.stores.base import Claim, Claimed
from limpet.stores.redis import scripts as scripts_module
from limpet.stores.redis.link import Single
from limpet.stores.redis.scripts import scripts
from limpet.stores.redis.store import RedisStore
from limpet.testing import VirtualClock
from limpet.testing.store.bench import KEY, PRINCIPAL, record
from tests.redis_server import RedisServer
from tests.support import async_test

DEFINED: Final = re.compile(r"^local function (\w+)", re.MULTILINE)
USED: Final = re.compile(r"(local function )?(?<![.:\w])(\w+)\(")
LUA: Final = Path(scripts_module.__file__).parent / "lua"
FUNCTIONS: Final = {name for file in LUA.glob("*.lua") for name in DEFINED.findall(file.read_text())}
MARK: Final = re.compile(r"^--## (\w+):", re.MULTILINE)


SMALL: Final = "#!lua\nreturn redis.call('HMGET', KEYS[1], 'a', 'b', ARGV[1])"


def spent(server: RedisServer) -> int:
    """Return the microseconds that Redis has spent in scripts."""
    (line,) = [
        line
        for line in server.tell("INFO", "commandstats").splitlines()
        if line.startswith("cmdstat_evalsha:")
    ]
    return int(line.split("usec=")[1].split(",")[0])


def commands(server: RedisServer) -> dict[str, int]:
    """Return how often each command came from outside a script or inside one."""
    lines = server.tell("INFO", "commandstats").splitlines()
    pairs = (line.removeprefix("cmdstat_").split(":calls=") for line in lines if ":calls=" in line)
    return {name: int(rest.split(",")[0]) for name, rest in pairs}


@async_test
async def test_a_plain_call_is_two_scripts_and_two_round_trips(server: RedisServer) -> None:
    store = RedisStore(server.url)
    async with aclosing(store):
        link = store._link
        assert isinstance(link, Single)
        await store.open(record(), evict=False)

        async def call(number: int) -> None:
            claimed = await store.claim(KEY, PRINCIPAL, Claim(number, f"s{number}", b"digest"))
            assert isinstance(claimed, Claimed)
            await store.settle(KEY, f"s{number}", claimed.fence, None)

        await call(0)
        sent, writes = link.pipeline.sent, link.pipeline.writes
        server.tell("CONFIG", "RESETSTAT")
        for number in range(1, 101):
            await call(number)
        counted = commands(server)
        assert (link.pipeline.sent - sent, link.pipeline.writes - writes) == (200, 200)
        del counted["config|resetstat"]
        inside = {"hget": 200, "hset": 200, "hdel": 100}
        assert counted == {"evalsha": 200, **inside}, "a stream that never was costs nothing"


@async_test
async def test_a_plain_call_takes_redis_no_longer_than_thirteen_small_scripts(server: RedisServer) -> None:
    """Both are measured in turns, and the smallest of many rounds counts: a busy machine delays both.

    The ratio is between 8 and 11, by the machine: a small script profits more from a warm cache.
    """
    store = RedisStore(server.url)
    async with aclosing(store):
        link = store._link
        assert isinstance(link, Single)
        await store.open(record(), evict=False)
        small = await link.pipeline.execute("SCRIPT", "LOAD", SMALL)

        async def call(number: int) -> None:
            claimed = await store.claim(KEY, PRINCIPAL, Claim(number, f"s{number}", b"d" * 32))
            assert isinstance(claimed, Claimed)
            await store.settle(KEY, f"s{number}", claimed.fence, None)

        async def script(_: int) -> None:
            await link.pipeline.execute("EVALSHA", small, 1, "a key", "an argument")

        async def microseconds(work: Callable[[int], Awaitable[None]], numbers: range) -> float:
            server.tell("CONFIG", "RESETSTAT")
            for number in numbers:
                await work(number)
            return spent(server) / len(numbers)

        await call(0)
        rounds = [range(start, start + 50) for start in range(1, 1_000, 50)]
        calls, scripts_ = zip(
            *[(await microseconds(call, numbers), await microseconds(script, numbers)) for numbers in rounds],
            strict=True,
        )
        assert min(calls) <= 13 * min(scripts_), (sorted(calls)[:3], sorted(scripts_)[:3])


@async_test
async def test_the_time_to_live_is_set_again_when_half_of_the_slack_is_used(server: RedisServer) -> None:
    clock = VirtualClock()
    store = RedisStore(server.url, clock=clock)
    async with aclosing(store):
        await store.open(record(idle=10_000.0, grace=1.0, lifetime=100_000.0), evict=False)
        main = f"{store.key(KEY)}"
        server.tell("PEXPIRE", main, "60000")
        clock.advance(1_790)
        assert await store.find(KEY, PRINCIPAL) is not None
        assert int(server.tell("PTTL", main)) <= 60_000, "not by each command"
        clock.advance(20 + 10_000)
        assert await store.find(KEY, PRINCIPAL) is not None
        assert int(server.tell("PTTL", main)) > 13_600_000 - 60_000


@async_test
async def test_the_first_call_costs_the_same_where_its_session_was_opened(server: RedisServer) -> None:
    store, other, warm = (RedisStore(server.url, replica=name) for name in ("one", "two", "three"))
    async with aclosing(store), aclosing(other), aclosing(warm):
        await store.open(record(), evict=False)
        loaded = await warm.claim(KEY, PRINCIPAL, Claim(0, "s0", b""))
        assert isinstance(loaded, Claimed)
        await warm.settle(KEY, "s0", loaded.fence, None)
        for replica, number, round_trips in ((store, 1, 2), (other, 2, 4), (other, 3, 2)):
            link = replica._link
            assert isinstance(link, Single)
            await replica.sessions()
            before = link.pipeline.writes
            claimed = await replica.claim(KEY, PRINCIPAL, Claim(number, f"s{number}", b""))
            assert isinstance(claimed, Claimed)
            await replica.settle(KEY, f"s{number}", claimed.fence, None)
            # Elsewhere the first one lets reapers know where to look, once for each session and replica.
            assert link.pipeline.writes - before == round_trips


@async_test
async def test_scripts_are_sent_once_and_again_after_redis_forgot_them(server: RedisServer) -> None:
    server.tell("SCRIPT", "FLUSH")
    server.tell("CONFIG", "RESETSTAT")
    store = RedisStore(server.url)
    async with aclosing(store):
        await store.open(record(), evict=False)
        for _ in range(5):
            assert await store.find(KEY, PRINCIPAL) is not None
        assert commands(server)["eval"] == 3
        server.tell("SCRIPT", "FLUSH")
        assert await store.find(KEY, PRINCIPAL) is not None
        assert commands(server)["eval"] == 4


def test_every_section_is_a_script_of_its_own_that_is_used() -> None:
    package = Path(scripts_module.__file__).parent
    sections = [name for file in package.glob("lua/*.lua") for name in MARK.findall(file.read_text())]
    assert sorted([*sections, "commit_end", "swap_task_end"]) == sorted(scripts())
    used = "".join(file.read_text() for file in package.glob("*.py"))
    assert [name for name in sections if f'"{name}"' not in used] == []
