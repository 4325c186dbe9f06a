"""Threads for blocking functions that do not keep the process alive.

A thread cannot be stopped. The process joins the threads of the standard executor at its end, so a function that blocks
for an hour delays a restart by an hour, also with a short drain time. These threads are daemons: the process ends when
the server has ended, and a function that still runs ends with it.

Functions wait for a thread in turn by their owners (`core/admission.py`): one client that calls a thousand slow
functions does not block the functions of others.

A server in another program's event loop uses the threads of that program, which are not daemons: its end waits for
functions that run, and that is the program's to decide. There only the order is ours (`TurnsOfHost`).
"""

import asyncio
import contextvars
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from typing_extensions import override

from limpet.core.admission import Admission, SharedGate

P = ParamSpec("P")
T = TypeVar("T")
_Job = Callable[[], "_Job | None"]
"""Runs a function, and returns the one that gets its thread."""
_Waiting = tuple["Future[Any]", Callable[[], Any]]

OWNER: Final[ContextVar[str]] = ContextVar("limpet_owner", default="")
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
            _fulfil(future, lambda: fn(*args, **kwargs))
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
            name = f"limpet-{self._count}"
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


class TurnsOfHost:
    """The functions that wait for a thread of another program's executor. They begin in turn by their owners.

    The executor runs what it gets in the order of arrival. So it gets no function, but the order to run the next one:
    the thread that becomes free takes the function whose owner has the next turn. There are always as many orders as
    functions.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[_Waiting]] = {}
        """By owner. The owner whose turn is next is the first."""

    async def run(self, fn: Callable[..., T], /, *args: Any) -> T:
        """Run a function in a thread, in the caller's context; as `asyncio.to_thread` does."""
        future: Future[T] = Future()
        context = contextvars.copy_context()
        waiting = (future, lambda: context.run(fn, *args))
        owner = OWNER.get()
        with self._lock:
            self._waiting.setdefault(owner, deque()).append(waiting)
        try:
            order = asyncio.get_running_loop().run_in_executor(None, self._run_next)
        except BaseException:
            # The executor is closed.
            with self._lock:
                self._waiting[owner].remove(waiting)
            raise
        order.add_done_callback(self._ordered)
        return await asyncio.wrap_future(future)

    def _run_next(self) -> None:
        if (waiting := self._take()) is not None:
            _fulfil(*waiting)

    def _ordered(self, order: "asyncio.Future[None]") -> None:
        """Cancel a function if the executor has dropped an order, because it is closed."""
        if order.cancelled() and (waiting := self._take()) is not None:
            waiting[0].cancel()

    def _take(self) -> "_Waiting | None":
        """Take the next function. The next turn of its owner comes after those of all others."""
        with self._lock:
            for owner in list(self._waiting):
                functions = self._waiting.pop(owner)
                if functions:
                    first = functions.popleft()
                    if functions:
                        self._waiting[owner] = functions
                    return first
            return None


_TURNS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, TurnsOfHost | None]] = WeakKeyDictionary()
"""By the event loop of another program. None: the loop is ours, and its executor gives threads in turn."""


def use_daemon_threads(loop: asyncio.AbstractEventLoop, most: int) -> None:
    """Give a loop of ours this many daemon threads."""
    loop.set_default_executor(DaemonThreads(most))
    _TURNS[loop] = None


async def in_turn(fn: Callable[..., T], /, *args: Any) -> T:
    """Run a function in a thread of the running loop, in turn by `OWNER`; otherwise as `asyncio.to_thread` does."""
    loop = asyncio.get_running_loop()
    turns = _TURNS.get(loop) if loop in _TURNS else _TURNS.setdefault(loop, TurnsOfHost())
    return await (asyncio.to_thread(fn, *args) if turns is None else turns.run(fn, *args))


def _fulfil(future: "Future[T]", fn: Callable[[], T]) -> None:
    """Run a function whose caller has not been cancelled, and give its result or exception to the future."""
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(fn())
        except BaseException as error:  # noqa: BLE001 - the future carries every exception
            future.set_exception(error)
