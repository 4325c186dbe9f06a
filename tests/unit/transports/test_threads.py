"""Threads for blocking functions: given to their owners in turn."""

import threading
from concurrent.futures import Future, wait
from contextvars import copy_context

from holdfast.transports.threads import OWNER, DaemonThreads
from tests.support import BOUND


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
    pool = Pool(2)
    for _ in range(10):
        failed = pool.threads.submit(int, "no number")
        assert isinstance(failed.exception(BOUND), ValueError)
    assert pool.threads._count <= 2
    assert not pool.threads._gate._held or pool.threads._gate._inside <= 1
    pool.end([])
