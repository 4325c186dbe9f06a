"""State in the memory store: the fields of a session, or of an area that belongs to a principal."""

from collections import Counter
from collections.abc import Callable

from typing_extensions import override

from limpet.config import Limits
from limpet.core.rules.areas import AreaBounds, is_own, room, use
from limpet.core.rules.state import Cell, FieldChange, StateFields, change
from limpet.stores.kept import Kept
from limpet.stores.state import StateCommands


class KeptFields(StateFields):
    """The fields of one owner, and the principal whose total they count in."""

    __slots__ = ("principal",)

    def __init__(self, principal: str) -> None:
        super().__init__()
        self.principal: str = principal


class Area(KeptFields):
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
        bounds = AreaBounds.of(key, principal, self._limits)
        return not bounds.allow(self._kinds[is_own(key)], self._owners[principal])

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
        return area if use(area, principal, self._now()) else None

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
        self._totals.add(area.principal, -area.kept)
        self._count(key, area.principal, -1)


class MemoryState(StateCommands):
    """The part of the memory store that keeps state."""

    def __init__(self, limits: Limits, now: Callable[[], float]) -> None:
        self._limits = limits
        self._kept = Kept(limits)
        self._areas = Areas(limits, now, self._kept)

    def _fields(self, area: str) -> KeptFields:
        """Return the fields of an area or session. Raises SessionGone if there is no such area or session."""
        raise NotImplementedError

    def _keep(self, area: str, principal: str, change: int) -> None:  # noqa: ARG002
        """Count what an area or a session keeps more."""
        self._kept.add(principal, change)

    async def open_area(self, area: str, principal: str, ttl: float) -> bool:
        return self._areas.open(area, principal, ttl)

    async def find_area(self, area: str, principal: str) -> bool:
        return self._areas.find(area, principal) is not None

    async def get_state(self, area: str, field: str) -> Cell | None:
        return self._fields(area).cells.get(field)

    @override
    async def change_state(self, area: str, wanted: FieldChange) -> int:
        state = self._fields(area)
        before = state.kept
        most = before + self._kept.spare(state.principal)
        result = change(state, wanted, room(area, self._limits, most))
        if state.kept != before:
            self._keep(area, state.principal, state.kept - before)
        return result
