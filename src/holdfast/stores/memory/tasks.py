"""The tasks of the memory store."""

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Final

from msgspec import Struct

from holdfast.config import Limits
from holdfast.stores.base import Cell, OnWake, OrphanTask, Refusal, WakeUp
from holdfast.stores.kept import Charged
from holdfast.stores.rules import check_task, has_task_room


class _Kept(Struct):
    principal: str
    cell: Cell
    expires: float
    owner: str
    """The incarnation in which the handler of the task runs; empty after the task has ended."""


TASK_BYTES: Final = 1_536
"""The memory of a task besides its value (`python -m tests.attacks.costs`: about 400), and of its end in the engine."""


class MemoryTasks:
    """Tasks by key, with the number of tasks and bytes of each principal, and the times at which tasks expire."""

    def __init__(self, limits: Limits, now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now
        self._kept: dict[str, _Kept] = {}
        self._owners: Counter[str] = Counter()
        self._due: list[tuple[float, str]] = []
        """One hint for each task: a time that may be earlier than the task expires, never later."""
        self._bytes = 0
        self._own_bytes: Counter[str] = Counter()
        """The bytes of the tasks of each principal."""
        self.charged: Charged = Charged()

    def __len__(self) -> int:
        return len(self._kept)

    def open(self, key: str, principal: str, value: bytes, ttl: float, owner: str) -> Refusal | None:
        """Keep a new task if no limit is reached."""
        self.sweep()
        if key in self._kept:
            return None
        full = (
            len(self._kept) >= self._limits.tasks
            or self._owners[principal] >= self._limits.tasks_per_principal
            or not self._has_room(principal, len(value))
        )
        if full:
            return Refusal.FULL
        self._kept[key] = _Kept(principal, Cell(value, 1), self._now() + ttl, owner)
        self._owners[principal] += 1
        self._count(principal, len(value))
        heapq.heappush(self._due, (self._now() + ttl, key))
        return None

    def _has_room(self, principal: str, size: int) -> bool:
        fits = has_task_room(self._limits, size, store=self._bytes, own=self._own_bytes[principal])
        return fits and size + TASK_BYTES <= self.charged.room(principal)

    def _count(self, principal: str, size: int) -> None:
        self._bytes += size
        self._own_bytes[principal] += size
        self.charged.set(principal, self._own_bytes[principal] + self._owners[principal] * TASK_BYTES)

    def get(self, key: str, principal: str) -> Cell | None:
        """Return a task of this principal that has not expired."""
        kept = self._kept.get(key)
        if kept is None or kept.principal != principal or kept.expires <= self._now():
            return None
        return kept.cell

    def set(self, key: str, principal: str, value: bytes, version: int, ttl: float, *, ends: bool) -> int:
        """Change a task if it still has this version."""
        cell = self.get(key, principal)
        if cell is None:
            return -1
        if cell == Cell(value, version + 1):
            return cell.version
        if cell.version != version:
            return -1
        growth = len(value) - len(cell.value)
        check_task(self._limits, value, ends=ends, has_room=lambda: self._has_room(principal, max(growth, 0)))
        kept = self._kept[key]
        if ends:
            kept.owner = ""
        kept.cell = Cell(value, version + 1)
        kept.expires = max(kept.expires, self._now() + ttl)
        self._count(principal, growth)
        return version + 1

    def owned(self) -> Iterator[OrphanTask]:
        """Return the tasks that have not ended, as if their owners were dead."""
        for key, kept in self._kept.items():
            if kept.owner and kept.expires > self._now():
                yield OrphanTask(key, kept.principal, kept.owner, kept.cell)

    def sweep(self) -> None:
        """Delete the tasks that have expired."""
        now = self._now()
        while self._due and self._due[0][0] <= now:
            _, key = heapq.heappop(self._due)
            kept = self._kept[key]
            if kept.expires > now:
                heapq.heappush(self._due, (kept.expires, key))
            else:
                self._forget(key, kept)

    def _forget(self, key: str, kept: _Kept) -> None:
        del self._kept[key]
        self._owners[kept.principal] -= 1
        self._count(kept.principal, -len(kept.cell.value))
        if not self._owners[kept.principal]:
            del self._owners[kept.principal]
            del self._own_bytes[kept.principal]

    def clear(self) -> None:
        """Delete all tasks."""
        self._kept.clear()
        self._owners.clear()
        self._due.clear()
        self._bytes = 0
        self._own_bytes.clear()
        self.charged.clear()


class TaskMethods:
    """The calls for tasks in the contract. They use the attribute `_tasks` of the store."""

    _tasks: MemoryTasks
    wake: OnWake

    async def open_task(self, key: str, principal: str, value: bytes, *, ttl: float) -> Refusal | None:
        """Keep a new task."""
        return self._tasks.open(key, principal, value, ttl, self._task_owner())

    def _task_owner(self) -> str:
        """Return the incarnation that owns a task that starts now."""
        return "only"

    async def get_task(self, key: str, principal: str) -> Cell | None:
        """Return a task."""
        return self._tasks.get(key, principal)

    async def set_task(
        self, key: str, principal: str, value: bytes, *, version: int, ttl: float, ends: bool = False
    ) -> int:
        """Change a task and send TASK."""
        changed = self._tasks.set(key, principal, value, version, ttl, ends=ends)
        if changed > 0:
            self.wake(WakeUp.TASK, key, "")
        return changed

    async def orphan_tasks(self, known: Collection[str] | None = None) -> list[OrphanTask]:  # noqa: ARG002
        """Return an empty list: the only process owns all tasks, and they are lost when it ends."""
        return []
