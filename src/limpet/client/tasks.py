"""Calls that the server runs as tasks (extension io.modelcontextprotocol/tasks): polled, answered, cancelled."""

import asyncio
import re
from typing import Any, Final, Literal

from msgspec import Struct

from limpet.client.base import Progress, Requester
from limpet.client.results import ToolCallResult, tool_call_result, typed
from limpet.errors import INTERNAL_ERROR, Cancelled, McpError
from limpet.upstream.pending import error_of

Status = Literal["working", "input_required", "completed", "failed", "cancelled"]
_OF: Final = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)(?: of (\d{1,15}(?:\.\d{1,15})?))?")
"""The status of a task of Limpet that reports progress without a message."""
POLL_SECONDS: Final = (0.05, 1.0, 60.0)
"""The shortest, the default and the longest pause between two polls; the server's suggestion is kept between them."""


class TaskState(Struct, frozen=True, rename="camel", kw_only=True):
    """A task as the server last described it."""

    task_id: str
    status: Status
    status_message: str | None = None
    created_at: str | None = None
    last_updated_at: str | None = None
    ttl_ms: int | None = None
    poll_interval_ms: int | None = None
    input_requests: dict[str, Any] | None = None
    result: Any = None
    error: dict[str, Any] | None = None

    @property
    def is_over(self) -> bool:
        """True if the task has ended."""
        return self.status in ("completed", "failed", "cancelled")


class Task:
    """A call that runs at the server as a task. `Client.task` returns it again by its id."""

    def __init__(self, client: Requester, state: TaskState, shape: type[Any] | None = None) -> None:
        self._client = client
        self._shape = shape
        self._answered: set[str] = set()
        self.state: TaskState = state

    def __repr__(self) -> str:
        message = self.state.status_message
        return f"<Task {self.state.status}{f': {message:.200}' if message else ''}>"

    @property
    def id(self) -> str:
        """The server's id of the task."""
        return self.state.task_id

    async def poll(self) -> TaskState:
        """Request the state of the task."""
        result = await self._client.request("tasks/get", {"taskId": self.id})
        self.state = typed(result, TaskState, "tasks/get")
        return self.state

    async def update(self, responses: dict[str, Any]) -> None:
        """Send the answers to the task's input requests, by their keys."""
        await self._client.request("tasks/update", {"taskId": self.id, "inputResponses": responses})
        self._answered |= responses.keys()

    async def cancel(self) -> None:
        """Ask the server to cancel the task. It may have ended already."""
        await self._client.request("tasks/cancel", {"taskId": self.id})

    async def result(self, progress: Progress | None = None) -> ToolCallResult[Any]:
        """Wait for the end and return the result of the tool. The client's handlers answer input requests.

        `progress` receives each status message that a poll finds. A task has no progress notifications: a status such
        as `3 of 10` gives the numbers, any other one counts the messages.

        Raises:
            McpError: the task failed; Cancelled if it was cancelled.
            BadAnswer: the result is not a valid result of a tool, or its data do not fit the requested type.
        """
        queue = self._client.queue(progress)
        said, count = "", 0
        while True:
            if queue is not None and self.state.status_message not in (None, said):
                said, count = self.state.status_message or "", count + 1
                queue.put(*_progress(said, count))
            if self.state.is_over:
                break
            await self._answer()
            await asyncio.sleep(self._pause())
            await self.poll()
        if queue is not None:
            await queue.drain()
        if self.state.status == "completed":
            return tool_call_result(self.state.result, self._shape)
        if self.state.status == "cancelled":
            raise Cancelled(self.state.status_message or "")
        raise _failure(self.state)

    async def _answer(self) -> None:
        """Answer each input request once, even if several polls return it."""
        asked = {
            key: one for key, one in (self.state.input_requests or {}).items() if key not in self._answered
        }
        if self.state.status == "input_required" and asked:
            await self.update(await self._client.answer_inputs(asked))

    def _pause(self) -> float:
        shortest, usual, longest = POLL_SECONDS
        wish = self.state.poll_interval_ms
        return min(longest, max(shortest, wish / 1_000)) if wish is not None else usual


def _progress(status: str, count: int) -> tuple[float, float | None, str | None]:
    """Return progress, total and message of a status."""
    found = _OF.fullmatch(status)
    if found is None:
        return count, None, status
    return float(found[1]), float(found[2]) if found[2] else None, None


def _failure(state: TaskState) -> McpError:
    try:
        return error_of(state.error or {})
    except KeyError:
        return McpError(INTERNAL_ERROR, state.status_message or "the task failed")
