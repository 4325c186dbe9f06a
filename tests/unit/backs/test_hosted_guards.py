"""The guards around the handlers of a hosted object. The objects are fakes: no framework is needed."""

import asyncio
from functools import partial
from typing import Any

import pytest

from holdfast.backs.hosted.guards import Guards
from holdfast.testing import NotingObserver
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

    async def _outer(self, context: Any, call_next: Any) -> object:
        return await call_next(context)

    async def handle(self, kind: str, request: object) -> object:
        call: Any = {"fail": fail, "wait": wait}[kind]
        for one in reversed(self.middleware):
            call = partial(_around, one, call)
        return await call(request)

    def own(self) -> object:
        return list(self.middleware)


@pytest.mark.parametrize("framework", [Mcp1, Mcp2])
def test_an_exception_of_any_kind_is_an_error_of_its_call_and_a_cancellation_stays_one(
    framework: type[Mcp1 | Mcp2],
) -> None:
    @virtual_test
    async def run() -> None:
        server, notes = framework(), NotingObserver()
        before = server.own()
        guards = Guards(server, notes)
        guards.set()
        for error in (SystemExit(2), KeyboardInterrupt(), asyncio.CancelledError()):
            with pytest.raises(RuntimeError, match=type(error).__name__):
                await server.handle("fail", error)
        with pytest.raises(KeyError):
            await server.handle("fail", KeyError("own"))
        assert len(notes.named("hosted.handler_failed")) == 3
        waiting = asyncio.ensure_future(server.handle("wait", None))
        await asyncio.sleep(1)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        guards.remove()
        assert server.own() == before

    run()
