"""A memory of results for texts that clients send.

Long texts are not remembered: they would stay after their client, in no budget.
"""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

K = TypeVar("K", str, bytes)
R = TypeVar("R")


def remembered(most: int, longest: int) -> Callable[[Callable[[K], R]], Callable[[K], R]]:
    """Remember the results of a function for the last `most` arguments, if they are at most `longest` long."""

    def decorate(function: Callable[[K], R]) -> Callable[[K], R]:
        known = lru_cache(maxsize=most)(function)

        @wraps(function)
        def remember(argument: K) -> R:
            return known(argument) if len(argument) <= longest else function(argument)

        return remember

    return decorate
