"""Threads for blocking functions that do not keep the process alive.

A thread cannot be stopped. The process joins the threads of the standard executor at its end, so a function that blocks
for an hour delays a restart by an hour, also with a short drain time. These threads are daemons: the process ends when
the server has ended, and a function that still runs ends with it.
"""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from typing_extensions import override

P = ParamSpec("P")
T = TypeVar("T")
_Job = Callable[[], None]


class DaemonThreads(ThreadPoolExecutor):
    """A limited number of threads, started when needed. It is a ThreadPoolExecutor because event loops require one."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self._most = most
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._count = 0
        self._is_closed = False

    @override
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Run a function in a thread. It can be cancelled while it waits for a thread."""
        future: Future[T] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - the future carries every exception
                future.set_exception(error)

        with self._lock:
            if self._is_closed:
                raise RuntimeError("the server is stopping: no new function can be started")
            self._jobs.put(job)
            if not self._idle.acquire(blocking=False) and self._count < self._most:
                self._count += 1
                name = f"holdfast-{self._count}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
        return future

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # Keep no argument or result of a finished call in memory.
            self._idle.release()

    @override
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more functions. Running functions are not awaited: they end with the process."""
        with self._lock:
            self._is_closed = True
            for _ in range(self._count):
                self._jobs.put(None)
