"""Every end of a handler settles its exchange, in both eras, and ends nothing else (law 3)."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from limpet.config import Times
from limpet.engine.caller import Caller
from limpet.engine.engine import Engine
from limpet.engine.exchange import Exchange
from limpet.engine.session import Session
from limpet.errors import REQUEST_CANCELLED
from limpet.protocol.sessionless import RequestMeta
from limpet.testing import ScriptedBack
from limpet.wire.jsonrpc import Request
from tests.stores import ScriptedStore
from tests.support import LoopClock
from tests.unit.engine.harness import CALL, PRINCIPAL, echo, engine_harness, engine_test, settle_down
from tests.unit.engine.test_duplexes import connect


class Panic(BaseException):
    """An exception as a Rust extension raises it."""


ENDS = [
    Panic("a panic"),
    RuntimeError("a fault"),
    StopIteration(),
    GeneratorExit(),
    SystemExit(3),
    KeyboardInterrupt(),
    asyncio.CancelledError(),
    BaseExceptionGroup("several", [Panic(), ValueError()]),
]


def each_end(test: Callable[[BaseException], Awaitable[None]]) -> Callable[[BaseException], None]:
    """Run a test with each error that a handler can raise."""

    @pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
    def run(error: BaseException) -> None:
        @engine_test
        async def conversation() -> None:
            await test(error)

        conversation()

    return run


def raising(error: BaseException) -> Callable[[Exchange], Awaitable[object]]:
    async def fail(exchange: Exchange) -> object:
        await asyncio.sleep(1)
        raise error

    return fail


async def cancel_oneself(exchange: Exchange) -> object:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    return {"done": True}


def slow_store() -> ScriptedStore:
    """Return a store that lets other tasks run while an exchange is settled, as one behind a socket does."""
    store = ScriptedStore()
    store.delay("settle", outlives_caller=False)
    return store


@each_end
async def test_a_call_whose_handler_raises_is_answered_and_its_id_is_free(
    error: BaseException,
) -> None:
    back = ScriptedBack({CALL: raising(error), "quick": echo})
    async with engine_harness(back, times=Times(idle=100, grace=50, sweep=1)) as d:
        assert "error" in await d.call(1)
        assert "result" in await d.call(1, "quick")
        await asyncio.sleep(102)
        assert d.back.events[-1] == "closed: idle"


async def cancel_oneself_and_wait(exchange: Exchange) -> object:
    await cancel_oneself(exchange)
    await asyncio.sleep(1)
    raise AssertionError("the task was cancelled")


@pytest.mark.parametrize("handler", [cancel_oneself_and_wait, raising(asyncio.CancelledError())])
@engine_test
async def test_the_error_of_a_handler_that_cancels_itself_says_so(handler: Any) -> None:
    async with engine_harness(ScriptedBack({CALL: handler, "quick": echo})) as d:
        refused = (await d.call(1))["error"]
        assert refused == {
            "code": REQUEST_CANCELLED,
            "message": "Request cancelled: by the function itself",
        }
        assert "result" in await d.call(1, "quick")


@each_end
async def test_a_sessionless_call_whose_handler_raises_is_answered(error: BaseException) -> None:
    engine = Engine(ScriptedBack({CALL: raising(error)}), clock=LoopClock())
    async with aclosing(engine):
        await engine.ensure_started()
        awaited = engine.sessionless.start(
            RequestMeta("2026-07-28", {}, {"name": "test"}, ""), Caller(""), Request(1, CALL, {})
        )
        assert await awaited.wake.wait(10)
        assert awaited.outcome is not None
        assert awaited.outcome.error is not None
        assert engine.sessionless.live() == []
        awaited.leave()


@each_end
async def test_a_listener_that_raises_neither_stops_the_next_one_nor_the_server(
    error: BaseException,
) -> None:
    class Back(ScriptedBack):
        async def opened(self, session: Session) -> None:
            await super().opened(session)
            raise error

    async with engine_harness(Back({CALL: echo}), times=Times(idle=100, grace=50, sweep=1)) as d:
        asyncio.get_running_loop().set_exception_handler(lambda _, __: None)
        await (await d.get()).cut()
        await settle_down()
        assert d.back.events == ["start", "opened", "detached"]


@each_end
async def test_an_exception_of_a_notification_handler_is_contained(error: BaseException) -> None:
    class Back(ScriptedBack):
        async def notify(self, session: Session, method: str, params: dict[str, object]) -> None:
            raise error

    async with engine_harness(Back({CALL: echo})) as d:
        await d.engine.sessions.notify(d.key, PRINCIPAL, "notifications/roots/list_changed", {})
        await settle_down()
        assert len(d.noted.named("notification.failed")) == 1
        assert "result" in await d.call(1)


@pytest.mark.parametrize("yields", [False, True])
@engine_test
async def test_a_handler_that_cancels_its_own_task_and_returns_is_answered(yields: bool) -> None:
    store = slow_store() if yields else ScriptedStore()
    async with engine_harness(ScriptedBack({CALL: cancel_oneself, "quick": echo}), store=store) as d:
        assert (await d.call(1))["result"] == {"done": True}
        assert "result" in await d.call(1, "quick")
        wire = await connect(d)
        await d.submit(2)
        await settle_down()
        assert wire.messages == [{"jsonrpc": "2.0", "id": 2, "result": {"done": True}}]


@engine_test
async def test_a_cancellation_that_comes_while_the_end_is_written_does_not_keep_the_id() -> None:
    async def work(exchange: Exchange) -> object:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)
        return {"done": True}

    async with engine_harness(ScriptedBack({CALL: work, "quick": echo}), store=slow_store()) as d:
        assert (await d.call(1))["result"] == {"done": True}
        await asyncio.sleep(1)
        assert "result" in await d.call(1, "quick")


@engine_test
async def test_an_end_that_a_connections_store_takes_late_is_written_to_the_peer_once() -> None:
    store = slow_store()
    async with engine_harness(store=store) as d:
        wire = await connect(d)
        store.fail("settle", times=2)
        await d.submit(1)
        await asyncio.sleep(5)
        await d.submit(1)
        await settle_down()
        assert [message["id"] for message in wire.messages] == [1, 1]
