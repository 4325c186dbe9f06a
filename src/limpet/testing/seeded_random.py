"""Randomness with a seed: the same run twice."""

import random


class SeededRandom:
    """The Random port for tests. Its tokens have the real form and no secrecy at all."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311 - foreseeable on purpose

    def token(self, size: int) -> str:
        """Return `size` foreseeable bytes as hexadecimal text."""
        return self._random.randbytes(size).hex()

    def tag(self) -> int:
        """Return 64 foreseeable bits."""
        return self._random.getrandbits(64)

    def uniform(self, low: float, high: float) -> float:
        """Return a number between the two."""
        return self._random.uniform(low, high)
