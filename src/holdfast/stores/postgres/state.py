"""State of sessions and areas, and tasks (sql/functions.sql)."""

from collections.abc import Collection
from typing import Any, Final

from typing_extensions import override

from holdfast.core.rules.tasks import StoredTask, TaskBounds
from holdfast.errors import SessionGone, StateError
from holdfast.stores.areas import is_own, most_areas, most_bytes, most_of_one
from holdfast.stores.base import REMEMBERED_OPS, Cell, OrphanTask, WakeUp
from holdfast.stores.kept import ENTRY_BYTES, too_much
from holdfast.stores.postgres.bell import ALL, Bell
from holdfast.stores.postgres.core import hashed
from holdfast.stores.rules import lease_ended
from holdfast.stores.tasks import Swapped, TaskCommands

_GONE, _DONE, _FULL, _TOTAL, _NO_INTEGER = range(5)
_SWAPPED: Final = (Swapped.DONE, Swapped.DIFFERS, Swapped.FULL)
_DEAD: Final = 3
_TASKS: Final = 20


class PostgresState(Bell, TaskCommands):
    """Fields with versions, areas that belong to a principal, tasks."""

    async def open_area(self, area: str, principal: str, ttl: float) -> bool:
        """Begin state that belongs to a principal."""
        most = (most_areas(area, self._limits), most_of_one(area, principal, self._limits))
        return bool(
            await self._one("open_area", area, hashed(principal), is_own(area), ttl, *most, self._told)
        )

    async def find_area(self, area: str, principal: str) -> bool:
        """Return True if there is such state."""
        return bool(await self._one("find_area", area, hashed(principal), self._told))

    async def get_state(self, area: str, field: str) -> Cell | None:
        """Return a field."""
        rows = await self._run("get", area, field.encode(), self._told)
        if not rows:
            raise SessionGone
        value, version = rows[0]
        return None if value is None else Cell(value, version)

    async def set_state(
        self, area: str, field: str, value: bytes | None, *, op: str, version: int | None = None
    ) -> int:
        """Set or delete a field."""
        return await self._set(area, field, value, None, op, version)

    async def add_state(self, area: str, field: str, by: int, *, op: str) -> int:
        """Add to a counter."""
        return await self._set(area, field, None, by, op, None)

    async def _set(self, area: str, field: str, value: bytes | None, *change: Any) -> int:
        limits = self._limits
        bounds = (most_bytes(area, limits), limits.principal_kept_bytes, ENTRY_BYTES, REMEMBERED_OPS)
        [(verdict, result)] = await self._run(
            "set", area, field.encode(), value, *change, *bounds, self._told
        )
        if verdict == _GONE:
            raise SessionGone
        if verdict == _FULL:
            raise StateError(f"state is limited to {bounds[0]} bytes; {field!r} would exceed it")
        if verdict == _TOTAL:
            raise too_much(field, limits)
        if verdict == _NO_INTEGER:
            raise StateError(f"state field {field!r} does not hold an integer")
        return int(result)

    # Tasks

    @override
    async def load_task(self, key: str) -> StoredTask | None:
        rows = await self._run("load_task", key)
        if not rows:
            return None
        name, *rest = rows[0]
        return StoredTask(name.decode(), *rest)

    @override
    async def swap_task(
        self, key: str, before: StoredTask | None, after: StoredTask, most: TaskBounds | None
    ) -> Swapped:
        known = 0 if before is None else before.version
        whose = (hashed(after.principal), after.principal.encode())
        facts = (*whose, after.value, after.version, after.expires, after.owner)
        bounds = None if most is None else list(most)
        try:
            verdict = await self._one("swap_task", key, known, *facts, bounds, self._lives, self._told)
        finally:
            if before is not None:
                self._ring(key, [(WakeUp.TASK, "", ALL)])
        if verdict == _DEAD:
            raise lease_ended()
        return _SWAPPED[verdict]

    async def orphan_tasks(self, known: Collection[str] | None = None) -> list[OrphanTask]:
        """Return some of the tasks of dead replicas, and of those that this one does not run."""
        mine = [] if known is None else await self._column("own_tasks", self.me, self._told)
        strays = [key for key in mine if key not in (known or ())]
        rows = await self._run("orphan_tasks", strays[:_TASKS], self._told, _TASKS)
        return [
            OrphanTask(key, name.decode(), owner, Cell(value, version))
            for key, name, owner, value, version in rows
        ]
