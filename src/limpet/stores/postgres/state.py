"""State of sessions and areas, and tasks (sql/functions.sql)."""

from collections.abc import Collection, Sequence
from typing import Final

from typing_extensions import override

from limpet.core.rules.areas import AreaBounds, is_own
from limpet.core.rules.tasks import StoredTask, TaskBounds
from limpet.stores.base import REMEMBERED_OPS, Cell, OrphanTask, WakeUp
from limpet.stores.base.replicas import lease_ended
from limpet.stores.base.tasks import Swapped, TaskPart
from limpet.stores.postgres.bell import ALL, Bell
from limpet.stores.postgres.core import hashed, texts
from limpet.stores.shared.state import SharedState, StateWrite, StoredState

_GONE, _WRITTEN, _DIFFERS, _FULL = range(4)
_SWAPPED: Final = (Swapped.DONE, Swapped.DIFFERS, Swapped.FULL)
_DEAD: Final = 3
_TASKS: Final = 20


class PostgresState(Bell, SharedState, TaskPart):
    """Fields with versions, areas that belong to a principal, tasks."""

    async def open_area(self, area: str, principal: str, ttl: float) -> bool:
        most = AreaBounds.of(area, principal, self._limits)
        return bool(
            await self._one("open_area", area, hashed(principal), is_own(area), ttl, *most, self._told)
        )

    async def find_area(self, area: str, principal: str) -> bool:
        return bool(await self._one("find_area", area, hashed(principal), self._told))

    @override
    async def load_state(self, area: str, fields: Sequence[str], ops: Sequence[str]) -> StoredState | None:
        rows = await self._run("load_state", area, texts(fields), list(ops), self._told)
        if not rows:
            return None
        head, names, values, versions, made, results = rows[0]
        cells = zip(names or (), values or (), versions or (), strict=True)
        return StoredState(
            head,
            {name.decode(): Cell(value, version) for name, value, version in cells},
            {op: int(result) for op, result in zip(made or (), results or (), strict=True)},
        )

    @override
    async def drop_state(self, area: str) -> None:
        await self._run("drop_state", area)

    @override
    async def write_state(
        self, area: str, fields: Sequence[str], write: StateWrite
    ) -> StoredState | bool | None:
        values, versions = (
            [cell.value for cell in write.put.values()],
            [cell.version for cell in write.put.values()],
        )
        facts = (
            write.known,
            texts(write.absent),
            write.head,
            texts(list(write.put)),
            values,
            versions,
            texts(write.delete),
        )
        made = (list(write.results), [str(result) for result in write.results.values()], REMEMBERED_OPS)
        bounds = (write.grows, self._limits.principal_kept_bytes, self._told)
        verdict = await self._one("write_state", area, *facts, *made, *bounds)
        if verdict == _DIFFERS:
            return await self.load_state(area, fields, made[0])
        return None if verdict == _GONE else verdict == _WRITTEN

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
        mine = [] if known is None else await self._column("own_tasks", self.me, self._told)
        strays = [key for key in mine if key not in (known or ())]
        rows = await self._run("orphan_tasks", strays[:_TASKS], self._told, _TASKS)
        return [
            OrphanTask(key, name.decode(), owner, Cell(value, version))
            for key, name, owner, value, version in rows
        ]
