"""What a call costs on Redis, counted by Redis itself."""

import re
from pathlib import Path
from typing import Final

from holdfast.stores.base import Claim, Claimed
from holdfast.stores.redis import scripts as scripts_module
from holdfast.stores.redis.link import Single
from holdfast.stores.redis.scripts import scripts
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.store.bench import KEY, PRINCIPAL, record
from tests.redis_server import RedisServer
from tests.support import async_test

MARK: Final = re.compile(r"^--## (\w+):", re.MULTILINE)


def commands(server: RedisServer) -> dict[str, int]:
    """Return how often each command came from outside a script or inside one."""
    lines = server.tell("INFO", "commandstats").splitlines()
    pairs = (line.removeprefix("cmdstat_").split(":calls=") for line in lines if ":calls=" in line)
    return {name: int(rest.split(",")[0]) for name, rest in pairs}


@async_test
async def test_a_plain_call_is_two_scripts_and_two_round_trips(server: RedisServer) -> None:
    store = RedisStore(server.url)
    link = store._link
    assert isinstance(link, Single)
    await store.open(record(), evict=False)

    async def call(number: int) -> None:
        claimed = await store.claim(KEY, PRINCIPAL, Claim(number, f"s{number}", b"digest"))
        assert isinstance(claimed, Claimed)
        await store.settle(KEY, f"s{number}", claimed.fence, None)

    await call(0)
    sent, writes = link.pipe.sent, link.pipe.writes
    server.tell("CONFIG", "RESETSTAT")
    for number in range(1, 101):
        await call(number)
    counted = commands(server)
    assert (link.pipe.sent - sent, link.pipe.writes - writes) == (200, 200)
    assert counted["evalsha"] == 200
    assert not {"xadd", "publish", "zadd", "eval"} & counted.keys(), "a stream that never was costs nothing"
    outside = ("evalsha", "config", "info")
    inside = sum(number for name, number in counted.items() if not name.startswith(outside))
    assert inside <= 100 * 11, "commands inside the two scripts of each call"
    await store.aclose()


@async_test
async def test_the_first_call_costs_the_same_where_its_session_was_opened(server: RedisServer) -> None:
    store, other, warm = (RedisStore(server.url, replica=name) for name in ("one", "two", "three"))
    await store.open(record(), evict=False)
    assert isinstance(await warm.claim(KEY, PRINCIPAL, Claim(0, "s0", b"")), Claimed)
    for replica, number, round_trips in ((store, 1, 2), (other, 2, 4), (other, 3, 2)):
        link = replica._link
        assert isinstance(link, Single)
        await replica.sessions()
        before = link.pipe.writes
        claimed = await replica.claim(KEY, PRINCIPAL, Claim(number, f"s{number}", b""))
        assert isinstance(claimed, Claimed)
        await replica.settle(KEY, f"s{number}", claimed.fence, None)
        # Elsewhere the first one lets reapers know where to look, once for each session and replica.
        assert link.pipe.writes - before == round_trips
    for one in (store, other, warm):
        await one.aclose()


@async_test
async def test_scripts_are_sent_once_and_again_after_redis_forgot_them(server: RedisServer) -> None:
    server.tell("SCRIPT", "FLUSH")
    server.tell("CONFIG", "RESETSTAT")
    store = RedisStore(server.url)
    await store.open(record(), evict=False)
    for _ in range(5):
        assert await store.find(KEY, PRINCIPAL) is not None
    assert commands(server)["eval"] == 3
    server.tell("SCRIPT", "FLUSH")
    assert await store.find(KEY, PRINCIPAL) is not None
    assert commands(server)["eval"] == 4
    await store.aclose()


def test_every_section_is_a_script_of_its_own_that_is_used() -> None:
    package = Path(scripts_module.__file__).parent
    sections = [name for file in package.glob("lua/*.lua") for name in MARK.findall(file.read_text())]
    assert sorted(sections) == sorted(scripts())
    used = "".join(file.read_text() for file in package.glob("*.py"))
    assert [name for name in sections if f'"{name}"' not in used] == []
