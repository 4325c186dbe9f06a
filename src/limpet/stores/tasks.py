"""The commands of tasks, once for every store.

The rules are in `core/rules/tasks.py`; a store keeps tasks, compares versions and adds up.
"""

from collections.abc import Callable
from enum import Enum

from limpet.config import Limits
from limpet.core.rules import tasks
from limpet.core.rules.tasks import StoredTask, TaskBounds
from limpet.stores.base import Cell, OnWake, Refusal, WakeUp


class Swapped(Enum):
    """What has become of a change."""

    DONE = "done"
    DIFFERS = "differs"
    """The stored task has another version: nothing was changed."""
    FULL = "full"
    """It would exceed the bounds: nothing was changed."""


class TaskCommands:
    """open_task, get_task, set_task."""

    now: Callable[[], float]
    me: str
    wake: OnWake
    _limits: Limits

    # What a store adds

    async def load_task(self, key: str) -> StoredTask | None:
        """Return a task as it is stored."""
        raise NotImplementedError

    async def swap_task(
        self, key: str, before: StoredTask | None, after: StoredTask, most: TaskBounds | None
    ) -> Swapped:
        """Replace a task in one step if the stored one is `before` (by version; None: there is none), within bounds.

        A new task first makes room by forgetting those that have expired. A change sends TASK to the other replicas.

        Raises:
            StoreUnavailable: also if it is new, and this incarnation was declared dead.
        """
        raise NotImplementedError

    def _task_owner(self) -> str:
        """Return the incarnation that owns a task that starts now."""
        return self.me

    # The commands

    async def open_task(self, key: str, principal: str, value: bytes, *, ttl: float) -> Refusal | None:
        """Keep a new task. One that is open already differs, and stays."""
        task = StoredTask(principal, value, 1, self.now() + ttl, self._task_owner())
        done = await self.swap_task(key, None, task, TaskBounds.of(self._limits))
        return Refusal.FULL if done is Swapped.FULL else None

    async def get_task(self, key: str, principal: str) -> Cell | None:
        task = tasks.seen(await self.load_task(key), principal, self.now())
        return None if task is None else Cell(task.value, task.version)

    async def set_task(
        self, key: str, principal: str, value: bytes, *, version: int, ttl: float, ends: bool = False
    ) -> int:
        while (task := tasks.seen(await self.load_task(key), principal, self.now())) is not None:
            changed = tasks.change(task, value, version, self.now() + ttl, ends=ends)
            if changed is None:
                break
            if changed is not task:
                most = tasks.bounds(self._limits, value, ends=ends)
                done = await self.swap_task(key, task, changed, most)
                if done is Swapped.DIFFERS:
                    continue
                if done is Swapped.FULL:
                    raise tasks.no_room(value)
            self.wake(WakeUp.TASK, key, "")
            return changed.version
        return -1
