"""Which of the idle connections or sessions make room for a new one, when nearly all places are in use. Pure.

The address that has the most idle ones loses some first, those that have been idle for the longest time. So an address
that takes all places pays for the others, and there is no fixed number for each address: behind a proxy, one address
may stand for many clients. If all of them are in use after all, the address with the next most makes room: an address
whose clients are active does not lock out all others.

The idle ones are looked at once in a while and not for each new one: looking takes a time that grows with their number,
and a flood must not multiply it.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Generic, TypeVar

T = TypeVar("T")


class Crowd(Generic[T]):
    """Chooses those that make room. Time is passed in."""

    __slots__ = ("_chosen", "_idle", "_looked", "_pause")

    def __init__(self, idle: Callable[[], Iterable[tuple[str, T]]], pause: float = 0.0) -> None:
        """`idle` returns the idle ones with their addresses, the longest idle first.

        It is called once in a time longer than `pause`.
        """
        self._idle = idle
        self._pause = pause
        self._looked: float | None = None
        self._chosen: deque[T] = deque()

    def next(self, now: float) -> T | None:
        """Return the next one that makes room, if it is still idle; None: there is none for the time being."""
        if not self._chosen and (self._looked is None or now - self._looked > self._pause):
            self._looked = now
            self._chosen.extend(most_idle_first(self._idle()))
        return self._chosen.popleft() if self._chosen else None


def most_idle_first(idle: Iterable[tuple[str, T]]) -> list[T]:
    """Return those of the address that has the most, in the same order, then those of the next address."""
    by_address: defaultdict[str, list[T]] = defaultdict(list)
    for address, one in idle:
        by_address[address].append(one)
    groups = sorted(by_address.values(), key=len, reverse=True)
    return list(chain.from_iterable(groups))
