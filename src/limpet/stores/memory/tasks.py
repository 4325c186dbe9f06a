"""The tasks of the memory store."""

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Final

from typing_extensions import override

from limpet.core.rules.tasks import StoredTask, TaskBounds
from limpet.stores.base import Cell, OrphanTask
from limpet.stores.base.tasks import Swapped, TaskPart
from limpet.stores.kept import Charged

TASK_BYTES: Final = 1_536
"""The memory of a task besides its value (`python -m tests.attacks.costs`: about 400), and of its end in the engine."""


class MemoryTasks:
    """Tasks by key, with the number of tasks and bytes of each principal, and the times at which tasks expire."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._kept: dict[str, StoredTask] = {}
        self._owners: Counter[str] = Counter()
        self._due: list[tuple[float, str]] = []
        """One hint for each task: a time that may be earlier than the task expires, never later."""
        self._bytes = 0
        self._own_bytes: Counter[str] = Counter()
        """The bytes of the tasks of each principal."""
        self.charged: Charged = Charged()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: str) -> StoredTask | None:
        """Return a task, also one that has expired."""
        return self._kept.get(key)

    def swap(
        self, key: str, before: StoredTask | None, after: StoredTask, most: TaskBounds | None
    ) -> Swapped:
        """Replace a task if it is still this one, within the bounds."""
        if before is None:
            self.sweep()
        if self._kept.get(key) != before:
            return Swapped.DIFFERS
        whose, size = after.principal, len(after.value)
        growth = size - (len(before.value) if before else -TASK_BYTES)
        sums = len(self._kept), self._owners[whose], self._bytes, self._own_bytes[whose]
        if most is not None and (
            not most.allow(before, after, *sums) or max(growth, 0) > self.charged.room(whose)
        ):
            return Swapped.FULL
        self._kept[key] = after
        if before is None:
            self._owners[whose] += 1
            heapq.heappush(self._due, (after.expires, key))
        self._count(whose, size - (len(before.value) if before else 0))
        return Swapped.DONE

    def _count(self, principal: str, size: int) -> None:
        self._bytes += size
        self._own_bytes[principal] += size
        self.charged.set(principal, self._own_bytes[principal] + self._owners[principal] * TASK_BYTES)

    def owned(self) -> Iterator[OrphanTask]:
        """Return the tasks that have not ended, as if their owners were dead."""
        for key, task in self._kept.items():
            if task.owner and task.expires > self._now():
                yield OrphanTask(key, task.principal, task.owner, Cell(task.value, task.version))

    def sweep(self) -> None:
        """Delete the tasks that have expired."""
        now = self._now()
        while self._due and self._due[0][0] <= now:
            _, key = heapq.heappop(self._due)
            task = self._kept[key]
            if task.expires > now:
                heapq.heappush(self._due, (task.expires, key))
            else:
                self._forget(key, task)

    def _forget(self, key: str, task: StoredTask) -> None:
        del self._kept[key]
        self._owners[task.principal] -= 1
        self._count(task.principal, -len(task.value))
        if not self._owners[task.principal]:
            del self._owners[task.principal]
            del self._own_bytes[task.principal]

    def clear(self) -> None:
        """Delete all tasks."""
        self._kept.clear()
        self._owners.clear()
        self._due.clear()
        self._bytes = 0
        self._own_bytes.clear()
        self.charged.clear()


class TaskMethods(TaskPart):
    """Tasks in the attribute `_tasks` of the store."""

    _tasks: MemoryTasks

    @override
    async def load_task(self, key: str) -> StoredTask | None:
        return self._tasks.get(key)

    @override
    async def swap_task(
        self, key: str, before: StoredTask | None, after: StoredTask, most: TaskBounds | None
    ) -> Swapped:
        return self._tasks.swap(key, before, after, most)

    async def orphan_tasks(self, known: Collection[str] | None = None) -> list[OrphanTask]:  # noqa: ARG002
        """Return an empty list: the only process owns all tasks, and they are lost when it ends."""
        return []
