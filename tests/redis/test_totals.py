"""One principal cannot fill Redis for the others: its kept data has a total, counted in the shared slot (stores/redis/state.py)."""

import asyncio
import contextlib
import json
import random
from contextlib import aclosing
from typing import Any, Final

import pytest

from limpet.core.ledger import Ledger
from limpet.core.lifecycle import SessionInput
from limpet.core.rules.state import ENTRY_BYTES, growth
from limpet.errors import SessionGone, StateError
from limpet.stores.redis.core import hashed
from limpet.stores.redis.link import Single
from limpet.stores.redis.store import RedisStore
from limpet.stores.shared.commit import Commit, Reply
from limpet.testing.store.bench import record
from limpet.testing.store.limits import tight
from tests.redis.links import Lossy
from tests.redis_server import RedisServer
from tests.support import all_closed, async_test

SHARED: Final = "lp:1:default:{*}"
TOTAL: Final = 100_000
FACTS: Final = """
local fields, head, bytes = redis.call('HGETALL', KEYS[1] .. ':k'), nil, 0
for index = 1, #fields, 2 do
  if fields[index] == 'h' then head = cmsgpack.unpack(fields[index + 1]) end
  local value = string.match(fields[index], '^f:%Z') and string.match(fields[index + 1], '^%d+ (.*)$')
  if value then bytes = bytes + #fields[index] - 2 + #value + 256 end
end
if not head then return '' end
return cjson.encode({al = head[6], av = head[7], bytes = bytes, subs = head[5] - bytes})
"""
"""The kept data of a session or handle, counted from the stored keys, and its allowance."""


def kept(server: RedisServer, key: str) -> dict[str, int]:
    told = server.tell("EVAL", FACTS, "1", f"lp:1:default:{{{key}}}")
    return json.loads(told) if told else {"al": 0, "av": 0, "bytes": 0, "subs": 0}


def granted(server: RedisServer, key: str) -> int:
    told = server.tell("HGET", f"{SHARED}:kept", key)
    return int(told.split()[0]) if told else 0


def total(server: RedisServer, principal: str) -> int:
    return int(server.tell("HGET", f"{SHARED}:kp", hashed(principal)) or 0)


async def attack(
    store: RedisStore, dice: random.Random, keys: list[str], handles: list[str], steps: int
) -> None:
    """Use each command by which a store keeps data, and sometimes remove the data."""
    for step in range(steps):
        key, size, name = dice.choice(keys), dice.randrange(1, 6_000), f"{store.replica}{step}"
        with contextlib.suppress(StateError):
            match dice.randrange(5):
                case 0 | 1:
                    where = dice.choice([*keys, *handles])
                    await store.set_state(where, f"f{dice.randrange(9)}", b"x" * size, op=name)
                case 2:
                    where = dice.choice([*keys, *handles])
                    await store.set_state(where, f"f{dice.randrange(9)}", None, op=name)
                case 3:
                    await store.subscribe(key, f"test://{dice.randrange(30)}/{'x' * (size // 10)}")
                case _:
                    await store.unsubscribe(key, f"test://{dice.randrange(30)}/{'x' * (size // 10)}")


@async_test
async def test_the_state_that_a_process_knows_is_charged(server: RedisServer) -> None:
    store, ledger = RedisStore(server.url), Ledger(80_000_000)
    async with aclosing(store):
        store.charge_all(ledger)
        await store.open(record("k"), evict=False)
        for number in range(10):
            await store.set_state("k", f"f{number}", b"x" * 20_000, op=f"{number}")
        assert 200_000 < ledger.used < 260_000


@pytest.mark.parametrize("seed", range(3))
@async_test
async def test_a_hostile_principal_stays_within_its_total_and_does_not_use_anothers(
    server: RedisServer, seed: int
) -> None:
    limits = tight(principal_kept_bytes=TOTAL)
    replicas = [RedisStore(Lossy(server.url, seed * 10 + n), limits, replica=f"r{n}") for n in range(3)]
    first = replicas[0]
    async with all_closed(*replicas):
        keys, handles = [f"h{number}" for number in range(6)], [f"handle{number}" for number in range(3)]
        for key in keys:
            await first.open(record(key, "hostile"), evict=False)
        for handle in handles:
            assert await first.open_area(handle, "hostile", 600)
        await first.open(record("modest", "modest"), evict=False)
        dice = random.Random(seed)
        attacks = [attack(store, random.Random(dice.random()), keys, handles, 120) for store in replicas]
        writes = [first.set_state("modest", f"f{n}", b"y" * 8_000, op=f"{n}") for n in range(10)]
        await asyncio.gather(*attacks, *writes)
        used = 0
        for key in [*keys, *handles]:
            found = kept(server, key)
            real = found["bytes"] + found["subs"]
            assert real <= found["al"] <= granted(server, key), (key, found)
            used += real
        assert used <= total(server, "hostile") <= TOTAL
        assert kept(server, "modest")["bytes"] == 10 * (8_000 + 2 + ENTRY_BYTES)
        for key in [*keys, "modest"]:
            assert await first.close(key, SessionInput.DELETED) is not None
        for handle in handles:
            server.tell("ZADD", f"{SHARED}:areas", "1", handle)
        await first.sweep()
        assert server.tell("EXISTS", f"{SHARED}:kept", f"{SHARED}:kp") == "0", "nothing is counted forever"


@async_test
async def test_a_late_message_never_leaves_the_shared_slot_with_less_than_a_session_may_use(
    server: RedisServer,
) -> None:
    store = RedisStore(server.url, tight(principal_kept_bytes=TOTAL))
    async with aclosing(store):
        await store.open(record("s", "p"), evict=False)
        await store.set_state("s", "f", b"x" * 5_000, op="1")
        await store.set_state("s", "f", None, op="2")
        now = kept(server, "s")
        assert (now["av"], granted(server, "s")) == (1, now["al"])
        await store.set_state("s", "f", b"x" * 9_000, op="3")
        may = granted(server, "s")
        assert may >= 9_000
        await store.index("lower", "s", 10, 1)
        assert granted(server, "s") == may, "a report that was overtaken by a grant"
        late = RedisStore(server.url, tight(principal_kept_bytes=TOTAL))
        await late.set_state("s", "g", b"x", op="4")
        head = late._states["s"].head
        head.allowed, head.lowered = 0, 0
        may = granted(server, "s")
        assert await late._more_room("s", head, 6_000)
        assert (head.allowed, head.lowered) == (may, 1), "a request from before a report"
        await late.aclose()
        _, _, again, count = await store.index("grant", "s", hashed("p"), 6_000, 6_000, 0, TOTAL, 60_000)
        assert (again, count) == (may, 1), "an old request lowers nothing"
        assert total(server, "p") == may


@async_test
async def test_a_session_that_ends_while_it_asks_for_room_leaves_no_charge(server: RedisServer) -> None:
    store = RedisStore(server.url)
    await store.open(record("s", "p"), evict=False)
    send = store.send
    closed: list[Any] = []

    async def closed_before_the_write(script: str, key: str, *arguments: Any) -> Any:
        if script == "write_state":
            closed.append(await store.close("s", SessionInput.DELETED))
        return await send(script, key, *arguments)

    store.send = closed_before_the_write  # type: ignore[assignment]
    async with aclosing(store):
        with pytest.raises(SessionGone):
            await store.set_state("s", "f", b"x", op="1")
        assert len(closed) == 1
        assert server.tell("EXISTS", f"{SHARED}:kept", f"{SHARED}:kp") == "0"


@async_test
async def test_most_changes_of_state_need_no_grant(server: RedisServer) -> None:
    store = RedisStore(server.url)
    async with aclosing(store):
        link = store._link
        assert isinstance(link, Single)
        await store.open(record("s", "p"), evict=False)
        for number in range(100):
            await store.set_state("s", f"f{number}", b"x" * 100, op=f"{number}")
        sent = link.pipeline.sent
        for number in range(100):
            await store.set_state("s", f"f{number}", b"y" * 100, op=f"again{number}")
        assert link.pipeline.sent - sent == 100
        assert sent < 150


@async_test
async def test_the_room_of_a_subscription_counts_once_although_every_reply_is_lost(
    server: RedisServer,
) -> None:
    store = RedisStore(Lossy(server.url, 1, replies=1.0, commands=0.0))
    async with aclosing(store):
        await store.open(record("s", "p"), evict=False)
        for _ in range(2):
            assert await store.subscribe("s", "file:///a")
            assert kept(server, "s")["subs"] == growth(None, len("file:///a"))
            assert await store.subscribe("s", "file:///b")
            await store.unsubscribe("s", "file:///b")
            assert kept(server, "s")["subs"] == growth(None, len("file:///a"))
            await store.unsubscribe("s", "file:///a")
            assert kept(server, "s")["subs"] == 0


@async_test
async def test_subscriptions_of_one_uri_at_once_are_held_once(server: RedisServer) -> None:
    replicas = [RedisStore(server.url, replica=f"r{number}") for number in range(2)]
    async with all_closed(*replicas):
        await replicas[0].open(record("s", "p"), evict=False)
        for _ in range(2):
            assert all(await asyncio.gather(*(store.subscribe("s", "file:///a") for store in replicas * 3)))
            assert kept(server, "s")["subs"] == growth(None, len("file:///a"))
            await asyncio.gather(*(replicas[0].unsubscribe("s", "file:///a") for _ in range(3)))
            assert kept(server, "s")["subs"] == 0


@pytest.mark.parametrize("is_applied", [False, True])
@async_test
async def test_a_subscription_that_is_cancelled_holds_what_it_keeps(
    server: RedisServer, is_applied: bool
) -> None:
    store = RedisStore(server.url)
    real = store.commit

    async def cancelled(key: str, commit: Commit) -> Reply:
        store.commit = real  # type: ignore[method-assign]
        if is_applied:
            await real(key, commit)
        raise asyncio.CancelledError

    async with aclosing(store):
        await store.open(record("s", "p"), evict=False)
        store.commit = cancelled  # type: ignore[method-assign]
        with pytest.raises(asyncio.CancelledError):
            await store.subscribe("s", "file:///a")
        await asyncio.gather(*store._rounds)
        assert kept(server, "s")["subs"] == (growth(None, len("file:///a")) if is_applied else 0)
        assert await store.subscriptions("s") == (["file:///a"] if is_applied else [])
