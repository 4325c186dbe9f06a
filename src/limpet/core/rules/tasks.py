"""Tasks: calls that continue after their request was answered. Each task is a document of its own, and one value.

A task belongs to a principal and, until it ends, to the incarnation that runs it. Every change names the version that
it changes, and makes the next one: of several replicas that change a task at once, one succeeds. A change that is sent
again finds its own value under the next version.

The sums of all tasks and of one principal's lie outside the document. A rule says which bounds they have; the store
adds to them within the bounds, or refuses.
"""

from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from limpet.config import Limits
from limpet.errors import StateError

TASK_END_BYTES: Final = 1_024
"""The end of a task always has room if it is not longer than this: an error without details."""


class StoredTask(Struct, frozen=True):
    """A task as it is stored."""

    principal: str
    value: bytes
    version: int
    expires: float
    owner: str
    """The incarnation that runs it; empty after its end."""


class TaskBounds(NamedTuple):
    """What there may be at most after a change that adds a task or bytes: of all principals, and of this one."""

    tasks: int
    own_tasks: int
    bytes: int
    own_bytes: int

    @classmethod
    def of(cls, limits: Limits) -> "TaskBounds":
        """Return the bounds of a store."""
        return cls(limits.tasks, limits.tasks_per_principal, limits.tasks_bytes, limits.principal_tasks_bytes)

    def allow(
        self, before: StoredTask | None, after: StoredTask, tasks: int, own_tasks: int, size: int, own: int
    ) -> bool:
        """Return True if this change is within the bounds; the numbers are the sums before it."""
        if before is None and (tasks >= self.tasks or own_tasks >= self.own_tasks):
            return False
        growth = max(len(after.value) - (len(before.value) if before else 0), 0)
        return size + growth <= self.bytes and own + growth <= self.own_bytes


def seen(task: StoredTask | None, principal: str, now: float) -> StoredTask | None:
    """Return a task if this principal has it; None if it is unknown, expired or another principal's."""
    if task is None or task.principal != principal or task.expires <= now:
        return None
    return task


def change(task: StoredTask, value: bytes, version: int, expires: float, *, ends: bool) -> StoredTask | None:
    """Return a task after a change: the same one if this change was made before, None if the version differs.

    It is never kept for shorter.
    """
    if (task.value, task.version) == (value, version + 1):
        return task
    if task.version != version:
        return None
    return replace(
        task,
        value=value,
        version=version + 1,
        expires=max(task.expires, expires),
        owner="" if ends else task.owner,
    )


def bounds(limits: Limits, value: bytes, *, ends: bool) -> TaskBounds | None:
    """Return the bounds of a change to this value; None: it always has room.

    Raises:
        StateError: it is too long.
    """
    if ends and len(value) <= TASK_END_BYTES:
        return None
    if len(value) > limits.task_bytes:
        raise no_room(value)
    return TaskBounds.of(limits)


def no_room(value: bytes) -> StateError:
    """Return the error of a change for which there is no room."""
    return StateError(f"no room for a task of {len(value)} bytes")
