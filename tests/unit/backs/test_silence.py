"""The limit on a server's silence: one timer for all calls of an upstream."""

import asyncio

import pytest

from limpet.backs.proxy.silence import Silence, Wait
from tests.support import virtual_test


class Calls:
    """Calls that wait for a server that never answers."""

    def __init__(self, seconds: float) -> None:
        self.silence = Silence(seconds)
        self.waits: dict[str, Wait] = {}
        self.late: list[tuple[str, float]] = []
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, name: str, answered_after: float = 1_000.0) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._run(name, answered_after))
        self._tasks.append(task)
        return task

    async def _run(self, name: str, seconds: float) -> None:
        wait = self.waits[name] = Wait(self.silence)
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            if not wait.end():
                raise
            self.late.append((name, asyncio.get_running_loop().time()))
        else:
            assert not wait.end()


@virtual_test
async def test_each_call_is_late_at_its_own_time() -> None:
    calls, began = Calls(10), asyncio.get_running_loop().time()
    for name, pause in (("a", 3.0), ("b", 4.0), ("c", 0.0)):
        _ = calls.start(name)
        await asyncio.sleep(pause)
    await asyncio.sleep(30)
    assert [(name, round(when - began)) for name, when in calls.late] == [("a", 10), ("b", 13), ("c", 17)]
    assert repr(calls.silence) == "<Silence of 10 s, 0 calls>"


@virtual_test
async def test_a_call_that_is_answered_in_time_is_not_late_and_its_successor_is() -> None:
    calls, began = Calls(10), asyncio.get_running_loop().time()
    await calls.start("answered", answered_after=9)
    _ = calls.start("silent")
    await asyncio.sleep(30)
    assert [(name, round(when - began)) for name, when in calls.late] == [("silent", 19)]


@virtual_test
async def test_a_sign_of_life_and_a_pause_put_the_time_off() -> None:
    calls, began = Calls(10), asyncio.get_running_loop().time()
    for name in ("lively", "paused", "paused twice"):
        _ = calls.start(name)
    await asyncio.sleep(8)
    calls.waits["lively"].restart()
    for _ in range(2):
        calls.waits["paused twice"].pause()
    calls.waits["paused"].pause()
    await asyncio.sleep(50)
    calls.waits["paused"].resume()
    calls.waits["paused twice"].resume()
    await asyncio.sleep(50)
    assert [(name, round(when - began)) for name, when in calls.late] == [("lively", 18), ("paused", 68)]
    calls.waits["paused twice"].resume()
    await asyncio.sleep(50)
    assert round(calls.late[-1][1] - began) == 118


@virtual_test
async def test_a_task_that_something_else_cancels_stays_cancelled() -> None:
    calls = Calls(10)
    before, meanwhile = calls.start("before"), calls.start("at the same time")
    await asyncio.sleep(5)
    before.cancel()
    asyncio.get_running_loop().call_at(
        calls.waits["at the same time"].deadline or 0.0, lambda: meanwhile.cancel("by a client")
    )
    await asyncio.sleep(20)
    assert before.cancelled()
    assert meanwhile.cancelled()
    assert calls.late == []


@virtual_test
async def test_a_call_without_a_task_is_a_mistake() -> None:
    failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def begin() -> None:
        try:
            Wait(Silence(1))
        except RuntimeError as error:
            failed.set_result(str(error))

    asyncio.get_running_loop().call_soon(begin)
    assert "task" in await failed


@virtual_test
async def test_a_closed_limit_leaves_no_timer_also_if_a_call_gives_a_late_sign_of_life() -> None:
    calls = Calls(10)
    waiting = calls.start("closed")
    await asyncio.sleep(1)
    calls.silence.close()
    calls.waits["closed"].restart()
    await asyncio.sleep(100)
    assert not waiting.done()
    assert not calls.late
    waiting.cancel()


@pytest.mark.parametrize("seconds", [0.5, 300.0])
@virtual_test
async def test_one_timer_serves_many_calls(seconds: float) -> None:
    calls, loop = Calls(seconds), asyncio.get_running_loop()
    made = 0
    call_at = loop.call_at

    def counting(*arguments: object, **options: object) -> asyncio.TimerHandle:
        nonlocal made
        made += getattr(arguments[1], "__self__", None) is calls.silence
        return call_at(*arguments, **options)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "call_at", counting)
        for number in range(100):
            await calls.start(str(number), answered_after=seconds / 1_000)
    assert made == 1
