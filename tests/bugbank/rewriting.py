"""Mistakes as lines of the source that are wrong again."""

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FunctionType
from typing import Any

Patches = Callable[[], AbstractContextManager[None]]


def rewritten(function: Callable[..., Any], line: str, wrong: str) -> Patches:
    """Replace a piece of a function's source, for every module that has imported the function."""
    source = textwrap.dedent(inspect.getsource(function))
    assert line in source, f"{function.__qualname__} has no {line!r}"
    assert isinstance(function, FunctionType)

    @contextmanager
    def patched() -> Iterator[None]:
        made: dict[str, Any] = {}
        exec(source.replace(line, wrong), vars(inspect.getmodule(function)), made)  # noqa: S102 - a mutant
        right, function.__code__ = function.__code__, made[function.__name__].__code__
        try:
            yield
        finally:
            function.__code__ = right

    return patched
