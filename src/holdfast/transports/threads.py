"""Threads for blocking functions that do not keep the process alive.

A thread cannot be stopped. The process joins the threads of the standard executor at its end, so a function that blocks
for an hour delays a restart by an hour, also with a short drain time. These threads are daemons: the process ends when
the server has ended, and a function that still runs ends with it.

Functions wait for a thread in turn by their owners (`core/admission.py`): one client that calls a thousand slow functions does not
block the functions of others.
"""

import queue
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Final, ParamSpec, TypeVar

from typing_extensions import override

from holdfast.core.admission import Admission, SharedGate

P = ParamSpec("P")
T = TypeVar("T")
_Job = Callable[[], "_Job | None"]
"""Runs a function, and returns the one that gets its thread."""

OWNER: Final[ContextVar[str]] = ContextVar("holdfast_owner", default="")
"""The owner of the functions that this context starts in threads. All functions without one have the same owner."""


class DaemonThreads(ThreadPoolExecutor):
    """A limited number of threads, started when needed. It is a ThreadPoolExecutor because event loops require one."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self._most = most
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._gate: SharedGate[_Job] = SharedGate(most, sys.maxsize)
        self._count = 0
        self._is_closed = False

    @override
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Run a function in a thread. It can be cancelled while it waits for a thread."""
        future: Future[T] = Future()
        owner = OWNER.get()

        def job() -> "_Job | None":
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:  # noqa: BLE001 - the future carries every exception
                    future.set_exception(error)
            with self._lock:
                return self._gate.leave(owner)

        with self._lock:
            if self._is_closed:
                raise RuntimeError("the server is stopping: no new function can be started")
            if self._gate.enter(owner, job) is Admission.START:
                self._start(job)
        return future

    def _start(self, job: _Job) -> None:
        """Let an idle thread run a function, or a new one."""
        self._jobs.put(job)
        if not self._idle.acquire(blocking=False) and self._count < self._most:
            self._count += 1
            name = f"holdfast-{self._count}"
            threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            following: _Job | None = job
            del job
            # Nothing keeps an argument or a result of a finished call in memory.
            while following is not None:
                following = following()
            self._idle.release()

    @override
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more functions. Running functions are not awaited: they end with the process."""
        with self._lock:
            self._is_closed = True
            for _ in range(self._count):
                self._jobs.put(None)
