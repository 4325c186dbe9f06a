"""The one way of an author's plain function into a worker thread."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

from holdfast.engine.turns import TURN, Turn


async def in_thread(fn: Callable[..., Any], /, *args: object, **kwargs: object) -> Any:
    """Run a plain function in a worker thread with the caller's context variables; return what it returned.

    Cancelling abandons the thread: the function runs on to its end and its result is dropped. Where calls run in
    order, its call keeps its turn until then.

    Raises:
        RuntimeError: the function raised StopIteration or GeneratorExit, which cannot pass into a coroutine.
    """
    turn = TURN.get()
    if turn is None:
        return await asyncio.to_thread(_called, fn, args, kwargs)
    job = _Job(turn)
    try:
        return await asyncio.to_thread(job.run, fn, args, kwargs)
    except asyncio.CancelledError:
        job.drop()
        raise


async def called_in_thread(fn: Callable[..., Any], /, **kwargs: object) -> Any:
    """Run an author's function as `in_thread` does. A plain decorator may have returned its function's coroutine."""
    value = await in_thread(fn, **kwargs)
    return await value if inspect.isawaitable(value) else value


def _called(fn: Callable[..., Any], args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
    try:
        return fn(*args, **kwargs)
    except (StopIteration, GeneratorExit) as error:
        # They steer coroutines: a future refuses the first, and before Python 3.12 never wakes who awaits it;
        # raised in a coroutine from outside, the second closes it.
        raise RuntimeError(f"the function raised {type(error).__name__}") from error


class _Job:
    """A function of a call that has a turn: the turn lasts until the function has ended, or was never begun."""

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
        """Let a function that has not begun never begin."""
        with self._lock:
            if self._begun:
                return
            self._dropped = True
        self._turn.leave()
