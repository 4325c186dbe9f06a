"""Threads for blocking functions: given to their owners in turn."""

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context

import pytest

from limpet.transports.threads import OWNER, DaemonThreads, in_turn
from tests.support import BOUND, async_test, until, wait_until


class Pool:
    """A pool whose functions wait until they are released, and the order in which they began."""

    def __init__(self, most: int) -> None:
        self.threads = DaemonThreads(most)
        self.release = threading.Event()
        self.began: list[str] = []

    def submit(self, owner: str) -> "Future[str]":
        """Start a function of an owner."""
        context = copy_context()
        context.run(OWNER.set, owner)
        return context.run(self.threads.submit, self._hold, owner)

    def _hold(self, owner: str) -> str:
        self.began.append(owner)
        assert self.release.wait(BOUND)
        return threading.current_thread().name

    def end(self, futures: "list[Future[str]]") -> set[str]:
        """Let all functions end; return the names of their threads."""
        self.release.set()
        assert not wait(futures, BOUND).not_done
        self.threads.shutdown()
        return {future.result() for future in futures}


def test_a_function_of_another_owner_runs_while_one_owner_has_all_threads_it_can_get() -> None:
    """Functions got threads in the order of arrival: 768 of one client delayed all others by 16 s."""
    pool = Pool(64)
    futures = [pool.submit("a") for _ in range(768)]
    context = copy_context()
    context.run(OWNER.set, "b")
    quick = context.run(pool.threads.submit, str.upper, "b")
    assert quick.result(BOUND) == "B"
    assert len(pool.end(futures)) <= 64


def test_functions_that_wait_get_a_thread_in_turn_by_their_owners() -> None:
    pool = Pool(1)
    futures = [pool.submit(owner) for owner in "aaaabbc"]
    pool.end(futures)
    assert "".join(pool.began) == "aabcaba"


def test_a_function_that_was_cancelled_while_it_waited_does_not_run() -> None:
    pool = Pool(1)
    first, dropped, last = (pool.submit(owner) for owner in "abc")
    assert dropped.cancel()
    pool.end([first, last])
    assert pool.began == ["a", "c"]


def test_a_thread_is_used_again_and_a_failure_frees_its_place() -> None:
    pool = Pool(1)
    for _ in range(10):
        failed = pool.threads.submit(int, "no number")
        assert isinstance(failed.exception(BOUND), ValueError)
    assert pool.threads._count == 1
    # The caller has the exception before the thread gives its place back.
    wait_until(lambda: pool.threads._gate._inside == 0)
    pool.end([])


class Host:
    """The loop of another program with one thread, which functions hold until they are released."""

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(1)
        asyncio.get_running_loop().set_default_executor(self.executor)
        self.release = threading.Event()
        self.began: list[str] = []

    def start(self, owner: str) -> "asyncio.Task[None]":
        """Start a function of an owner."""
        context = copy_context()
        context.run(OWNER.set, owner)
        return asyncio.get_running_loop().create_task(in_turn(self._hold, owner), context=context)

    def _hold(self, owner: str) -> None:
        self.began.append(OWNER.get() + owner)
        assert self.release.wait(BOUND)

    async def start_in_order(self, owners: str) -> "list[asyncio.Task[None]]":
        """Start a function that has the thread, then others that wait for it."""
        first = self.start(owners[0])
        await until(lambda: bool(self.began))
        others = [self.start(owner) for owner in owners[1:]]
        await until(lambda: self.executor._work_queue.qsize() == len(others))
        return [first, *others]


@async_test
async def test_functions_in_the_threads_of_another_program_begin_in_turn_by_their_owners() -> None:
    host = Host()
    functions = await host.start_in_order("xaaaabbc")
    host.release.set()
    await asyncio.gather(*functions)
    assert host.began == ["xx", "aa", "bb", "cc", "aa", "bb", "aa", "aa"]


@async_test
async def test_a_function_that_is_cancelled_before_another_programs_thread_takes_it_does_not_run() -> None:
    host = Host()
    first, dropped, last = await host.start_in_order("abc")
    dropped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dropped
    host.release.set()
    await asyncio.gather(first, last)
    assert host.began == ["aa", "cc"]


@async_test
async def test_functions_of_an_executor_that_is_closed_end_and_none_waits_forever() -> None:
    host = Host()
    running, waiting = await host.start_in_order("ab")
    host.executor.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(RuntimeError):
        await host.start("c")
    host.release.set()
    await running
    assert host.began == ["aa"]


def test_the_end_of_another_program_waits_for_a_function_whose_call_was_cancelled() -> None:
    ended: list[str] = []
    begun, release = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        assert release.wait(BOUND)
        ended.append("slow")

    async def program() -> None:
        call = asyncio.ensure_future(in_turn(slow))
        await until(begun.is_set)
        call.cancel()
        await asyncio.wait([call])
        threading.Timer(0.05, release.set).start()

    asyncio.run(program())
    assert ended == ["slow"]
