"""A limit on the bytes in use at once, in total and by each holder. A limit on the number of items does not bound memory.

`Budget.take` returns a charge, and the bytes are in use while that object exists. Code that keeps a charged message
keeps its charge beside it, and the bytes are free when the last reference to the charge is dropped. Several objects may
share one charge, and no path that ends early can forget to free it.

Python may delete an object between any two steps of the code below (the garbage collector runs there), and in any thread.
So a charge that ends changes no number: it puts its size into a queue, which is one step, and the budget subtracts
the sizes in the queue when it is next read. Only the thread that takes charges changes numbers.

A holder that has no bytes in use may take any size. Otherwise a limit below the size of one legal message would refuse
that message forever, instead of making it wait for its turn.
"""

from collections import deque
from collections.abc import Hashable, Mapping
from typing import Final

Holders = Mapping[str, Hashable]
"""The holder at each level: `{"principal": …, "session": …}`."""


class Charge:
    """Bytes in use. They are free again when the object is deleted, or after `free`."""

    __slots__ = ("_budget", "_holders", "size")

    def __init__(self, budget: "Budget", holders: Holders) -> None:
        self._budget: Final = budget
        self._holders: Final = holders
        self.size: int = 0

    def __repr__(self) -> str:
        return f"<Charge of {self.size} bytes>"

    def grow(self, size: int) -> bool:
        """Take more bytes, up to `size` in total. If there is no room, change nothing and return False."""
        if size > self.size:
            if not self._budget.has_room(size - self.size, self._holders, own=self.size):
                return False
            self._budget.add(size - self.size, self._holders)
            self.size = size
        return True

    def free(self) -> None:
        """Free the bytes. Safe to call twice."""
        size, self.size = self.size, 0
        if size:
            self._budget.freed.append((size, self._holders))

    def __del__(self) -> None:
        self.free()


class Budget:
    """At most `total` bytes in use, and for each holder at most the share of its level."""

    __slots__ = ("_by_holder", "_shares", "_used", "freed", "total")

    def __init__(self, total: int, **shares: int) -> None:
        self.total: int = total
        self._shares = shares
        self._used = 0
        self.freed: deque[tuple[int, Holders]] = deque()
        """Sizes that charges have freed and that are not subtracted yet."""
        self._by_holder: dict[tuple[str, Hashable], int] = {}

    def __repr__(self) -> str:
        return f"<Budget {self.used}/{self.total} bytes, {len(self._by_holder)} holders>"

    @property
    def used(self) -> int:
        """Bytes in use."""
        while self.freed:
            size, holders = self.freed.popleft()
            self.add(-size, holders)
        return self._used

    def open(self, **holders: Hashable) -> Charge:
        """Return a charge of 0 bytes, which may grow."""
        return Charge(self, holders)

    def take(self, size: int, **holders: Hashable) -> Charge | None:
        """Take bytes for these holders. Return None if there is no room."""
        charge = Charge(self, holders)
        return charge if charge.grow(size) else None

    def has_room(self, more: int, holders: Holders, *, own: int = 0) -> bool:
        """Return True if `more` bytes fit. A holder that has only the `own` bytes of the charge may take any size."""
        used = self.used
        if used > own and used + more > self.total:
            return False
        for level, holder in holders.items():
            used = self._by_holder.get((level, holder), 0)
            if used > own and used + more > self._shares[level]:
                return False
        return True

    def add(self, size: int, holders: Holders) -> None:
        """Add to the bytes in use; a negative size subtracts."""
        self._used += size
        for holder in holders.items():
            used = self._by_holder.get(holder, 0) + size
            if used:
                self._by_holder[holder] = used
            else:
                self._by_holder.pop(holder, None)
