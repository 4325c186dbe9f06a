"""How long to wait before the next attempt. Pure: the random numbers are passed in."""

from typing import Final

from limpet.ports import Random

JITTER: Final = 0.5
"""A pause is a random number between this fraction of it and the whole, so that clients do not return together."""
HINT_JITTER: Final = 0.05
"""A pause that the server asked for is never shortened and only lengthened by up to this fraction."""


class Backoff:
    """Pauses that double up to a limit. A pause that the server asks for replaces the first."""

    __slots__ = ("_failures", "_first", "_most", "_random", "hint")

    def __init__(self, random: Random, pauses: tuple[float, float]) -> None:
        self._random = random
        self._first, self._most = pauses
        self._failures = 0
        self.hint: float | None = None
        """The pause that the server asks for in every stream (`retry:`)."""

    def worked(self) -> None:
        """Start again from the shortest pause."""
        self._failures = 0

    def pause(self, wish: float | None = None) -> float:
        """Count a failure and return the seconds to wait. `wish` (Retry-After) is for this pause only."""
        asked = self.hint if wish is None else wish
        doubled = min(self._most, self._first * 2.0 ** min(self._failures, 30))
        self._failures += 1
        if asked is None:
            return self._random.uniform(JITTER * doubled, doubled)
        if self._failures == 1 or wish is not None:
            return asked + self._random.uniform(0, HINT_JITTER * asked)
        return asked + self._random.uniform(0, doubled)
