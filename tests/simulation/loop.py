"""A world in one event loop: virtual time, actors that can be stopped or killed, chance with a seed.

Each actor is a process: its callbacks run in their own order, as asyncio promises, but between two
actors the seed decides. A stopped actor runs nothing while time continues, as under SIGSTOP; a killed
one never runs again. The same seed gives the same run, callback by callback.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, TypeVar, TypeVarTuple

from typing_extensions import override

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_CLEANUP_ROUNDS = 50


class Stuck(Exception):
    """Every task waits, and no timer is left that could wake one."""


class Actor:
    """One simulated process: its pending callbacks, in order."""

    __slots__ = ("context", "is_alive", "is_stopped", "may_run", "name", "queue")

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.queue: deque[_Handle] = deque()
        self.is_stopped: bool = False
        self.is_alive: bool = True
        self.may_run: bool = True
        """Alive and not stopped: one look for every callback."""
        self.context: Context = copy_context()
        """Where its callbacks run: everything begun in it belongs to the actor."""
        self.context.run(_ACTOR.set, self)

    def __repr__(self) -> str:
        state = "dead" if not self.is_alive else "stopped" if self.is_stopped else "running"
        return f"<Actor {self.name} {state}>"


_ACTOR: ContextVar[Actor] = ContextVar("actor")


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address: sets of tasks are walked in a foreseeable order."""

    _numbers = count()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._number = next(self._numbers)
        super().__init__(*args, **kwargs)

    @override
    def __hash__(self) -> int:
        return self._number


class _Handle:
    """A callback that waits. It has the members of handles that asyncio uses, and costs half as much."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "moment")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context, moment: float = 0.0
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.moment = moment
        self.is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True
        # The function is released, as asyncio does.
        self.callback, self.args = _nothing, ()

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.moment


def _nothing() -> None:
    """Do nothing."""


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


class SimLoop(asyncio.BaseEventLoop):
    """The loop of a simulated world."""

    _stopping: bool

    def __init__(self, seed: int) -> None:
        super().__init__()
        _Task._numbers = count()
        self.random: Random = Random(seed)
        self.steps: int = 0
        self.problems: list[dict[str, Any]] = []
        """The reports to the loop's exception handler."""
        self._now = 0.0
        self._order = count()
        self._timers: list[tuple[float, int, _Handle, Actor]] = []
        self._outside = Actor("outside")
        """The actor of the test itself and of clients, which are not processes."""
        self._held: list[Actor] = []
        """The stopped and the dead."""
        self._runnable: list[Actor] = []
        self._tasks: list[asyncio.Task[Any]] = []
        """All there were: collected early, a task would clean up at a moment that no seed decides."""
        self.set_task_factory(self._new_task)
        self.set_exception_handler(lambda _, context: self.problems.append(context))

    # Actors

    def spawn(self, actor: Actor, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something as this actor."""
        return self.create_task(work, context=actor.context)

    def stop_actor(self, actor: Actor) -> None:
        """Let it run nothing until `resume_actor`; its timers continue."""
        actor.is_stopped = True
        self._hold(actor)

    def resume_actor(self, actor: Actor) -> None:
        """Let it continue where it was, without knowing that it had stopped."""
        actor.is_stopped = False
        if actor.is_alive:
            self._release(actor)

    def kill(self, actor: Actor) -> None:
        """Let it never run again, nor clean up anything."""
        actor.is_alive = False
        self._hold(actor)

    def _release(self, actor: Actor) -> None:
        actor.may_run = True
        if actor.queue and actor not in self._runnable:
            self._runnable.append(actor)

    def _hold(self, actor: Actor) -> None:
        actor.may_run = False
        self._held.append(actor)
        if actor in self._runnable:
            self._runnable.remove(actor)

    # The interface of an asyncio loop

    @override
    def time(self) -> float:
        return self._now

    @override
    def call_soon(  # type: ignore[override]
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> _Handle:
        context = copy_context() if context is None else context
        handle = _Handle(callback, args, context)
        actor = context.get(_ACTOR, self._outside)
        if not actor.queue and actor.may_run:
            self._runnable.append(actor)
        actor.queue.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    @override
    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> _Handle:
        context = copy_context() if context is None else context
        timer = _Handle(callback, args, context, when)
        heappush(self._timers, (when, next(self._order), timer, context.get(_ACTOR, self._outside)))
        return timer

    @override
    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> _Handle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def pause(self, seconds: float) -> asyncio.Future[None]:
        """Return a future that is done after so many seconds: `asyncio.sleep` for frequent use."""
        woken = asyncio.Future[None](loop=self)
        self.call_at(self._now + seconds, _wake, woken)
        return woken

    @override
    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Do it at once: threads have an order of their own, which no seed decides."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def _new_task(self, _: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
        task = _Task(work, loop=self, **more)
        self._tasks.append(task)
        return task

    def clean_up(self) -> None:
        """Cancel the tasks that are left. Dead actors are woken for it: none of their objects may be left for the collector."""
        for actor in self._held:
            actor.is_alive, actor.is_stopped = True, False
            self._release(actor)
        for _ in range(_CLEANUP_ROUNDS):
            left = [task for task in self._tasks if not task.done()]
            if not left:
                break
            for task in left:
                task.cancel()
            self.run_until_complete(asyncio.wait(left, timeout=60.0))
        self.run_until_complete(self.shutdown_asyncgens())

    def _run_once(self) -> None:
        """Run callback after callback until the loop is stopped: one call for all of them, as most are short."""
        runnable, timers = self._runnable, self._timers
        random = self.random.random
        while not self._stopping:
            if not runnable or (timers and timers[0][0] <= self._now):
                self._ring_timers()
                continue
            index = int(random() * len(runnable)) if len(runnable) > 1 else 0
            queue = runnable[index].queue
            handle = queue.popleft()
            if not queue:
                del runnable[index]
            self.steps += 1
            if handle.is_cancelled:
                continue
            try:
                handle.context.run(handle.callback, *handle.args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self.call_exception_handler({"message": "a callback failed", "exception": error})

    def _ring_timers(self) -> None:
        """Enqueue due timers. When no actor can run, time jumps to the next timer."""
        timers = self._timers
        if not self._runnable:
            while timers and timers[0][2].is_cancelled:
                heappop(timers)
            if not timers:
                raise Stuck(f"nothing can happen after virtual second {self._now:g}")
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            _, _, timer, actor = heappop(timers)
            if not timer.is_cancelled:
                if not actor.queue and actor.may_run:
                    self._runnable.append(actor)
                actor.queue.append(timer)


def simulate(seed: int, world: Callable[[SimLoop], Coroutine[Any, Any, T]]) -> T:
    """Run a world to its end in virtual time and return its result.

    Tasks that still run afterwards, those of killed actors included, are cancelled and released.
    """
    loop = SimLoop(seed)
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(world(loop))
    finally:
        loop.clean_up()
        asyncio.set_event_loop(None)
        loop.close()
