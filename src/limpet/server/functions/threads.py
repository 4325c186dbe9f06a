"""Running an author's plain function in a worker thread."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

from limpet.engine.turn import TURN, Turn
from limpet.server.current_call import CURRENT
from limpet.transports.threads import OWNER, in_turn


async def in_thread(fn: Callable[..., Any], /, *args: object, **kwargs: object) -> Any:
    """Run a plain function in a worker thread with the caller's context variables; return its value.

    Cancellation does not stop the thread: the function runs to its end and its value is dropped. With
    `Settings.in_order` its call keeps its turn until then.

    Raises:
        RuntimeError: the function raised StopIteration or GeneratorExit, which cannot pass into a coroutine.
    """
    current = CURRENT.get()
    if current is not None:
        OWNER.set(current[0].caller.owner)
    turn = TURN.get()
    if turn is None:
        return await in_turn(_called, fn, args, kwargs)
    job = _Job(turn)
    try:
        return await in_turn(job.run, fn, args, kwargs)
    except asyncio.CancelledError:
        job.drop()
        raise


async def called_in_thread(fn: Callable[..., Any], /, **kwargs: object) -> Any:
    """Run an author's function as `in_thread` does; await its value if a plain decorator returned a coroutine."""
    value = await in_thread(fn, **kwargs)
    return await value if inspect.isawaitable(value) else value


def _called(fn: Callable[..., Any], args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
    try:
        return fn(*args, **kwargs)
    except (StopIteration, GeneratorExit) as error:
        # Both have a meaning in coroutines. A future refuses StopIteration, and before Python 3.12 the task that
        # awaits it never wakes up; GeneratorExit would close the awaiting coroutine.
        raise RuntimeError(f"the function raised {type(error).__name__}") from error


class _Job:
    """A function of a call in order: the turn ends when the function has ended, or was dropped before its start."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._lock = threading.Lock()
        self._begun = self._dropped = False
        turn.enter()

    def run(self, fn: Callable[..., Any], args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        """Run the function, in its thread."""
        with self._lock:
            if self._dropped:
                return None
            self._begun = True
        try:
            return _called(fn, args, kwargs)
        finally:
            self._turn.leave()

    def drop(self) -> None:
        """Prevent the start of a function that has not started."""
        with self._lock:
            if self._begun:
                return
            self._dropped = True
        self._turn.leave()
