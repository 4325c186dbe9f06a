"""A task: a call that continues after its request was answered (extension io.modelcontextprotocol/tasks). Pure.

A task works, may wait for input, and ends once: a terminal status never changes. The store has one `TaskState` for each
task. Each change is a function from one state to the next, so a writer that loses a race applies its change
again to the newer state.
"""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from enum import Enum
from hashlib import sha256
from typing import Any, Final

from msgspec import Raw, Struct
from msgspec.structs import replace

from limpet.core.rounds import Asked
from limpet.protocol.tasks import CreateTaskResult, DetailedTask, Progress


class TaskStatus(Enum):
    """The status of a task, as the extension names it."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TaskInput(Enum):
    """An event in the life of a task."""

    ASKED = "asked"
    ANSWERED = "answered"
    """All its asks are answered."""
    RESULT = "result"
    ERROR = "error"
    CANCEL = "cancel"


TERMINAL: Final = frozenset({TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED})
TABLE: Final[dict[tuple[TaskStatus, TaskInput], TaskStatus]] = {
    (TaskStatus.WORKING, TaskInput.ASKED): TaskStatus.INPUT_REQUIRED,
    (TaskStatus.INPUT_REQUIRED, TaskInput.ASKED): TaskStatus.INPUT_REQUIRED,
    (TaskStatus.INPUT_REQUIRED, TaskInput.ANSWERED): TaskStatus.WORKING,
    **{
        (status, event): end
        for status in (TaskStatus.WORKING, TaskStatus.INPUT_REQUIRED)
        for event, end in (
            (TaskInput.RESULT, TaskStatus.COMPLETED),
            (TaskInput.ERROR, TaskStatus.FAILED),
            (TaskInput.CANCEL, TaskStatus.CANCELLED),
        )
    },
}
"""Status and event → next status. An event that is not in the table leaves the status as it is."""


class TaskState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored data of a task. `result` and `error` are JSON."""

    status: TaskStatus = TaskStatus.WORKING
    message: str = ""
    progress: float | None = None
    total: float | None = None
    """How far it is, in the tool's own unit."""
    created: float
    updated: float
    """Dates, as seconds since 1970."""
    ttl: float
    """The task is kept for this many seconds after its creation."""
    asks: dict[str, Asked] = {}
    """Asks without an answer."""
    answers: dict[str, Any] = {}
    """Answers that its handler has not taken yet."""
    result: bytes = b""
    error: bytes = b""

    @property
    def is_terminal(self) -> bool:
        """True if the task has ended."""
        return self.status in TERMINAL


def begun(now: float, ttl: float) -> TaskState:
    """Return a task that has just begun."""
    return TaskState(created=now, updated=now, ttl=ttl)


def renewed(state: TaskState, now: float, ttl: float) -> TaskState:
    """Return the task with `now` as the time of its last change.

    It is kept for `ttl` from now, or longer if promised.
    """
    return replace(state, updated=now, ttl=max(state.ttl, now - state.created + ttl))


# Changes. Each function returns None if it changes nothing.


def described(state: TaskState, progress: Progress) -> TaskState | None:
    """Set the progress of the task, and the message that describes it."""
    told = replace(state, message=progress.text, progress=progress.done, total=progress.total)
    return None if state.is_terminal or told == state else told


def asked(state: TaskState, key: str, ask: Asked) -> TaskState | None:
    """Add an ask."""
    status = TABLE.get((state.status, TaskInput.ASKED))
    return None if status is None else replace(state, status=status, asks={**state.asks, key: ask})


def answered(state: TaskState, given: Mapping[str, Any]) -> TaskState | None:
    """Take a client's answers. Answers to unknown asks are ignored."""
    wanted = {key: given[key] for key in state.asks if key in given}
    if not wanted or state.is_terminal:
        return None
    return _without(replace(state, answers={**state.answers, **wanted}), wanted)


def withdrawn(state: TaskState, key: str) -> TaskState | None:
    """Remove an ask, answered or not."""
    if state.is_terminal or (key not in state.asks and key not in state.answers):
        return None
    kept = {name: value for name, value in state.answers.items() if name != key}
    return _without(replace(state, answers=kept), {key: None})


def reconciled(state: TaskState, waiting: Mapping[str, Asked], known: Collection[str]) -> TaskState | None:
    """Make the asks those of the handler again: a failover may have lost an ask, or brought one back.

    `waiting` are those without an answer, `known` all that the handler has not withdrawn.
    """
    changed: TaskState | None = None
    for key in [*state.asks, *state.answers]:
        if key not in known:
            changed = withdrawn(changed or state, key) or changed
    for key, ask in waiting.items():
        if key not in state.asks and key not in state.answers:
            changed = asked(changed or state, key, ask) or changed
    return changed


def _without(state: TaskState, gone: Mapping[str, Any]) -> TaskState:
    asks = {key: ask for key, ask in state.asks.items() if key not in gone}
    status = state.status if asks else TABLE.get((state.status, TaskInput.ANSWERED), state.status)
    return replace(state, asks=asks, status=status)


def ended(
    state: TaskState, event: TaskInput, *, result: bytes = b"", error: bytes = b"", message: str = ""
) -> TaskState | None:
    """End the task, with a message that says why. A task that has ended does not change."""
    status = TABLE.get((state.status, event))
    if status is None:
        return None
    last = message or state.message
    return replace(state, status=status, message=last, asks={}, answers={}, result=result, error=error)


# The forms that a client receives


def task_key(task_id: str) -> str:
    """Return the key of a task in the store. It is a digest, because the id is a secret of its client."""
    return sha256(task_id.encode()).hexdigest()


def created(task_id: str, state: TaskState, poll: float) -> CreateTaskResult:
    """Return the answer to a call that has become a task."""
    return CreateTaskResult(**_common(task_id, state, poll))


def detailed(task_id: str, state: TaskState, poll: float) -> DetailedTask:
    """Return the task with all members that belong to its status."""
    return DetailedTask(
        **_common(task_id, state, poll),
        input_requests=state.asks or None,
        result=Raw(state.result) if state.result else None,
        error=Raw(state.error) if state.error else None,
    )


def _common(task_id: str, state: TaskState, poll: float) -> dict[str, Any]:
    return {
        "task_id": task_id,
        "status": state.status.value,
        "status_message": state.message or None,
        "created_at": _date(state.created),
        "last_updated_at": _date(state.updated),
        "ttl_ms": round(state.ttl * 1000),
        "poll_interval_ms": round(poll * 1000),
    }


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
