"""The loop of a process of ours."""

import asyncio
import subprocess
import sys
import threading

import pytest

from limpet.config import Limits
from limpet.transports.loops import run
from limpet.transports.threads import DaemonThreads
from tests.support import BOUND


def test_seven_eighths_of_the_threads_run_functions_of_one_client_at_once() -> None:
    wanted = Limits().threads * 7 // 8
    together = threading.Barrier(wanted)

    async def work() -> None:
        # Each waits for all the others: with one thread fewer none would ever continue.
        await asyncio.gather(*(asyncio.to_thread(together.wait, BOUND) for _ in range(wanted)))

    run(work(), threads=Limits().threads)
    assert not together.broken


def test_a_function_that_blocks_does_not_keep_the_process_alive() -> None:
    program = (
        "import asyncio, time\n"
        "from limpet.transports.loops import run\n"
        "async def work():\n"
        "    asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)\n"
        "run(work(), threads=2)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=BOUND, check=False).returncode == 0


def test_functions_beyond_the_threads_wait_their_turn_and_all_are_run() -> None:
    threads = DaemonThreads(2)

    def numbered(number: int) -> tuple[int, str]:
        return number, threading.current_thread().name

    futures = [threads.submit(numbered, number) for number in range(50)]
    results = [future.result(20) for future in futures]
    assert [number for number, _ in results] == list(range(50))
    assert len({name for _, name in results}) <= 2
    threads.shutdown()
    with pytest.raises(RuntimeError, match="stopping"):
        threads.submit(print)


def test_an_exception_of_a_function_is_raised_at_its_caller_and_the_thread_continues() -> None:
    threads = DaemonThreads(1)

    def fails() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        threads.submit(fails).result(20)
    assert threads.submit(lambda: 7).result(20) == 7
    threads.shutdown()


def test_a_function_that_is_cancelled_while_it_waits_is_not_run() -> None:
    threads, go = DaemonThreads(1), threading.Event()
    ran: list[int] = []
    threads.submit(go.wait, 20)
    waiting = threads.submit(ran.append, 1)
    assert waiting.cancel()
    go.set()
    assert threads.submit(lambda: "after").result(20) == "after"
    assert ran == []
    threads.shutdown()
