"""The source of the admin surface: the live work of one process, and of several that share a store."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from limpet import Context, Server, Settings
from limpet.client import Client
from limpet.client.tasks import Task
from limpet.engine.claims import Repeat
from limpet.engine.exchange import Exchange
from limpet.engine.session import HIDDEN
from limpet.errors import LimpetError, McpError, StoreError, StoreUnavailable
from limpet.ops import session_pages
from limpet.ops.figures import Figures
from limpet.ops.fleet import FleetView, merged_history, merged_tools
from limpet.ops.operated import Operated
from limpet.ops.recent import NO_CALLS, EndedCalls, Recent
from limpet.ops.ring import Happened, Ring
from limpet.ops.served_process import ANSWER_BYTES, FleetQuestion, Live, Part, Said, ServedProcess, bounded
from limpet.ops.session_pages import PATIENCE
from limpet.ops.views import NO_EVENTS, CallView, FiguresView
from limpet.protocol.patience import HandOverTime
from limpet.protocol.sessionless import TASKS
from limpet.server.running.operations import Operations
from limpet.stores.base import Claim, Claimed, Store
from limpet.stores.memory import MemoryStore
from limpet.testing import VirtualClock
from limpet.testing.store.bench import record
from tests.stores import ScriptedStore
from tests.support import all_closed, async_test, until
from tests.unit.engine.harness import Get, engine_test, gate
from tests.unit.engine.test_home import pair

ERAS: Final = pytest.mark.parametrize("era", ["sessions", "sessionless"])
HAND_OVER: Final = pytest.mark.parametrize("hand_over", ["off", 3600], ids=["", "hand-over"])
"""A call that can be handed over has two exchanges (`engine/hand_over.py`), and is shown as every other one."""


class Operation:
    """One process with one server, and its fleet."""

    def __init__(self, store: Store | str | None = None, **options: Any) -> None:
        self.server = server = Server("shop", version="1.2", store=store, **options)
        self.ring = Ring()
        operated = Operated(ring=self.ring, figures=Figures())
        server.operate(operated)
        self.release = asyncio.Event()

        @server.tool
        async def hang() -> str:
            await self.release.wait()
            return "done"

        @server.tool
        async def crash() -> str:
            raise ValueError("a secret")

        @server.tool
        async def question(ctx: Context) -> str:
            return str(await ctx.elicit("Sure?", {"type": "object", "properties": {}}))

        @server.tool
        async def echo(text: str) -> str:
            return text

        self._operated = operated
        self.fleet = FleetView([self.part()], self.ring)

    def part(self, name: str = "shop") -> Part:
        return Part(name, "1.2", "memory", self.server.engine, self._operated)

    async def calling(self, tool: str) -> None:
        """Wait until a call of this tool runs."""

        async def is_there() -> bool:
            self.forget_round()
            return any(call.name == tool for call in (await self.fleet.state("", 0)).calls)

        await until(is_there)

    def forget_round(self) -> None:
        """Let the next state ask again: the answers of a round are used again for half a second."""
        self.fleet._round = None


@HAND_OVER
@ERAS
@async_test
async def test_a_state_shows_the_calls_that_run_and_nothing_secret(era: str, hand_over: HandOverTime) -> None:
    shop = Operation(hand_over=hand_over)
    async with Client(shop.server, protocol_version=era) as client:
        call = asyncio.ensure_future(client.call_tool("hang"))
        await shop.calling("hang")
        state = await shop.fleet.state("", 0)
        (shown,) = state.calls
        assert (shown.name, shown.method, shown.waits_for) == ("hang", "tools/call", "handler")
        assert shown.age is not None
        assert shown.age < 30
        assert (state.figures.running, state.figures.queued) == (1, 0)
        assert [server.name for server in state.servers] == ["shop"]
        text = msgspec.json.encode(state).decode()
        for key in await shop.server.engine.store.sessions():
            assert key not in text
            is_hidden = key.startswith(HIDDEN)
            assert (key[:8] in text) is not is_hidden, "the session of a client is shown by its short name"
        shop.release.set()
        await call
    await until(lambda: not shop.server.engine.live_exchanges())


@HAND_OVER
@async_test
async def test_a_call_is_running_queued_or_parked(hand_over: HandOverTime) -> None:
    shop = Operation(settings=Settings(in_order=True, hand_over=hand_over))
    async with Client(shop.server, protocol_version="sessions") as client:
        calls = [asyncio.ensure_future(client.call_tool("hang")) for _ in range(2)]

        async def states() -> set[str]:
            shop.fleet._round = None
            return {call.state for call in (await shop.fleet.state("", 0)).calls}

        async def is_queued() -> bool:
            return await states() == {"running", "queued"}

        async def is_parked() -> bool:
            return await states() == {"parked"}

        await until(is_queued)
        figures = (await shop.fleet.state("", 0)).figures
        assert (figures.running, figures.queued, figures.parked) == (1, 1, 0)
        shop.release.set()
        await asyncio.gather(*calls)

    async def silent(asked: object) -> None:
        await shop.release.wait()

    shop.release.clear()
    async with Client(shop.server, protocol_version="sessionless", elicitation=silent) as client:
        call = asyncio.ensure_future(client.call_tool("question"))
        await until(is_parked)
        figures = (await shop.fleet.state("", 0)).figures
        assert (figures.running, figures.queued, figures.parked, figures.asks) == (0, 0, 1, 1)
        shop.release.set()
        await call


@HAND_OVER
@ERAS
@async_test
async def test_an_operator_cancels_a_call_and_its_client_receives_one_error(
    era: str, hand_over: HandOverTime
) -> None:
    shop = Operation(hand_over=hand_over)
    async with Client(shop.server, protocol_version=era) as client:
        call = asyncio.ensure_future(client.call_tool("hang"))
        await shop.calling("hang")
        (shown,) = (await shop.fleet.state("", 0)).calls
        assert not await shop.fleet.cancel_call("0123456789ab")
        assert await shop.fleet.cancel_call(shown.id)
        with pytest.raises(McpError, match="by an operator"):
            await call
        assert not await shop.fleet.cancel_call(shown.id), "it has ended"
        assert (await client.call_tool("echo", {"text": "hi"})).data == "hi", "its session continues"


@ERAS
@async_test
async def test_a_call_that_was_handed_over_is_shown_counted_and_cancelled(era: str) -> None:
    shop = Operation(hand_over=0.05)
    async with Client(shop.server, protocol_version=era, capabilities={"extensions": {TASKS: {}}}) as client:
        answer = await client.request("tools/call", {"name": "hang", "arguments": {}})
        state = await shop.fleet.state("", 0)
        (shown,) = state.calls
        assert (shown.name, shown.state, shown.waits_for) == ("hang", "handed over", "handler")
        assert shown.age is not None
        assert shown.session == (state.sessions[0].id if era == "sessions" else "")
        assert (state.figures.handed_over, state.figures.running) == (1, 0)
        assert state.counts["calls handed over"] == 1
        (event,) = [one for one in state.events if one.event == "call.handed_over"]
        assert (event.facts["tool"], event.facts["answer"]) == (
            "hang",
            "ticket" if era == "sessions" else "task",
        )
        found = {
            (one.family, *one.labels): one.value
            for one in await ServedProcess([shop.part()], Ring()).metrics()
        }
        assert found["limpet_exchanges", "shop", "handed over"] == 1
        assert found["limpet_handed_over_total", "shop"] == 1
        ticket = answer["taskId"] if era == "sessionless" else answer["structuredContent"]["ticket"]
        assert ticket not in msgspec.json.encode(state).decode()
        assert await shop.fleet.cancel_call(shown.id)
        with pytest.raises(McpError, match="cancelled"):
            await client.request("tools/call", {"name": "collect", "arguments": {"ticket": ticket}})


@async_test
async def test_an_operator_closes_a_session_by_its_short_name() -> None:
    shop = Operation()
    async with Client(shop.server, protocol_version="sessions") as client:
        call = asyncio.ensure_future(client.call_tool("hang"))
        await shop.calling("hang")
        (session,) = (await shop.fleet.state("", 0)).sessions
        assert (session.state, session.calls, session.closes_in) == ("attached", 1, None)
        assert not await shop.fleet.close_session("ffffffff")
        assert not await shop.fleet.close_session(session.id[:4]), "too short to be a name"
        assert await shop.fleet.close_session(session.id)
        with pytest.raises(McpError, match=r"closed \(by an operator\)"):
            await call
        assert not await shop.fleet.close_session(session.id)
        _, events = await shop.fleet.session(session.id)
        closed = next(event for event in events if event.event == "session.closed")
        assert closed.facts["reason"] == "by an operator"


@async_test
async def test_events_are_found_by_the_correlation_id_that_the_client_received() -> None:
    shop = Operation(mask_errors=True)
    async with Client(shop.server, raise_on_error=False) as client:
        answer = await client.call_tool("crash")
        correlation = answer.text.partition("correlation id ")[2][:12]
        (found,) = await shop.fleet.find(correlation)
        assert found.facts["tool"] == "crash"
        assert await shop.fleet.find("unknown") == []


@async_test
async def test_events_have_numbers_of_the_process_that_is_asked() -> None:
    shop = Operation()
    shop.ring.add(1.0, "first", {})
    first = await shop.fleet.state("", 0)
    assert [one.event for one in first.events] == ["first"]
    shop.ring.add(2.0, "second", {})
    shop.forget_round()
    later = await shop.fleet.state("", first.events[-1].number)
    assert [one.event for one in later.events] == ["second"]
    other = await shop.fleet.state("", 1_000_000)
    assert [one.event for one in other.events] == ["first", "second"], "a number of another process"
    assert (await shop.fleet.state("", NO_EVENTS)).events == []


@async_test
async def test_a_process_whose_store_is_unavailable_still_shows_its_own_work() -> None:
    store = ScriptedStore()
    shop = Operation(store)
    async with Client(shop.server, protocol_version="sessions") as client:
        call = asyncio.ensure_future(client.call_tool("hang"))
        await shop.calling("hang")
        store.fail("totals", "replicas", "sessions_after")
        shop.forget_round()
        state = await shop.fleet.state("", 0)
        assert state.servers[0].is_away
        assert [shown.name for shown in state.calls] == ["hang"]
        (opened,) = [one for one in shop.ring.after() if one.event == "session.opened"]
        assert await shop.fleet.session(opened.facts["session"]) == (None, [opened])
        store.recover()
        shop.release.set()
        await call


@async_test
async def test_a_parked_call_and_a_task_are_cancelled_too() -> None:
    shop = Operation()
    asked = asyncio.Event()

    @shop.server.tool(task="required")
    async def errand() -> str:
        await shop.release.wait()
        return "done"

    async def never(*_: Any) -> Any:
        asked.set()
        await shop.release.wait()
        return {"action": "decline"}

    async with Client(shop.server, protocol_version="sessionless", elicitation=never) as client:
        task = await client.start_tool("errand")
        assert isinstance(task, Task)
        await shop.calling("errand")
        (shown,) = (await shop.fleet.state("", 0)).calls
        assert await shop.fleet.cancel_call(shown.id)
        assert (await task.poll()).status == "cancelled"

        call = asyncio.ensure_future(client.call_tool("question"))
        await asked.wait()
        await shop.calling("question")
        parked = next(one for one in (await shop.fleet.state("", 0)).calls if one.name == "question")
        assert (parked.state, parked.waits_for) == ("parked", "ask")
        assert await shop.fleet.cancel_call(parked.id)
        shop.release.set()
        with pytest.raises(McpError, match="by an operator"):
            await call


@async_test
async def test_the_most_active_sessions_come_first() -> None:
    clock = VirtualClock()
    part = Operation(MemoryStore(clock=clock)).part("s")
    fleet, store = FleetView([part], Ring()), part.engine.store
    async with aclosing(part.engine):
        await part.engine.ensure_started()
        keys = [f"{number:08d}{'k' * 20}" for number in range(60)]
        for key in keys:
            await store.open(record(key, principal="p"), evict=False)
        clock.advance(1)
        for number, key in enumerate((keys[59], keys[31])):
            claimed = await store.claim(key, "p", Claim(number, f"stream {number}", b""))
            assert isinstance(claimed, Claimed)
            if key == keys[31]:
                await store.settle(key, f"stream {number}", claimed.fence, None)
        first = await fleet.state("", 0)
        assert [session.id for session in first.sessions[:2]] == ["00000059", "00000031"]
        assert first.sessions[0].quiet is None, "it has a call"
        assert (len(first.sessions), first.next_page) == (50, "50")
        last = await fleet.state(first.next_page, 0)
        assert (len(last.sessions), last.next_page) == (10, "")
        assert len({session.id for session in (*first.sessions, *last.sessions)}) == 60


@async_test
async def test_many_sessions_of_all_servers_come_in_pages_one_server_after_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_pages, "SORTED_SESSIONS", 71)
    servers = [Operation() for _ in range(3)]
    parts = [one.part(f"s{number}") for number, one in enumerate(servers)]
    async with all_closed(*(part.engine for part in parts)):
        fleet = FleetView(parts, Ring())
        keys = {0: 70, 1: 0, 2: 2}
        for number, count in keys.items():
            engine = parts[number].engine
            await engine.ensure_started()
            for one in range(count):
                await engine.store.open(record(f"{number}{one:07d}{'k' * 20}", principal="p"), evict=False)
        pages, page = [], ""
        while True:
            state = await fleet.state(page, 0)
            pages.append([(session.server, session.id) for session in state.sessions])
            if not (page := state.next_page):
                break
        assert [len(one) for one in pages] == [50, 20, 2]
        assert len({session for one in pages for session in one}) == 72
        assert sorted(pages[2]) == [("s2", "20000000"), ("s2", "20000001")]
        again = (await fleet.state("garbage", 0)).sessions
        # In any order: each session has its own moment for "quiet since".
        assert {session.id for session in again} == {name for _, name in pages[0]}
        shown, _ = await fleet.session("20000001")
        assert shown is not None
        assert shown.server == "s2"
        assert await fleet.session("00000000k") != (None, []), "a longer name is one too"


@async_test
async def test_events_of_a_process_with_two_servers_are_shown_once(tmp_path: Path) -> None:
    one, two = (Operation(f"sqlite:///{tmp_path / name}.db") for name in ("one", "two"))
    ring = Ring()
    fleet = FleetView([one.part("one"), two.part("two")], ring)
    ring.add(1.0, "first", {})
    assert [happened.event for happened in (await fleet.state("", 0)).events] == ["first"]


@async_test
async def test_two_sessions_with_one_short_name_are_not_closed_by_it() -> None:
    shop = Operation()
    engine = shop.server.engine
    async with aclosing(engine):
        await engine.ensure_started()
        for key in ("aaaaaaaa1", "aaaaaaaa2"):
            await engine.store.open(record(key, principal="p"), evict=False)
        assert not await shop.fleet.close_session("aaaaaaaa")
        assert sorted(await engine.store.sessions()) == ["aaaaaaaa1", "aaaaaaaa2"]
        assert not await shop.fleet.close_session("*")


@async_test
async def test_a_state_of_many_sessions_and_calls_takes_little_time_of_the_loop() -> None:
    """10,000 sessions and 1,000 calls: less than 50 ms of processor time, once a second at most."""
    shop = Operation()
    async with Client(shop.server, protocol_version="sessionless") as client:
        for number in range(10_000):
            await shop.server.engine.store.open(record(f"{number:08d}", principal="p"), evict=False)
        calls = [asyncio.ensure_future(client.call_tool("hang")) for _ in range(1_000)]
        await until(lambda: len(shop.server.engine.live_exchanges()) == len(calls))
        state, taken = await shop.fleet.state("", 0), []
        for _ in range(5):
            shop.fleet._round = None
            begun = time.process_time()
            state = await shop.fleet.state("", 0)
            taken.append(time.process_time() - begun)
        assert (state.figures.running, len(state.calls), len(state.sessions)) == (1_000, 500, 50)
        assert min(taken) < 0.05, taken
        shop.release.set()
        await asyncio.gather(*calls)


# Two replicas


@asynccontextmanager
async def two_replicas(path: Path) -> AsyncIterator[tuple[Operation, Operation, Client]]:
    """Two processes that share a store, here in one; the client's calls run at the second one."""
    here, there = (Operation(f"sqlite:///{path / 'store.db'}") for _ in range(2))
    async with aclosing(here.server.engine):
        await here.server.engine.ensure_started()
        async with Client(there.server, protocol_version="sessions") as client:
            yield here, there, client


@ERAS
@async_test
async def test_a_call_of_another_replica_is_shown_and_cancelled(era: str, tmp_path: Path) -> None:
    async with (
        two_replicas(tmp_path) as (here, there, _),
        Client(there.server, protocol_version=era) as client,
    ):
        call = asyncio.ensure_future(client.call_tool("hang"))
        await there.calling("hang")
        await here.calling("hang")
        state = await here.fleet.state("", 0)
        (shown,) = state.calls
        assert shown.replica == there.server.engine.store.replica
        assert {(one.state, one.lease_left is not None) for one in state.replicas} == {("live", True)}
        assert len(state.replicas) == 2
        assert not await here.fleet.cancel_call("0123456789ab")
        assert await here.fleet.cancel_call(shown.id)
        with pytest.raises(McpError, match="by an operator"):
            await call


@engine_test
async def test_a_call_whose_client_does_not_read_at_another_replica_waits_for_its_reader() -> None:
    wait, event = gate()

    async def speaks(exchange: Exchange) -> object:
        await exchange.writer.send(b'{"jsonrpc":"2.0","method":"notifications/x"}')
        return await wait(exchange)

    async with pair(speaks) as (_, home, other):
        fleets = [
            FleetView([Part("shop", "1", "", made.engine, Operated())], Ring()) for made in (home, other)
        ]

        async def waits() -> list[str]:
            for fleet in fleets:
                fleet._round = None
            return [call.waits_for for fleet in fleets for call in (await fleet.state("", 0)).calls]

        answer = await other.submit(1)
        assert isinstance(answer, Repeat)
        got = Get(other, await other.engine.readers.repeat(answer.session, answer.stream))
        got.may_read.clear()
        await until(lambda: got.reader.is_writing)
        assert await waits() == ["reader", "reader"]
        got.may_read.set()
        await until(lambda: not got.reader.is_writing)
        assert await waits() == ["handler", "handler"]
        event.set()
        await got.task


@async_test
async def test_a_session_of_another_replica_is_closed_and_its_events_are_found(tmp_path: Path) -> None:
    async with two_replicas(tmp_path) as (here, there, client):
        call = asyncio.ensure_future(client.call_tool("hang"))
        await there.calling("hang")
        await here.calling("hang")
        (session,) = (await here.fleet.state("", 0)).sessions
        assert session.replica == there.server.engine.store.replica
        shown, events = await here.fleet.session(session.id)
        assert shown is not None
        assert [one.event for one in events] == ["session.opened"], "of the ring of the other replica"
        there.ring.add(1.0, "handler.failed", {"correlation": "abc"})
        assert [one.event for one in await here.fleet.find("abc")] == ["handler.failed"]
        assert await here.fleet.close_session(session.id)
        with pytest.raises(McpError, match="closed"):
            await call
        assert await here.fleet.session("ffffffff") == (None, [])


@async_test
async def test_a_replica_that_does_not_answer_is_silent_and_delays_only_the_first_state(
    tmp_path: Path,
) -> None:
    async with two_replicas(tmp_path) as (here, there, _):
        waiting = asyncio.Event()

        async def never(_: FleetQuestion) -> None:
            await waiting.wait()

        there.server.engine.inbox.answer("live", FleetQuestion, never)
        state = await here.fleet.state("", 0)
        by_name = {one.name: one for one in state.replicas}
        assert by_name[there.server.engine.store.replica].state == "silent"
        assert by_name[here.server.engine.store.replica].state == "live"
        begun = asyncio.get_running_loop().time()
        here.fleet._round = None
        await here.fleet.state("", 0)
        assert asyncio.get_running_loop().time() - begun < PATIENCE
        waiting.set()


@async_test
async def test_a_replica_without_an_admin_surface_lives_and_says_no_more(tmp_path: Path) -> None:
    async with two_replicas(tmp_path) as (here, there, _):
        there.server.engine.inbox.handlers.clear()
        by_name = {one.name: one for one in (await here.fleet.state("", 0)).replicas}
        other = by_name[there.server.engine.store.replica]
        assert (other.state, other.calls) == ("live", None)
        assert not await here.fleet.cancel_call("0123456789ab")
        assert await here.fleet.find("unknown") == []


@async_test
async def test_while_the_store_is_unavailable_another_replica_is_not_taken_for_dead_nor_its_call_for_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_replicas(tmp_path) as (here, there, client):
        call = asyncio.ensure_future(client.call_tool("hang"))
        await here.calling("hang")
        state = await here.fleet.state("", 0)
        (session, _), events = await here.fleet.session(state.sessions[0].id), state.events
        assert session is not None
        assert session.replica == there.server.engine.store.replica, "where its call runs"
        assert events

        async def away(*_: Any, **__: Any) -> Any:
            raise StoreUnavailable("away")

        store = here.server.engine.store
        with monkeypatch.context() as outage:
            outage.setattr(store, "sessions_after", away)
            state = await here.fleet.state("", 0)
            assert state.servers[0].is_away, (
                "the answers of the replicas are fresh, and the sessions are missing"
            )
            outage.setattr(store, "replicas", away)
            here.fleet._round = None
            states = {one.name: one.state for one in (await here.fleet.state("", 0)).replicas}
            assert states == {store.replica: "live", there.server.engine.store.replica: "silent"}
            with pytest.raises(StoreUnavailable):
                await here.fleet.cancel_call("0123456789ab")
            with pytest.raises(StoreError, match="does not answer"):
                await here.fleet.session(session.id)
        monkeypatch.setattr(here.server.engine.inbox, "ask", nothing)
        with pytest.raises(LimpetError, match="a replica does not answer"):
            await here.fleet.cancel_call("0123456789ab")
        there.release.set()
        await call


async def nothing(*_: Any, **__: Any) -> None:
    """Answer as a replica does that is silent."""


@async_test
async def test_a_replica_whose_lease_has_ended_is_gone(tmp_path: Path) -> None:
    async with two_replicas(tmp_path) as (here, there, client):
        await here.fleet.state("", 0)
        name = there.server.engine.store.replica
        await client.aclose()
        await there.server.engine.aclose()
        here.fleet._round = None
        states = {one.name: one.state for one in (await here.fleet.state("", 0)).replicas}
        assert states[name] == "gone"


@async_test
async def test_a_question_that_cannot_be_read_is_not_answered_and_does_no_harm(tmp_path: Path) -> None:
    async with two_replicas(tmp_path) as (here, there, _):
        other = there.server.engine.store.replica
        ask = here.server.engine.inbox.ask
        assert await ask(other, "live", {"about": "something else"}, seconds=0.2) is None
        assert await ask("unknown", "live", FleetQuestion("live"), seconds=0.2) is None
        assert "work.failed" not in {one.event for one in there.ring.after()}, (
            "it is no fault of this process"
        )
        assert await ask(other, "live", FleetQuestion("live"), seconds=2) is not None


def test_an_answer_is_bounded_and_leaves_out_new_calls_and_old_events() -> None:
    call = CallView("1", "tools/call", "x" * 100, 1.0, "handler", "c" * 100, "", "", "", "r")
    live = Live("p", "r", False, 0, FiguresView(), [call] * 500, [], {}, [])
    events = [Happened(number, 0.0, "event", {"fact": "y" * 4_000}) for number in range(200)]
    encoded = bounded(Said("p", live=live, events=events))
    assert len(encoded) <= ANSWER_BYTES
    said = msgspec.json.decode(encoded, type=Said)
    assert said.live is not None
    assert said.live.calls
    assert said.events[-1].number == 199


def test_charts_of_several_processes_are_one() -> None:
    one = Live(
        "1", "a", False, 0, FiguresView(), [], [], {}, [(1.0, 0.1, 0.2, 1.0, 0.0), (2.0, 0.1, 0.2, 0.0, 0.0)]
    )
    two = Live("2", "b", False, 0, FiguresView(), [], [], {}, [(6.0, 0.5, 0.9, 2.0, 3.0)])
    merged = (8.0, pytest.approx(0.4), 0.9, 2.0, 3.0)
    assert list(map(list, merged_history([one, two]))) == [[1.0, 0.1, 0.2, 1.0, 0.0], list(merged)]


def test_tools_of_several_processes_are_one_and_a_tool_that_runs_for_the_first_time_is_shown() -> None:
    half = EndedCalls((1, *NO_CALLS.counts[1:-1], 1), errors=1)
    hung = CallView("1", "tools/call", "hang", 7.0, "handler", "c", "", "", "", "a")
    tools = [("tools/call", "search", Recent(60.0, half, 10, 1)), ("ping", "", Recent(60.0, half))]
    one = Live("1", "a", False, 0, FiguresView(), [hung], [], {}, [], tools)
    two = Live("2", "b", False, 0, FiguresView(), [], [], {}, [], tools[:1])
    found = {(view.name, view.server): view.recent for view in merged_tools([("s", one), ("s", two)])}
    assert list(found) == [("search", "s"), ("ping", "s"), ("hang", "s")], "the busiest first"
    search = found["search", "s"]
    assert (search.calls, search.errors, search.earlier_calls, search.earlier_errors) == (4, 2, 20, 2)
    assert search.calls_per_second == pytest.approx(4 / 60)
    assert search.p50 <= 0.001 < search.p95
    assert (found["hang", "s"].calls, found["hang", "s"].slowest) == (0, 7.0)


@async_test
async def test_two_servers_of_one_program_are_shown_by_their_names_in_the_file() -> None:
    operations = Operations()
    for name in ("docs", "code"):
        server = Server("git")
        server.label = name
        operations.take(server)
    operations.take(Server("alone"))
    async with operations.source() as source:
        state = await source.state("", 0)
    assert [server.name for server in state.servers] == ["docs", "code", "alone"]
