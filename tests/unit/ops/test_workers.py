"""The workers of a parent as one source: a question finds a worker that answers, and no counter goes back."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from limpet.errors import LimpetError, StoreUnavailable
from limpet.ops.admin import workers as module
from limpet.ops.admin.lines import Line, answering
from limpet.ops.admin.workers import Workers
from limpet.ops.metrics import families
from limpet.ops.metrics.samples import Sample, number
from limpet.ops.ring import Happened
from limpet.ops.views import FiguresView, FleetState, ShownSession
from tests.support import virtual_test


class Fake:
    """The data of one worker."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.silent = False
        self.away = False
        self.events = 0
        self.done: list[str] = []

    async def _answered(self) -> None:
        if self.silent:
            await asyncio.Event().wait()
        if self.away:
            raise StoreUnavailable("the store does not answer")

    async def state(self, page: str, after: int) -> FleetState:
        await self._answered()
        return FleetState(self.name, [], FiguresView(), [], [], f"{page}{after}", [], [], {})

    async def session(self, name: str) -> tuple[ShownSession | None, list[Happened]]:
        await self._answered()
        return None, [Happened(1, 0.0, "session.closed", {"session": name})]

    async def find(self, correlation: str) -> list[Happened]:
        await self._answered()
        return [Happened(1, 0.0, "handler.failed", {"correlation": correlation})]

    async def close_session(self, name: str) -> bool:
        await self._answered()
        self.done.append(name)
        return True

    async def cancel_call(self, name: str) -> bool:
        await self._answered()
        return False

    async def metrics(self) -> list[Sample]:
        await self._answered()
        return [
            number(families.EVENTS, self.events, "shop", "session.opened"),
            number(families.PROCESSES, 1),
        ]


class House:
    """A parent, and workers that can be killed."""

    def __init__(self) -> None:
        self.workers = Workers()
        self.stack = contextlib.AsyncExitStack()
        self._lines: list[Line] = []

    async def start(self, name: str) -> tuple[Fake, Line, contextlib.AsyncExitStack]:
        """Start a worker. Closing the stack that is returned ends it in order."""
        fake = Fake(name)
        ours, theirs = socket.socketpair()
        stack = await self.stack.enter_async_context(contextlib.AsyncExitStack())
        await stack.enter_async_context(answering(fake, theirs))
        line = await self.workers.add(ours)
        line.is_ready = True
        self._lines.append(line)
        return fake, line, stack

    async def ended(self) -> None:
        """Wait until every line is closed."""
        await asyncio.gather(*(line.ended for line in self._lines))

    async def counted(self) -> dict[str, float]:
        return {sample.family: sample.value for sample in await self.workers.metrics()}


@contextlib.asynccontextmanager
async def house() -> AsyncIterator[House]:
    made = House()
    async with made.stack:
        yield made
    await made.ended()


@virtual_test
async def test_every_question_reaches_a_worker_and_its_answer_comes_back() -> None:
    async with house() as parent:
        fake, _, _ = await parent.start("one")
        state = await parent.workers.state("p", 7)
        assert (state.replica, state.next_page) == ("one", "p7")
        assert (await parent.workers.session("abc"))[1][0].facts == {"session": "abc"}
        assert (await parent.workers.find("c0"))[0].facts == {"correlation": "c0"}
        assert await parent.workers.close_session("abc") is True
        assert await parent.workers.cancel_call("abc") is False
        assert fake.done == ["abc"]


@virtual_test
async def test_one_worker_is_asked_until_it_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEDGE", 0.05)
    monkeypatch.setattr(module, "LIMIT", 0.3)
    async with house() as parent:
        one, _, _ = await parent.start("one")
        two, _, _ = await parent.start("two")
        assert [(await parent.workers.state("", 0)).replica for _ in range(3)] == ["one"] * 3
        one.silent = True
        assert (await parent.workers.state("", 0)).replica == "two"
        one.silent = False
        assert (await parent.workers.state("", 0)).replica == "two"
        two.away = True
        assert (await parent.workers.state("", 0)).replica == "one"
        one.silent = two.silent = True
        with pytest.raises(LimpetError, match="no worker answers in time"):
            await parent.workers.state("", 0)
        one.silent, one.away, two.silent = False, True, False
        with pytest.raises(LimpetError, match="the store does not answer"):
            await parent.workers.state("", 0)


@virtual_test
async def test_an_act_is_asked_of_one_worker_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEDGE", 0.01)
    monkeypatch.setattr(module, "LIMIT", 0.2)
    async with house() as parent:
        one, _, _ = await parent.start("one")
        two, _, _ = await parent.start("two")
        one.silent = True
        with pytest.raises(LimpetError):
            await parent.workers.close_session("abc")
        assert two.done == []
        one.silent, one.away = False, True
        assert await parent.workers.close_session("abc") is True
        assert two.done == ["abc"]


@virtual_test
async def test_a_worker_that_is_killed_costs_no_answer() -> None:
    async with house() as parent:
        _, line, stack = await parent.start("one")
        await parent.start("two")
        await stack.aclose()
        assert (await parent.workers.state("", 0)).replica == "two"
        await parent.workers.remove(line)
        assert (await parent.workers.state("", 0)).replica == "two"


@virtual_test
async def test_without_a_worker_the_state_is_an_error_and_metrics_are_those_of_the_past() -> None:
    async with house() as parent:
        with pytest.raises(LimpetError, match="no worker serves yet"):
            await parent.workers.state("", 0)
        assert await parent.workers.metrics() == []
        fake, line, stack = await parent.start("one")
        fake.events = 3
        await stack.aclose()
        await parent.workers.remove(line)
        assert await parent.counted() == {families.EVENTS.name: 3}


@virtual_test
async def test_metrics_are_summed_and_counters_never_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    async with house() as parent:
        one, line, stack = await parent.start("one")
        two, _, _ = await parent.start("two")
        one.events, two.events = 5, 7
        assert await parent.counted() == {families.EVENTS.name: 12, families.PROCESSES.name: 2}
        # A worker that hangs: its counters stay, its gauges do not.
        one.events, one.silent = 6, True
        assert await parent.counted() == {families.EVENTS.name: 12, families.PROCESSES.name: 1}
        # It ends, and sends its last metrics.
        one.silent = False
        await stack.aclose()
        await parent.workers.remove(line)
        assert await parent.counted() == {families.EVENTS.name: 13, families.PROCESSES.name: 1}
        # Its successor begins with 0.
        three, line, stack = await parent.start("three")
        three.events = 1
        assert await parent.counted() == {families.EVENTS.name: 14, families.PROCESSES.name: 2}
        await stack.aclose()
        await parent.workers.remove(line)
        assert await parent.counted() == {families.EVENTS.name: 14, families.PROCESSES.name: 1}


@virtual_test
async def test_a_worker_that_has_not_started_yet_is_asked_nothing() -> None:
    async with house() as parent:
        one, line, _ = await parent.start("one")
        line.is_ready = False
        with pytest.raises(LimpetError, match="no worker serves yet"):
            await parent.workers.close_session("abc")
        assert await parent.workers.metrics() == []
        assert one.done == []
        line.is_ready = True
        assert await parent.workers.close_session("abc") is True


@virtual_test
async def test_a_worker_that_is_killed_keeps_the_counters_that_were_shown() -> None:
    async with house() as parent:
        one, line, stack = await parent.start("one")
        one.events = 5
        assert await parent.counted() == {families.EVENTS.name: 5, families.PROCESSES.name: 1}
        one.events, one.away = 9, True
        await stack.aclose()
        await parent.workers.remove(line)
        assert await parent.counted() == {families.EVENTS.name: 5}
