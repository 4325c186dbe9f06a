"""Tasks: calls that continue after their request was answered, each under a key and a version.

A store without tasks inherits `NoTasks`. Then a server with a tool that may become a task does not start.
"""

from collections.abc import Callable, Collection
from enum import Enum
from typing import Any, NamedTuple, NoReturn, Protocol

from limpet.config import Limits
from limpet.core.records import Refusal, WakeUp
from limpet.core.rules import tasks
from limpet.core.rules.state import Cell
from limpet.core.rules.tasks import StoredTask, TaskBounds
from limpet.errors import ConfigError
from limpet.stores.base.wakeups import OnWake


class OrphanTask(NamedTuple):
    """A task that has not ended, and whose owner was declared dead, or does not run it."""

    key: str
    principal: str
    owner: str
    """The incarnation that began it."""
    cell: Cell
    """The value of the task. The version decides whether it may still be ended."""


class Swapped(Enum):
    """What has become of a change."""

    DONE = "done"
    DIFFERS = "differs"
    """The stored task has another version: nothing was changed."""
    FULL = "full"
    """It would exceed the bounds: nothing was changed."""


class TaskPart(Protocol):
    """The calls for tasks. The rules are in `core/rules/tasks.py`; a store keeps tasks, compares and adds up."""

    now: Callable[[], float]
    me: str
    wake: OnWake
    _limits: Limits

    async def open_task(self, key: str, principal: str, value: bytes, *, ttl: float) -> Refusal | None:
        """Keep a new task for so many seconds, durably before this returns; FULL at a limit of tasks or their bytes.

        The incarnation of this replica owns it until it ends. A key that is open already changes nothing.

        Raises:
            StoreUnavailable: also if this incarnation was declared dead.
        """
        task = StoredTask(principal, value, 1, self.now() + ttl, self.me)
        done = await self.swap_task(key, None, task, TaskBounds.of(self._limits))
        return Refusal.FULL if done is Swapped.FULL else None

    async def get_task(self, key: str, principal: str) -> Cell | None:
        """Return a task. None if it is unknown, expired or another principal's; they cannot be distinguished."""
        task = tasks.seen(await self.load_task(key), principal, self.now())
        return None if task is None else Cell(task.value, task.version)

    async def set_task(
        self, key: str, principal: str, value: bytes, *, version: int, ttl: float, ends: bool = False
    ) -> int:
        """Change a task that still has this version, send TASK, and return the new version, which is one more.

        It is kept at least `ttl` seconds from now. Returns −1 if the version differs or there is no such task. The
        same change sent again returns the same version. `ends` says that this is the end of the task: it has no
        owner any more, and a value of at most TASK_END_BYTES always has room.

        Raises:
            StateError: over a limit of bytes; nothing was changed.
        """
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

    async def orphan_tasks(self, known: Collection[str] | None = None) -> list[OrphanTask]:
        """Return tasks that have not ended and whose owner is dead, for any replica to end.

        `known` are all tasks that this incarnation runs: others of its own, which the store has as running, are
        returned too. They had ended, and a failover of the store has lost that. It grows meanwhile: compare it after
        the tasks were read.

        An owner is dead once `orphans` has declared it dead, or it gave its lease back. May return only some; call it
        again. Of all replicas that end one with `set_task` and its version, one succeeds.
        """
        raise NotImplementedError

    # What a store has in place of the commands

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


class NoTasks:
    """For a store that keeps no tasks: there are none, and a new one is refused."""

    async def open_task(self, *_: Any, **__: Any) -> Any:
        """Refuse."""
        refuse_tasks(self)

    async def get_task(self, *_: Any, **__: Any) -> Any:
        """Return None: there are no tasks."""

    async def set_task(self, *_: Any, **__: Any) -> int:
        """Return −1: there is no such task."""
        return -1

    async def orphan_tasks(self, *_: Any, **__: Any) -> list[OrphanTask]:
        """Return none."""
        return []

    async def load_task(self, *_: Any, **__: Any) -> Any:
        """Return None: there are no tasks."""

    async def swap_task(self, *_: Any, **__: Any) -> Any:
        """Refuse."""
        refuse_tasks(self)


def refuse_tasks(store: object) -> NoReturn:
    """Raise the error of a store without tasks."""
    raise ConfigError(
        f"{type(store).__name__} keeps no tasks: a tool that may become a task needs a store that does, "
        "such as memory:, sqlite:, redis: or postgres:"
    )
