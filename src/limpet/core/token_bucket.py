"""A token bucket: it holds a number of tokens, and that number is added again in each period, steadily. Pure."""


class TokenBucket:
    """Time is passed in. The caller takes tokens from `left`, which may fall below zero."""

    __slots__ = ("_at", "_per_second", "_size", "left")

    def __init__(self, size: float, seconds: float, now: float) -> None:
        self._size = size
        self._per_second = size / seconds
        self._at = now
        self.left: float = size

    def refill(self, now: float) -> None:
        """Add the tokens of the time since the last call."""
        self.left = min(self._size, self.left + (now - self._at) * self._per_second)
        self._at = now

    @property
    def is_full(self) -> bool:
        """True if the bucket holds all its tokens."""
        return self.left >= self._size
