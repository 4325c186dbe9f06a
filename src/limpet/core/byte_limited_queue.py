"""Items with a limit on their bytes; the oldest items are dropped first. Pure."""

from collections.abc import Iterator


class ByteLimitedQueue:
    """Keys with their sizes and holders: at most `total` bytes, and at most `share` of them of each named holder."""

    __slots__ = ("_by_holder", "_sizes", "_total", "_used_by", "share", "used")

    def __init__(self, total: int, share: int) -> None:
        self._total = total
        self.share: int = share
        self.used: int = 0
        self._sizes: dict[str, tuple[str, int]] = {}
        """Oldest first, as in the dict of each holder."""
        self._by_holder: dict[str, dict[str, None]] = {}
        self._used_by: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._sizes)

    def __contains__(self, key: object) -> bool:
        return key in self._sizes

    def put(self, key: str, holder: str, size: int) -> list[str]:
        """Add an item, and drop the oldest items until the limits hold.

        Return the keys of the dropped items, oldest first.

        An item that is too large is dropped itself.
        """
        self._sizes[key] = holder, size
        self._by_holder.setdefault(holder, {})[key] = None
        self._change(holder, size)
        return list(self._make_room(holder))

    def _make_room(self, holder: str) -> Iterator[str]:
        while holder and self._used_by.get(holder, 0) > self.share:
            yield self.remove(next(iter(self._by_holder[holder])))
        while self.used > self._total:
            yield self.remove(next(iter(self._sizes)))

    def remove(self, key: str) -> str:
        """Remove an item, if it is present. Return its key."""
        if key in self._sizes:
            holder, size = self._sizes.pop(key)
            del self._by_holder[holder][key]
            self._change(holder, -size)
            if not self._by_holder[holder]:
                del self._by_holder[holder], self._used_by[holder]
        return key

    def _change(self, holder: str, size: int) -> None:
        self.used += size
        self._used_by[holder] = self._used_by.get(holder, 0) + size
