"""The one way of an author's plain function into a worker thread."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any


async def in_thread(fn: Callable[..., Any], /, *args: object, **kwargs: object) -> Any:
    """Run a plain function in a worker thread with the caller's context variables; return what it returned.

    Cancelling abandons the thread: the function runs on to its end and its result is dropped.

    Raises:
        RuntimeError: the function raised StopIteration or GeneratorExit, which cannot pass into a coroutine.
    """
    return await asyncio.to_thread(_called, fn, args, kwargs)


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
