"""The guards around the handlers of a hosted object. The objects are fakes: no framework is needed."""

import asyncio
from functools import partial
from typing import Any

import anyio
import pytest

from limpet.backs.hosted.guards import Guards
from limpet.testing import NotingObserver
from tests.support import virtual_test


async def fail(error: BaseException) -> str:
    raise error


async def wait(_request: object) -> None:
    await asyncio.Event().wait()


class Mcp1:
    """A server with handlers by type. A request is the exception that its handler raises."""

    def __init__(self) -> None:
        self.name = "fake"
        self.request_handlers: dict[str, Any] = {"fail": fail, "wait": wait}
        self.notification_handlers: dict[str, Any] = {"fail": fail}
        self.handlers = self.request_handlers

    async def handle(self, kind: str, request: object) -> object:
        return await self.request_handlers[kind](request)

    def own(self) -> object:
        return dict(self.request_handlers)


def _around(middleware: Any, call_next: Any, context: object) -> Any:
    return middleware(context, call_next)


class Mcp2:
    """A server with middleware around its handlers."""

    def __init__(self) -> None:
        self.name = "fake"
        self.middleware: list[Any] = [self._outer]
        self.handlers: dict[str, Any] = {"fail": fail, "wait": wait}

    async def _outer(self, context: Any, call_next: Any) -> object:
        return await call_next(context)

    async def handle(self, kind: str, request: object) -> object:
        call: Any = self.handlers[kind]
        for one in reversed(self.middleware):
            call = partial(_around, one, call)
        return await call(request)

    def own(self) -> object:
        return list(self.middleware)


every_framework = pytest.mark.parametrize("framework", [Mcp1, Mcp2])


@every_framework
@virtual_test
async def test_an_exception_of_any_kind_is_an_error_of_its_call_and_a_cancellation_stays_one(
    framework: type[Mcp1 | Mcp2],
) -> None:
    server, notes = framework(), NotingObserver()
    before = server.own()
    guards = Guards(server, notes)
    guards.set()
    for error in (SystemExit(2), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()):
        with pytest.raises(RuntimeError, match=type(error).__name__):
            await server.handle("fail", error)
    with pytest.raises(KeyError):
        await server.handle("fail", KeyError("own"))
    assert len(notes.named("hosted.handler_failed")) == 4
    # The frameworks cancel a call by a scope around its handler.
    with anyio.CancelScope() as scope:
        asyncio.get_running_loop().call_later(1, scope.cancel)
        await server.handle("wait", None)
    assert scope.cancelled_caught
    guards.remove()
    assert server.own() == before


def own_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def cancel_own_task(_request: object) -> str:
    own_task().cancel()
    await asyncio.sleep(1)
    return "not reached"


async def cancel_own_task_last(_request: object) -> str:
    own_task().cancel()
    return "returned"


async def cancel_own_task_and_fail(_request: object) -> str:
    own_task().cancel()
    raise KeyError("own")


async def never_leave_a_scope(_request: object) -> str:
    scope = anyio.CancelScope()
    scope.__enter__()
    anyio.CancelScope().__enter__()
    scope.cancel()
    await asyncio.sleep(1)
    return "not reached"


async def never_leave_a_deadline(_request: object) -> str:
    anyio.move_on_after(0.5).__enter__()
    return "returned"


async def await_a_cancelled_task(_request: object) -> str:
    task = asyncio.ensure_future(asyncio.sleep(1))
    task.cancel()
    await task
    return "not reached"


@every_framework
@pytest.mark.parametrize(
    ("handler", "outcome"),
    [
        (cancel_own_task, RuntimeError),
        (cancel_own_task_last, "returned"),
        (cancel_own_task_and_fail, KeyError),
        (never_leave_a_scope, RuntimeError),
        (never_leave_a_deadline, "returned"),
        (await_a_cancelled_task, RuntimeError),
    ],
)
@virtual_test
async def test_a_handler_that_cancels_itself_costs_its_own_call(
    framework: type[Mcp1 | Mcp2], handler: Any, outcome: object
) -> None:
    server = framework()
    server.handlers["own"] = handler
    guards = Guards(server, NotingObserver())
    guards.set()
    try:
        async with anyio.create_task_group() as tasks:
            other = anyio.Event()
            tasks.start_soon(other.wait)
            # As in the frameworks: a scope around the handler, and awaits after it.
            with anyio.CancelScope():
                try:
                    assert await server.handle("own", None) == outcome
                except (RuntimeError, KeyError) as error:
                    assert type(error) is outcome  # noqa: PT017 - the type is a parameter
                await asyncio.sleep(1)
            await asyncio.sleep(1)
            assert not tasks.cancel_scope.cancel_called
            other.set()
        assert not own_task().cancelling()
    finally:
        guards.remove()


@virtual_test
async def test_a_handler_of_notifications_has_a_guard_too() -> None:
    server = Mcp1()
    guards = Guards(server, NotingObserver())
    guards.set()
    with pytest.raises(RuntimeError, match="SystemExit"):
        await server.notification_handlers["fail"](SystemExit(2))
    guards.remove()
    assert server.notification_handlers == {"fail": fail}
