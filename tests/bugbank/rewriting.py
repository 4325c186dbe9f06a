"""Mistakes as lines of the source that are wrong again."""

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FunctionType
from typing import Any

Patches = Callable[[], AbstractContextManager[None]]


def _function(found: object) -> FunctionType:
    function = found.fget if isinstance(found, property) else found
    assert isinstance(function, FunctionType)
    return function


def rewritten(found: object, line: str, wrong: str) -> Patches:
    """Replace a piece of the source of a function or property, for every module that has imported it."""
    function = _function(found)
    source = textwrap.dedent(inspect.getsource(function))
    assert line in source, f"{function.__qualname__} has no {line!r}"

    @contextmanager
    def patched() -> Iterator[None]:
        made: dict[str, Any] = {}
        exec(source.replace(line, wrong), vars(inspect.getmodule(function)), made)  # noqa: S102 - a mutant
        right, function.__code__ = function.__code__, _function(made[function.__name__]).__code__
        try:
            yield
        finally:
            function.__code__ = right

    return patched
