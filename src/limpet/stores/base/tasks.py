"""Tasks: calls that continue after their request was answered, each under a key and a version.

A store without tasks inherits `NoTasks`. Then a server with a tool that may become a task does not start.
"""

from collections.abc import Collection
from typing import Any, NamedTuple, NoReturn, Protocol

from limpet.core.records import Refusal
from limpet.core.rules.state import Cell
from limpet.errors import ConfigError


class OrphanTask(NamedTuple):
    """A task that has not ended, and whose owner was declared dead, or does not run it."""

    key: str
    principal: str
    owner: str
    """The incarnation that began it."""
    cell: Cell
    """The value of the task. The version decides whether it may still be ended."""


class TaskPart(Protocol):
    """The calls for tasks."""

    async def open_task(self, key: str, principal: str, value: bytes, *, ttl: float) -> Refusal | None:
        """Keep a new task for so many seconds, durably before this returns; FULL at a limit of tasks or their bytes.

        The incarnation of this replica owns it until it ends. A key that is open already changes nothing.

        Raises:
            StoreUnavailable: also if this incarnation was declared dead.
        """

    async def get_task(self, key: str, principal: str) -> Cell | None:
        """Return a task. None if it is unknown, expired or another principal's; they cannot be distinguished."""

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

    async def orphan_tasks(self, known: Collection[str] | None = None) -> list[OrphanTask]:
        """Return tasks that have not ended and whose owner is dead, for any replica to end.

        `known` are all tasks that this incarnation runs: others of its own, which the store has as running, are
        returned too. They had ended, and a failover of the store has lost that. It grows meanwhile: compare it after
        the tasks were read.

        An owner is dead once `orphans` has declared it dead, or it gave its lease back. May return only some; call it
        again. Of all replicas that end one with `set_task` and its version, one succeeds.
        """


class NoTasks:
    """For a store that keeps no tasks: there are none, and a new one is refused."""

    async def open_task(self, *_: Any, **__: Any) -> Any:
        """Refuse."""
        refuse_tasks(self)

    async def get_task(self, *_: Any) -> Cell | None:
        """Return None: there are no tasks."""

    async def set_task(self, *_: Any, **__: Any) -> int:
        """Return −1: there is no such task."""
        return -1

    async def orphan_tasks(self, *_: Any) -> list[OrphanTask]:
        """Return none."""
        return []


def refuse_tasks(store: object) -> NoReturn:
    """Raise the error of a store without tasks."""
    raise ConfigError(
        f"{type(store).__name__} keeps no tasks: a tool that may become a task needs a store that does, "
        "such as memory:, sqlite:, redis: or postgres:"
    )
