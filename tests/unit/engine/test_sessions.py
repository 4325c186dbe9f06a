"""Sessions: their clocks, their listeners in order, their one end (laws 6 and 8)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from limpet.config import Limits, Settings, Times
from limpet.core.lifecycle import SessionInput
from limpet.engine.caller import Caller
from limpet.engine.exchange import Exchange
from limpet.engine.reader import End
from limpet.engine.session import Session
from limpet.engine.sessions import ANONYMOUS, Opened
from limpet.errors import InvalidParams, SessionGone, TooManySessions
from limpet.stores.base import SessionRecord
from limpet.testing import ScriptedBack
from tests.unit.engine.harness import CALL, PRINCIPAL, engine_harness, engine_test, gate, settle_down

TIMES = Times(idle=100, grace=50, lifetime=1_000, sweep=1, stream_age=(5_000, 5_000))


@engine_test
async def test_a_quiet_session_idles_out() -> None:
    async with engine_harness(times=TIMES) as d:
        await asyncio.sleep(99)
        assert d.back.events == ["start", "opened"]
        await asyncio.sleep(3)
        assert d.back.events == ["start", "opened", "closed: idle"]
        assert d.engine.runtime.sessions == {}


@engine_test
async def test_a_session_at_work_does_not_idle_out() -> None:
    wait, event = gate()
    async with engine_harness(ScriptedBack({CALL: wait}), times=TIMES) as d:
        post = await d.post(1)
        await settle_down()
        await post.cut()
        await asyncio.sleep(900)
        assert d.back.events == ["start", "opened", "detached"]
        event.set()
        await asyncio.sleep(49)
        assert d.back.events[-1] == "detached"
        await asyncio.sleep(3)
        assert d.back.events[-1] == "closed: grace over"


@engine_test
async def test_a_broken_get_begins_the_grace_and_coming_back_ends_it() -> None:
    async with engine_harness(times=TIMES) as d:
        await (await d.get()).cut()
        await asyncio.sleep(45)
        await d.get()
        await asyncio.sleep(200)
        assert d.back.events == ["start", "opened", "detached", "reattached"]


@pytest.mark.parametrize("way", ["request", "notification", "answer", "get"])
@engine_test
async def test_every_way_of_coming_back_reattaches(way: str) -> None:
    async with engine_harness(times=TIMES) as d:
        await (await d.get()).cut()
        await settle_down()
        if way == "request":
            await d.call(1)
        elif way == "notification":
            await d.engine.sessions.notify(d.key, PRINCIPAL, "notifications/roots/list_changed", {})
        elif way == "answer":
            await d.answer({"id": "nothing"})
        else:
            await d.get()
        await asyncio.sleep(60)
        assert d.back.events == ["start", "opened", "detached", "reattached"]


@engine_test
async def test_grace_over_closes_and_the_session_is_gone() -> None:
    async with engine_harness(times=TIMES) as d:
        await (await d.get()).cut()
        await asyncio.sleep(52)
        assert d.back.events == ["start", "opened", "detached", "closed: grace over"]
        with pytest.raises(SessionGone):
            await d.submit(1)


@engine_test
async def test_without_grace_a_break_with_nothing_in_flight_closes_at_once() -> None:
    async with engine_harness(times=Times(grace=0)) as d:
        await (await d.get()).cut()
        await settle_down()
        assert d.back.events == ["start", "opened", "detached", "closed: grace over"]


@engine_test
async def test_without_grace_work_in_flight_is_still_finished() -> None:
    wait, event = gate()
    async with engine_harness(ScriptedBack({CALL: wait}), times=Times(grace=0)) as d:
        post = await d.post(1)
        await settle_down()
        await post.cut()
        await asyncio.sleep(100)
        assert d.back.events[-1] == "detached"
        event.set()
        await asyncio.sleep(2)
        assert d.back.events[-1] == "closed: grace over"


@engine_test
async def test_a_session_closes_at_its_lifetime_though_it_is_read() -> None:
    async with engine_harness(times=TIMES) as d:
        get = await d.get()
        await asyncio.sleep(998)
        assert not get.task.done()
        await asyncio.sleep(4)
        assert get.reader.end is End.CLOSED
        assert d.back.events[-1] == "closed: expired"


@engine_test
async def test_work_is_finished_beyond_the_lifetime() -> None:
    async def work(exchange: Exchange) -> object:
        await asyncio.sleep(3_000)
        return {}

    async with engine_harness(ScriptedBack({CALL: work}), times=TIMES) as d:
        assert "result" in await d.call(1)
        await asyncio.sleep(3)
        assert d.back.events[-1] == "closed: expired"


@engine_test
async def test_an_answered_post_is_no_break() -> None:
    async with engine_harness(times=TIMES) as d:
        await d.call(1)
        await asyncio.sleep(60)
        assert d.back.events == ["start", "opened"]


@engine_test
async def test_listeners_are_called_in_order_and_no_request_waits_for_them() -> None:
    class Slow(ScriptedBack):
        async def opened(self, session: Session) -> None:
            await asyncio.sleep(500)
            await super().opened(session)

    async with engine_harness(Slow({CALL: gate()[0]}), times=TIMES) as d:
        await (await d.get()).cut()
        await d.get()
        await d.engine.sessions.close(d.session, SessionInput.DELETED)
        assert asyncio.get_running_loop().time() < 5
        assert d.back.events == ["start"]
        await asyncio.sleep(501)
        assert d.back.events == ["start", "opened", "detached", "reattached", "closed: deleted"]


@engine_test
async def test_a_listener_that_fails_does_not_silence_the_next() -> None:
    class Broken(ScriptedBack):
        async def opened(self, session: Session) -> None:
            raise RuntimeError("a bug of the author's")

    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: complaints.append(str(context["exception"]))
    )
    async with engine_harness(Broken()) as d:
        await settle_down()
        await d.engine.sessions.close(d.session, SessionInput.DELETED)
        await settle_down()
        assert d.back.events == ["start", "closed: deleted"]
        assert complaints == ["a bug of the author's"]


@engine_test
async def test_a_session_is_closed_once_even_if_several_close_it() -> None:
    async with engine_harness() as d:
        closing = [d.engine.sessions.close(d.session, SessionInput.DELETED) for _ in range(5)]
        assert sorted(await asyncio.gather(*closing)) == [False] * 4 + [True]
        await settle_down()
        assert d.back.events == ["start", "opened", "closed: deleted"]


@engine_test
async def test_a_session_with_a_stalled_reader_can_be_closed_by_several_at_once() -> None:
    async def chat(exchange: Exchange) -> object:
        await exchange.notify("notifications/progress", {"n": 1})
        return {}

    async with engine_harness(ScriptedBack({CALL: chat})) as d:
        post = await d.post(1)
        post.may_read.clear()
        await settle_down()
        closing = (d.engine.sessions.close(d.session, SessionInput.DELETED) for _ in range(3))
        async with asyncio.timeout(10):
            assert sorted(await asyncio.gather(*closing)) == [False, False, True]
        post.may_read.set()


@engine_test
async def test_a_principal_over_its_limit_loses_its_longest_idle_session_with_a_reason() -> None:
    async with engine_harness(limits=Limits(sessions_per_principal=1)) as d:
        await d.open()
        await settle_down()
        assert sorted(d.back.events) == ["closed: evicted", "opened", "opened", "start"]
        with pytest.raises(SessionGone):
            await d.submit(1)


class Described(ScriptedBack):
    """A back that describes itself without a wait, and does nothing when a session is opened."""

    def initialize(self, record: SessionRecord, caller: Caller) -> dict[str, Any]:  # type: ignore[override]
        return {"capabilities": {}, "serverInfo": self.server_info}

    @property
    def hears_opened(self) -> bool:
        return False


INITIALIZE = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "t"}, "capabilities": {}}


@engine_test
async def test_a_session_is_opened_without_a_task_if_neither_the_back_nor_the_store_waits() -> None:
    async with engine_harness(Described()) as d:
        before = asyncio.all_tasks()
        opened = d.engine.sessions.opening(Caller(ANONYMOUS), INITIALIZE)
        assert isinstance(opened, Opened)
        assert asyncio.all_tasks() == before
        assert await d.engine.sessions.find(opened.session.record.key, ANONYMOUS) is opened.session
        await settle_down()
        assert "opened" not in d.back.events


@engine_test
async def test_without_a_wait_too_a_session_is_refused_or_evicts_by_the_limits() -> None:
    async with engine_harness(Described(), limits=Limits(sessions_per_principal=1, sessions=3)) as d:
        first = d.session.record.key
        assert isinstance(d.engine.sessions.opening(Caller(PRINCIPAL), INITIALIZE), Opened)
        assert first not in await d.engine.runtime.store.sessions()
        for _ in range(2):
            d.engine.sessions.opening(Caller(ANONYMOUS), INITIALIZE)
        with pytest.raises(TooManySessions):
            await d.engine.sessions.open(Caller(ANONYMOUS), INITIALIZE)
        await settle_down()
        assert "closed: evicted" in d.back.events


class At:
    """The connection of an anonymous client."""

    gone = False
    account = None

    def __init__(self, address: str) -> None:
        self.address = address

    def watch(self, on_gone: Callable[[], object]) -> None:
        """It stays."""

    async def look(self) -> None:
        """It stays."""


@pytest.mark.parametrize("back", [ScriptedBack, Described])
@engine_test
async def test_the_address_with_the_most_idle_anonymous_sessions_loses_one(back: type[ScriptedBack]) -> None:
    """One address could open all sessions, and everyone else got 503."""
    async with engine_harness(back(), limits=Limits(sessions_per_principal=1, sessions=6)) as d:
        runtime = d.engine.runtime

        async def opened(address: str) -> str:
            session = await d.engine.sessions.open(Caller(ANONYMOUS, waiter=At(address)), INITIALIZE)
            return session.session.record.key

        honest, *many = [await opened(address) for address in ("10.0.0.1", *["10.0.0.2"] * 4)]
        with pytest.raises(TooManySessions):
            await opened("10.0.0.3")
        await asyncio.sleep(5)
        # The first of them is in use.
        await runtime.store.find(many[0], ANONYMOUS)
        new = await opened("10.0.0.3")
        assert {honest, new, many[0], *many[2:]} < set(await runtime.store.sessions())
        assert many[1] not in await runtime.store.sessions()
        await settle_down()
        assert d.back.events.count("closed: evicted") == 1


@pytest.mark.parametrize("seconds", [0.1, 5.0], ids=["were just opened", "are in use"])
@engine_test
async def test_an_address_whose_sessions_are_active_does_not_lock_out_new_clients(seconds: float) -> None:
    async with engine_harness(Described(), limits=Limits(sessions_per_principal=1, sessions=6)) as d:
        store = d.engine.runtime.store

        async def opened(address: str) -> str:
            session = await d.engine.sessions.open(Caller(ANONYMOUS, waiter=At(address)), INITIALIZE)
            return session.session.record.key

        idle = [await opened(f"10.0.0.{number}") for number in range(3)]
        await asyncio.sleep(90)
        active = [await opened("10.0.0.9") for _ in range(2)]
        for _ in range(3):
            await asyncio.sleep(seconds)
            for key in active:
                await store.find(key, ANONYMOUS)
            await opened("10.0.0.10")
        assert not set(idle) & set(await store.sessions())
        assert set(active) < set(await store.sessions())


@engine_test
async def test_a_server_with_many_sessions_makes_more_than_one_place_at_a_time() -> None:
    """The sessions that get the other places are opened without a wait."""
    most = 2_048
    async with engine_harness(Described(), limits=Limits(sessions=most)) as d:
        sessions, store = d.engine.sessions, d.engine.runtime.store
        for _ in range(most - 1):
            assert isinstance(sessions.opening(Caller(ANONYMOUS), INITIALIZE), Opened)
        await asyncio.sleep(5)
        await sessions.open(Caller(ANONYMOUS), INITIALIZE)
        assert len(await store.sessions()) == most - 2
        for _ in range(2):
            assert isinstance(sessions.opening(Caller(ANONYMOUS), INITIALIZE), Opened)
        assert len(await store.sessions()) == most


@engine_test
async def test_one_task_reports_that_a_session_was_closed() -> None:
    async with engine_harness() as d:
        await settle_down()
        before = asyncio.all_tasks()
        await d.engine.sessions.close(d.session, SessionInput.DELETED)
        assert len(asyncio.all_tasks() - before) == 1
        await settle_down()
        assert d.back.events[-1] == "closed: deleted"
        assert not d.engine.runtime.tasks & asyncio.all_tasks()


@engine_test
async def test_an_anonymous_session_that_is_read_is_not_evicted() -> None:
    async with engine_harness(limits=Limits(sessions=2)) as d:
        read = (await d.engine.sessions.open(Caller(ANONYMOUS), INITIALIZE)).session
        reader = await d.engine.readers.attach(read.record.key, ANONYMOUS, None, None)
        await asyncio.sleep(5)
        with pytest.raises(TooManySessions):
            await d.engine.sessions.open(Caller(ANONYMOUS), INITIALIZE)
        await d.engine.readers.detach(reader)
        await asyncio.sleep(5)
        await d.engine.sessions.open(Caller(ANONYMOUS), INITIALIZE)


@pytest.mark.parametrize(
    "params",
    [{}, {"protocolVersion": 1}, {"protocolVersion": "2025-11-25", "capabilities": {}},
     {"protocolVersion": "2025-11-25", "clientInfo": {}, "capabilities": {}},
     {"protocolVersion": "2025-11-25", "clientInfo": {"name": "x"}, "capabilities": []}],
)  # fmt: skip
@engine_test
async def test_a_malformed_initialize_opens_nothing(params: dict[str, object]) -> None:
    async with engine_harness() as d:
        with pytest.raises(InvalidParams):
            await d.engine.sessions.open(Caller(PRINCIPAL), params)
        assert len(await d.engine.runtime.store.sessions()) == 1


@engine_test
async def test_a_notification_reaches_the_back_and_its_exception_is_contained() -> None:
    class Faulty(ScriptedBack):
        async def notify(self, session: Session, method: str, params: dict[str, object]) -> None:
            await super().notify(session, method, params)
            raise RuntimeError("a bug of the author's")

    async with engine_harness(Faulty()) as d:
        await d.engine.sessions.notify(d.key, PRINCIPAL, "notifications/initialized", {})
        await settle_down()
        assert d.back.notified == [("notifications/initialized", {})]
        assert d.session.record.initialized
        assert len(d.noted.named("notification.failed")) == 1
        with pytest.raises(SessionGone):
            await d.engine.sessions.notify(d.key, "stranger", "notifications/initialized", {})


@engine_test
async def test_starting_at_once_from_many_sides_starts_once() -> None:
    back = ScriptedBack()
    async with engine_harness(back) as d:
        await asyncio.gather(*(d.engine.ensure_started() for _ in range(5)))
        assert back.events.count("start") == 1


@engine_test
async def test_stopping_twice_stops_once_and_leaves_no_task() -> None:
    async with engine_harness(settings=Settings()) as d:
        await d.get()
        await d.engine.aclose()
        await d.engine.aclose()
        await settle_down()
        assert d.back.events == ["start", "opened", "closed: shutdown", "stop"]
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


@engine_test
async def test_a_listener_that_hangs_does_not_keep_the_server_from_stopping() -> None:
    class Hanging(ScriptedBack):
        async def closed(self, session: Session, reason: SessionInput) -> None:
            await asyncio.Event().wait()

    async with engine_harness(Hanging(), times=Times(drain=5)) as d:
        for _ in range(3):
            await d.open()
        began = asyncio.get_running_loop().time()
        await d.engine.aclose()
        assert asyncio.get_running_loop().time() - began == pytest.approx(5)
        assert d.back.events[-1] == "stop"


@engine_test
async def test_the_listeners_of_a_session_closed_just_before_finish_before_the_back_stops() -> None:
    class Slow(ScriptedBack):
        async def closed(self, session: Session, reason: SessionInput) -> None:
            await asyncio.sleep(1)
            await super().closed(session, reason)

    async with engine_harness(Slow()) as d:
        await d.engine.sessions.close(d.session, SessionInput.DELETED)
        await d.engine.aclose()
        assert d.back.events == ["start", "opened", "closed: deleted", "stop"]
