import asyncio
import gc
import logging
import threading
import time

import pytest

from tests import support
from tests.process_state import process_as_before
from tests.support import Stuck, VirtualLoop, async_test, async_test_within, virtual_test


def test_a_real_time_test_runs_its_coroutine_and_passes_arguments() -> None:
    seen: list[int] = []

    @async_test
    async def body(number: int) -> None:
        await asyncio.sleep(0)
        seen.append(number)

    body(7)
    assert seen == [7]


def test_a_real_time_test_fails_at_its_bound() -> None:
    @async_test_within(0.01)
    async def body() -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        body()


def test_a_failure_inside_the_coroutine_reaches_pytest() -> None:
    @virtual_test
    async def body() -> None:
        raise KeyError("seen")

    with pytest.raises(KeyError, match="seen"):
        body()


@virtual_test
async def test_an_hour_of_virtual_time_passes_at_once() -> None:
    loop = asyncio.get_running_loop()
    began = time.monotonic()
    await asyncio.sleep(3600)
    assert loop.time() == pytest.approx(3600)
    assert time.monotonic() - began < 60


@virtual_test
async def test_timers_fire_in_order_at_their_own_times() -> None:
    loop = asyncio.get_running_loop()
    seen: list[tuple[str, float]] = []

    async def after(name: str, delay: float) -> None:
        await asyncio.sleep(delay)
        seen.append((name, loop.time()))

    await asyncio.gather(after("late", 900), after("soon", 0.25), after("middle", 60))
    assert seen == [("soon", 0.25), ("middle", 60), ("late", 900)]


@virtual_test
async def test_a_timeout_fires_when_every_task_waits_and_not_while_one_works() -> None:
    for _ in range(1000):
        await asyncio.sleep(0)
    assert asyncio.get_running_loop().time() == 0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1800):
            await asyncio.Event().wait()
    assert asyncio.get_running_loop().time() == 1800


@virtual_test
async def test_time_stands_still_while_a_thread_works() -> None:
    loop = asyncio.get_running_loop()
    release = threading.Event()
    loop.call_soon(release.set)
    async with asyncio.timeout(0.001):
        assert await asyncio.to_thread(release.wait, 10)
    assert loop.time() == 0


@virtual_test
async def test_sockets_work_in_virtual_time() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        await asyncio.sleep(600)
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"hello\n")
        assert await reader.read() == b"hello\n"
        writer.close()
        await writer.wait_closed()


def test_a_test_in_which_nothing_can_happen_any_more_is_called_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "STUCK_AFTER", 0.01)

    @virtual_test
    async def body() -> None:
        await asyncio.sleep(5)
        await asyncio.Event().wait()

    with pytest.raises(Stuck, match="virtual second 5"):
        body()


def test_every_virtual_loop_starts_at_zero() -> None:
    loop = VirtualLoop()
    assert loop.time() == 0
    loop.close()


@virtual_test
async def test_a_condition_that_must_stay_true_is_checked_all_the_time() -> None:
    ends = asyncio.get_running_loop().time() + 0.5

    async def holds() -> bool:
        return asyncio.get_running_loop().time() < ends

    await support.stays(holds, 0.3)
    with pytest.raises(AssertionError, match="became false"):
        await support.stays(holds, 0.3)


# The state of the process


@pytest.mark.parametrize("turn", ["first", "second"])
def test_the_log_and_the_collector_that_a_test_leaves_behind_reach_no_other_test(turn: str) -> None:
    """Both turns leave everything changed; the second one, and each later test, finds nothing of it."""
    ours, root = logging.getLogger("limpet"), logging.getLogger()
    assert ours.level == logging.NOTSET, turn
    assert root.level == logging.WARNING, turn
    assert not any(isinstance(handler, Left) for handler in root.handlers), turn
    assert gc.isenabled(), turn
    assert gc.get_freeze_count() == 0, turn
    leave_behind()


class Left(logging.NullHandler):
    """A handler that a test left behind."""


def leave_behind() -> None:
    logging.getLogger("limpet").setLevel(logging.CRITICAL)
    logging.getLogger().setLevel(logging.DEBUG)
    logging.getLogger().addHandler(Left())
    gc.disable()
    gc.freeze()


def test_a_part_of_a_test_can_leave_the_process_as_before_too() -> None:
    handlers = [*logging.getLogger().handlers]
    with process_as_before():
        leave_behind()
        assert not gc.isenabled()
    assert logging.getLogger("limpet").level == logging.NOTSET
    assert logging.getLogger().handlers == handlers
    assert gc.isenabled()
