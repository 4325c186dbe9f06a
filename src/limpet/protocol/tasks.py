"""Tasks on the wire (extension io.modelcontextprotocol/tasks of 2026-07-28)."""

from typing import Any, Final

from msgspec import MsgspecError, Struct
from msgspec.json import Decoder

from limpet.errors import MissingCapability
from limpet.protocol.results import Result
from limpet.protocol.sessionless import TASKS

EXTENSION: Final[dict[str, Any]] = {"extensions": {TASKS: {}}}
"""The capability, as clients and servers declare it."""


class Progress(Struct, frozen=True):
    """How far a call is."""

    done: float
    total: float | None = None
    message: str | None = None

    @property
    def text(self) -> str:
        """The message, or the numbers."""
        return self.message or (
            f"{self.done:g}" if self.total is None else f"{self.done:g} of {self.total:g}"
        )


class _Told(Struct):
    progress: float
    total: float | None = None
    message: str | None = None


class _Notified(Struct):
    params: _Told


_decode_progress: Final = Decoder(_Notified).decode


def progress_of(message: bytes) -> Progress | None:
    """Return the progress that a notification of ours reports; None for any other message."""
    if message.find(b'"notifications/progress"') < 0:
        return None
    try:
        told = _decode_progress(message).params
    except MsgspecError:
        return None
    return Progress(told.progress, told.total, told.message)


class CreateTaskResult(Result, frozen=True, kw_only=True):
    """The result of a call that has become a task. Its `resultType` is `task`."""

    task_id: str
    status: str
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int


class DetailedTask(CreateTaskResult, frozen=True, kw_only=True):
    """A task with the members of its status: input requests, result, or error."""

    input_requests: dict[str, Any] | None = None
    result: Any = None
    error: Any = None


def declares_tasks(capabilities: dict[str, Any]) -> bool:
    """True if a client accepts a task as a result."""
    extensions = capabilities.get("extensions")
    return isinstance(extensions, dict) and isinstance(extensions.get(TASKS), dict)


def without_extension(capabilities: dict[str, Any]) -> dict[str, Any]:
    """Return capabilities without this extension. Others stay."""
    if not declares_tasks(capabilities):
        return capabilities
    extensions = {name: value for name, value in capabilities["extensions"].items() if name != TASKS}
    kept = {name: value for name, value in capabilities.items() if name != "extensions"}
    return {**kept, "extensions": extensions} if extensions else kept


def check_tasks(capabilities: dict[str, Any]) -> None:
    """Refuse a client that did not declare the extension.

    Raises:
        MissingCapability: the client did not declare it.
    """
    if not declares_tasks(capabilities):
        raise MissingCapability(EXTENSION)
