"""How long to wait before the next attempt. Pure: randomness comes in, seconds come out."""

from typing import Final

from holdfast.ports import Random

JITTER: Final = 0.5
"""A pause is drawn between this part of it and the whole, so that clients do not come back together."""
HINT_JITTER: Final = 0.05
"""What the server asked for is kept: never earlier, and only a little later."""


class Backoff:
    """Pauses that double up to a bound; a server's own wish replaces the first."""

    __slots__ = ("_failures", "_first", "_most", "_random", "hint")

    def __init__(self, random: Random, pauses: tuple[float, float]) -> None:
        self._random = random
        self._first, self._most = pauses
        self._failures = 0
        self.hint: float | None = None
        """What the server asked for (`retry:` of a stream), until it says otherwise."""

    def __repr__(self) -> str:
        return f"<Backoff {self._failures} failures, hint {self.hint}>"

    def worked(self) -> None:
        """Start again from the shortest pause."""
        self._failures = 0

    def pause(self, wish: float | None = None) -> float:
        """Count a failure and return the seconds to wait; `wish` (Retry-After) counts once."""
        asked = self.hint if wish is None else wish
        doubled = min(self._most, self._first * 2.0 ** min(self._failures, 30))
        self._failures += 1
        if asked is None:
            return self._random.uniform(JITTER * doubled, doubled)
        if self._failures == 1 or wish is not None:
            return asked + self._random.uniform(0, HINT_JITTER * asked)
        return asked + self._random.uniform(0, doubled)
