"""The lifespan of a hosted object is entered once, and left by the task that entered it."""

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import MagicMock

import pytest

from limpet.backs.hosted.lifespan import Lifespan
from limpet.errors import ConfigError, LifespanEnded, NotSent
from limpet.ports import Ports, SilentObserver, SystemClock, SystemRandom
from limpet.server import hosted as target
from limpet.upstream.settings import ClientLimits, ClientTimes
from tests.support import async_test, until

COLOR: contextvars.ContextVar[str] = contextvars.ContextVar("color", default="none")


class FakeServer:
    """A server as the official package has it: `lifespan` is an attribute that its runs call."""

    name = "fake"

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.tasks: list[asyncio.Task[Any] | None] = []
        self.broken = asyncio.Event()
        self.lifespan: Any = self.own

    @contextlib.asynccontextmanager
    async def own(self, server: Any) -> AsyncIterator[str]:
        assert server is self
        if self.fails:
            raise OSError("no database")
        self.tasks.append(asyncio.current_task())
        COLOR.set("blue")
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(self.break_down())
            yield "state"
            watch.cancel()
        self.tasks.append(asyncio.current_task())

    async def break_down(self) -> None:
        await self.broken.wait()
        raise OSError("the database went away")


def _unexpected(failure: LifespanEnded) -> None:
    raise failure


@async_test
async def test_every_run_gets_the_state_and_context_of_one_lifespan_and_the_attribute_is_put_back() -> None:
    server = FakeServer()
    own = server.lifespan
    lifespan = Lifespan(server, SilentObserver(), _unexpected)
    await lifespan.start()
    for _ in range(2):
        async with server.lifespan(server) as state:
            assert state == "state"
        assert lifespan.context.run(COLOR.get) == "blue"
    assert COLOR.get() == "none"
    await lifespan.stop()
    assert server.lifespan == own
    entered, left = server.tasks
    assert entered is left


@async_test
async def test_a_lifespan_that_fails_at_its_start_is_a_clear_error() -> None:
    lifespan = Lifespan(FakeServer(fails=True), SilentObserver(), _unexpected)
    with pytest.raises(ConfigError, match=r"the lifespan of fake failed: .*no database"):
        await lifespan.start()


@async_test
async def test_no_run_starts_after_the_lifespan_has_broken_down() -> None:
    server, failures = FakeServer(), list[LifespanEnded]()
    own = server.lifespan
    lifespan = Lifespan(server, SilentObserver(), failures.append)
    await lifespan.start()
    server.broken.set()
    await until(lambda: bool(failures))
    assert isinstance(failures[0].__cause__, ExceptionGroup)
    assert server.lifespan == own
    with pytest.raises(NotSent, match="the lifespan of fake has ended"):
        _ = lifespan.context
    await lifespan.stop()
    assert len(failures) == 1


@async_test
async def test_a_hosted_object_reports_the_end_of_its_lifespan(monkeypatch: pytest.MonkeyPatch) -> None:
    server, failures = FakeServer(), list[LifespanEnded]()
    monkeypatch.setattr(target, "core_of", lambda found, *, place: found)  # noqa: ARG005
    for name in ("Dialect", "Guards"):
        monkeypatch.setattr(target, name, MagicMock())
    hosted = target.HostedTarget(
        server, place="app.py", version="sessions", limits=ClientLimits(), times=ClientTimes()
    )
    await hosted.start(Ports(SystemClock(), SystemRandom(), SilentObserver()), failures.append)
    server.broken.set()
    await until(lambda: bool(failures))
    await hosted.stop()


@async_test
async def test_a_lifespan_that_cancels_its_own_task_is_an_error_with_a_reason() -> None:
    server = FakeServer()

    @contextlib.asynccontextmanager
    async def cancel_itself(_server: Any) -> AsyncIterator[str]:
        asyncio.current_task().cancel()  # type: ignore[union-attr]
        await asyncio.Event().wait()
        yield "not reached"

    server.lifespan = cancel_itself
    with pytest.raises(ConfigError, match="the lifespan of fake failed: CancelledError"):
        await Lifespan(server, SilentObserver(), _unexpected).start()
