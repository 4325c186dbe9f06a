"""A counter of a draft: rules change and compare it as a number, and it notes how they have compared it.

What it notes is an interval of the stored number: within it, the rules decide in the same way. So the commit of a claim
says "fewer than so many calls" and not "exactly five calls", and two replicas that claim do not disturb each other.
"""

from math import inf
from typing import Self


class Counter:
    """A number, and the interval of stored numbers for which every comparison has the same result."""

    __slots__ = ("known", "least", "most", "value")

    def __init__(self) -> None:
        self.known: int = 0
        self.value: int = 0
        self.least: float = -inf
        self.most: float = inf

    def __iadd__(self, change: int) -> Self:
        self.value += change
        return self

    def __isub__(self, change: int) -> Self:
        self.value -= change
        return self

    def __gt__(self, bound: int) -> bool:
        edge = bound - self.value + self.known
        if self.value > bound:
            self.least = max(self.least, edge + 1)
            return True
        self.most = min(self.most, edge)
        return False

    def __ge__(self, bound: int) -> bool:
        return self > bound - 1

    def __bool__(self) -> bool:
        return self > 0

    def __int__(self) -> int:
        """Return the number. The rules depend on it then."""
        self.least = self.most = self.known
        return self.value

    def __add__(self, other: int) -> int:
        return int(self) + other

    def __sub__(self, other: int) -> int:
        return int(self) - other
