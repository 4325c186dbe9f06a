"""What a session and its answers take of the process's memory, and what happens without room for them."""

import asyncio
import contextlib
from contextlib import aclosing
from typing import Any, Final

import pytest

from limpet.config import Limits, Settings
from limpet.core.empty_table import EMPTY
from limpet.core.ledger import Ledger
from limpet.core.lifecycle import SessionInput
from limpet.core.records import Claim, Claimed, Refusal
from limpet.engine.caller import Caller
from limpet.engine.engine import Engine
from limpet.engine.exchange import Exchange, SessionExchange
from limpet.engine.load import Load
from limpet.engine.outcome import Outcome
from limpet.engine.sessions import Opened
from limpet.engine.task_ends import KEPT_SECONDS, TaskEnds
from limpet.errors import OUTCOME_UNKNOWN, StateError, TooManySessions
from limpet.stores.base import LINGER_SECONDS
from limpet.stores.memory import MemoryStore
from limpet.testing import ScriptedBack
from limpet.testing.clock import VirtualClock
from limpet.testing.store.bench import KEY, Bench, record
from limpet.testing.store.sessions import ENDING
from limpet.wire.jsonrpc import Request
from tests.messages import initialize
from tests.support import until, virtual_test
from tests.unit.engine.harness import CALL, CALLER, engine_harness, engine_test
from tests.unit.fronts.http.bench import bench, front_test

MEMORY: Final = 4_000_000


@virtual_test
async def test_the_description_of_a_client_is_charged_decoded_while_its_session_is_open() -> None:
    engine = Engine(ScriptedBack(), Settings(limits=Limits(memory=MEMORY)))
    async with aclosing(engine):
        await engine.ensure_started()
        ledger, caller = engine.load.ledger, Caller("ann")
        opened: list[Opened] = []

        async def another() -> Opened:
            own: Any = {f"{len(opened)} {number}": {"a": {}} for number in range(600)}
            return await engine.sessions.open(caller, initialize(capabilities={"experimental": own}))

        with contextlib.suppress(TooManySessions):
            while len(opened) < 50:
                opened.append(await another())
        assert 5 < len(opened) < 40
        assert ledger.used > MEMORY * 0.4
        await engine.sessions.open(Caller("bob"), initialize())
        for one in opened:
            await engine.sessions.close(one.session, SessionInput.DELETED)
        opened.clear()
        del one
        # Until the listeners of the sessions were called.
        await asyncio.sleep(5)
        assert ledger.used < MEMORY * 0.1


@front_test
async def test_a_result_without_room_is_dropped_and_the_client_learns_that_its_call_was_executed() -> None:
    async with bench(Settings(limits=Limits(memory=MEMORY))) as b:

        async def late(exchange: Exchange) -> object:
            await b.release.wait()
            return await b._big(exchange)

        b._late = late  # type: ignore[attr-defined]
        p = b.peer()
        assert (await p.initialize()).status == 200
        call = p.call(1, "late")
        await until(lambda: b.runs == ["late"])
        # Meanwhile its share is used up.
        others = b.engine.load.account("127.0.0.1").open()
        others.set(MEMORY * 3 // 4)
        b.release.set()
        dropped = (await call.done()).json["error"]
        assert dropped["code"] == OUTCOME_UNKNOWN
        assert "executed" in dropped["message"]
        others.free()
        assert (await p.call(2, "big").done()).json["result"]["tool"] == "big"


@virtual_test
async def test_the_oldest_complete_streams_of_the_client_that_uses_too_much_are_forgotten_first() -> None:
    store = MemoryStore()
    ledger = Ledger(1_000_000)
    records = {name: record(name, name) for name in ("ann", "bob")}
    for name, one in records.items():
        await store.open(one, evict=False)
        store.charge_to(one.key, ledger.account(name))

    async def kept(name: str, number: int, size: int) -> None:
        claim = Claim(number, f"{name} {number}", b"", control=False)
        claimed = await store.claim(name, name, claim)
        assert isinstance(claimed, Claimed)
        await store.settle(name, claim.stream, claimed.fence, None)
        await store.keep(name, claim.stream, claim, b"x" * size, tag=number + 1)

    await kept("bob", 0, 10_000)
    for number in range(20):
        await kept("ann", number, 50_000)
    assert 500_000 < ledger.account("ann").used < 700_000
    assert ledger.account("bob").used > 10_000, "it is the oldest, and stays"
    await store.close("ann", SessionInput.DELETED)
    assert ledger.used < 20_000, "what bob keeps"


@virtual_test
async def test_state_subscriptions_and_tasks_of_the_memory_store_are_charged_and_refused_without_room() -> (
    None
):
    clock = VirtualClock()
    store = MemoryStore(Limits(), clock)
    engine = Engine(ScriptedBack(), Settings(limits=Limits(memory=MEMORY)), store=store)
    async with aclosing(engine):
        await engine.ensure_started()
        ledger, one = engine.load.ledger, record("one", principal="ann")
        await store.open(one, evict=False)
        await store.set_state(one.key, "a", b"x" * 100_000, op="1")
        await store.subscribe(one.key, "note://" + "x" * 1_000)
        assert 150_000 < ledger.account("ann").used < 160_000
        assert await store.open_task("task", "bob", b"x" * 100_000, ttl=60) is None
        assert 150_000 < ledger.account("bob").used < 160_000
        others = ledger.account("others").open()
        others.set(MEMORY - 350_000)
        with pytest.raises(StateError):
            await store.set_state(one.key, "b", b"x" * 200_000, op="2")
        assert await store.open_task("more", "bob", b"x" * 200_000, ttl=60) is Refusal.FULL
        with pytest.raises(StateError):
            await store.set_task("task", "bob", b"x" * 300_000, version=1, ttl=60, ends=True)
        assert not await store.subscribe(one.key, "note://" + "x" * 200_000)
        await store.set_state(one.key, "a", None, op="3")
        others.free()
        await store.set_state(one.key, "b", b"x" * 200_000, op="4")
        clock.advance(61)
        await store.sweep()
        await store.close(one.key, SessionInput.DELETED)
        assert ledger.used == 0


@virtual_test
async def test_streams_of_closed_sessions_are_charged_until_they_are_forgotten() -> None:
    clock, ledger = VirtualClock(), Ledger(MEMORY)
    store = MemoryStore(Limits(), clock)
    held = Bench(store, clock)
    await held.open()
    store.charge_to(KEY, ledger.account("ann"))
    fence = await held.streaming(1, "a")
    await held.attach("a")
    await store.append(KEY, "a", fence, [(1, b"x" * 10_000)])
    before = ledger.used
    await store.close(KEY, SessionInput.DELETED, ENDING)
    assert before > 10_000
    assert ledger.used >= 10_000
    clock.advance(LINGER_SECONDS + 1)
    await store.sweep()
    assert ledger.used == 0


@pytest.mark.parametrize("shared", [False, True])
def test_the_ends_of_tasks_are_kept_and_charged_only_for_a_store_that_may_lose_them(*, shared: bool) -> None:
    clock, load = VirtualClock(), Load(Limits(memory=MEMORY))
    ends = TaskEnds(clock, load, shared=shared)
    ends.add("a task", Outcome(b"x" * 10_000))
    assert ends.get("a task") is not None
    ends.stored("a task")
    assert (ends.get("a task") is not None) is shared
    assert (load.ledger.used > 15_000) is shared
    clock.advance(KEPT_SECONDS + 1)
    ends.sweep()
    assert (ends.get("a task"), load.ledger.used) == (None, 0)


@engine_test
async def test_an_idle_session_has_no_table_of_its_own_also_after_a_call() -> None:
    """Eleven empty dicts took 700 bytes of each session."""

    async def reports_once(exchange: Exchange) -> object:
        if exchange.request.id == 2:
            await exchange.notify("notifications/message", {"level": "info", "data": "x"})
        return {}

    async with engine_harness(ScriptedBack({CALL: reports_once})) as d:
        runtime, store = d.engine.runtime, d.engine.runtime.store
        assert isinstance(store, MemoryStore)
        doc = store._sessions[d.key]

        def own_tables() -> list[str]:
            ours = ("exchanges", "answering", "pending", "waiting", "readers")
            stored = ("exchanges", "ids", "logs", "finished", "held", "asks")
            return [
                name
                for one, names in ((d.session, ours), (doc, stored))
                for name in names
                if getattr(one, name) is not EMPTY
            ]

        assert runtime.sessions[d.key] is d.session
        assert own_tables() == []
        started = d.engine.exchanges.submit_nowait(d.key, CALLER, Request(1, CALL, {}), b"", streams=True)
        assert isinstance(started, SessionExchange)
        assert own_tables() == ["exchanges", "exchanges", "ids"]
        assert started.task is not None
        await started.task
        assert own_tables() == []
        streamed = await d.post(2)
        assert len(await streamed.whole()) == 2
        # The log is kept for a client that comes back.
        assert own_tables() == ["exchanges", "logs", "finished"]
