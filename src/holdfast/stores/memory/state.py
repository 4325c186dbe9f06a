"""State in the memory store: fields with versions, of a session or of an area that belongs to a principal."""

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from holdfast.config import Limits
from holdfast.stores.areas import is_own, most_areas, most_bytes, most_of_one
from holdfast.stores.base import REMEMBERED_OPS, Cell
from holdfast.stores.kept import Kept, too_much
from holdfast.stores.rules import added, state_growth

_NO_OPS: Final[OrderedDict[str, int]] = OrderedDict()
"""Of every owner whose state was not changed yet: most sessions have no state."""


class Bounds(NamedTuple):
    """The limits for a field: the limit of its owner, and the limit for the total of the principal."""

    limit: int
    totals: Kept
    limits: Limits


class Cells:
    """The fields of one owner, and the bytes that the owner adds to the total of its principal."""

    __slots__ = ("cell_bytes", "cells", "kept", "ops", "principal", "versions")

    def __init__(self, principal: str) -> None:
        self.principal: str = principal
        self.kept: int = 0
        """The bytes that count in the total of its principal: all that `holdfast.stores.kept` lists."""
        self.cells: dict[str, Cell] = {}
        self.cell_bytes: int = 0
        self.versions: int = 0
        self.ops: OrderedDict[str, int] = _NO_OPS

    def keep(self, change: int, totals: Kept) -> bool:
        """Change the number of kept bytes. Return False, and change nothing, if the principal would exceed its limit."""
        if not totals.add(self.principal, change):
            return False
        self.kept += change
        return True

    def set_cell(self, field: str, value: bytes | None, op: str, version: int | None, bounds: Bounds) -> int:
        """Set or delete a field if it has the expected version; return the new version or −1."""
        if op in self.ops:
            return self.ops[op]
        cell = self.cells.get(field)
        if version is not None and version != (cell.version if cell else 0):
            return self._remember(op, -1)
        more, kept = state_growth(bounds.limit, self.cell_bytes, field, cell, value)
        if not self.keep(kept, bounds.totals):
            raise too_much(field, bounds.limits)
        self.cell_bytes += more
        self.versions += 1
        if value is None:
            self.cells.pop(field, None)
            return self._remember(op, 0)
        self.cells[field] = Cell(value, self.versions)
        return self._remember(op, self.versions)

    def add_cell(self, field: str, by: int, op: str, bounds: Bounds) -> int:
        """Add to an integer field; return its new value."""
        if op in self.ops:
            return self.ops[op]
        cell = self.cells.get(field)
        total = added(field, cell, by)
        self.set_cell(field, msgspec.json.encode(total), "", None, bounds)
        return self._remember(op, total)

    def _remember(self, op: str, result: int) -> int:
        if op:
            if self.ops is _NO_OPS:
                self.ops = OrderedDict()
            self.ops[op] = result
            if len(self.ops) > REMEMBERED_OPS:
                self.ops.popitem(last=False)
        return result


class Area(Cells):
    """State that belongs to a principal, and the time at which it expires."""

    def __init__(self, principal: str, ttl: float) -> None:
        super().__init__(principal)
        self.ttl = ttl
        self.due: float = 0.0


class Areas:
    """The areas of a store."""

    def __init__(self, limits: Limits, now: Callable[[], float], totals: Kept) -> None:
        self._limits = limits
        self._now = now
        self._totals = totals
        self._areas: dict[str, Area] = {}
        self._owners: Counter[str] = Counter()
        """Handles by principal."""
        self._kinds: Counter[bool] = Counter()
        """Areas by their kind."""

    def clear(self) -> None:
        """Delete all areas, and all totals."""
        self._totals.clear()
        self._areas.clear()
        self._owners.clear()
        self._kinds.clear()

    def open(self, key: str, principal: str, ttl: float) -> bool:
        """Create an area. If the principal has this area already, keep it."""
        if self.get(key) is not None:
            return self.find(key, principal) is not None
        if self._is_full(key, principal):
            self.sweep()
            if self._is_full(key, principal):
                return False
        area = self._areas[key] = Area(principal, ttl)
        area.due = self._now() + ttl
        self._count(key, principal, 1)
        return True

    def _is_full(self, key: str, principal: str) -> bool:
        own_most = most_of_one(key, principal, self._limits)
        if own_most is not None and self._owners[principal] >= own_most:
            return True
        return self._kinds[is_own(key)] >= most_areas(key, self._limits)

    def _count(self, key: str, principal: str, by: int) -> None:
        self._kinds[is_own(key)] += by
        if is_own(key):
            return
        self._owners[principal] += by
        if not self._owners[principal]:
            del self._owners[principal]

    def find(self, key: str, principal: str) -> Area | None:
        """Return an area of this principal that has not expired; its time starts again."""
        area = self.get(key)
        if area is None or area.principal != principal:
            return None
        area.due = self._now() + area.ttl
        return area

    def get(self, key: str) -> Area | None:
        """Return an area that has not expired."""
        area = self._areas.get(key)
        if area is not None and area.due <= self._now():
            self._forget(key, area)
            return None
        return area

    def sweep(self) -> None:
        """Delete the areas that have expired."""
        now = self._now()
        for key, area in [item for item in self._areas.items() if item[1].due <= now]:
            self._forget(key, area)

    def _forget(self, key: str, area: Area) -> None:
        del self._areas[key]
        area.keep(-area.kept, self._totals)
        self._count(key, area.principal, -1)


class MemoryState:
    """The part of the memory store that keeps state."""

    def __init__(self, limits: Limits, now: Callable[[], float]) -> None:
        self._limits = limits
        self._kept = Kept(limits)
        self._areas = Areas(limits, now, self._kept)

    def _cells(self, area: str) -> Cells:
        """Return the fields of an area or session. Raises SessionGone if there is no such area or session."""
        raise NotImplementedError

    async def open_area(self, area: str, principal: str, ttl: float) -> bool:
        """Create an area that belongs to a principal."""
        return self._areas.open(area, principal, ttl)

    async def find_area(self, area: str, principal: str) -> bool:
        """Return True if this principal has such an area."""
        return self._areas.find(area, principal) is not None

    async def get_state(self, area: str, field: str) -> Cell | None:
        """Return a field."""
        return self._cells(area).cells.get(field)

    async def set_state(
        self, area: str, field: str, value: bytes | None, *, op: str, version: int | None = None
    ) -> int:
        """Set or delete a field."""
        return self._cells(area).set_cell(field, value, op, version, self._bounds(area))

    async def add_state(self, area: str, field: str, by: int, *, op: str) -> int:
        """Add to a counter."""
        return self._cells(area).add_cell(field, by, op, self._bounds(area))

    def _bounds(self, area: str) -> Bounds:
        return Bounds(most_bytes(area, self._limits), self._kept, self._limits)
