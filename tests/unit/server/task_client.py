"""A client of 2026-07-28 with tasks; its answers are checked against the extension's types."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from jsonschema import Draft202012Validator

from limpet.config import Limits, Settings, Times
from limpet.engine.engine import Engine
from limpet.errors import McpError
from limpet.server.app import Server
from limpet.stores.base import Store
from limpet.testing.seeded_random import SeededRandom
from tests.schema import MODERN, Json, check_error, validate_result
from tests.support import LoopClock
from tests.unit.server.sessionless_client import ALL, Answered, SessionlessClient

TASKS: Final = "io.modelcontextprotocol/tasks"
EXTENSION: Final[Json] = {"extensions": {TASKS: {}}}
POLL: Final = 0.5
_DATE: Final = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"}
_TASK: Final[Json] = {
    "resultType": {"const": "complete"},
    "_meta": {"type": "object"},
    "taskId": {"type": "string", "minLength": 32},
    "statusMessage": {"type": "string"},
    "createdAt": _DATE,
    "lastUpdatedAt": _DATE,
    "ttlMs": {"type": "integer", "exclusiveMinimum": 0},
    "pollIntervalMs": {"type": "integer", "exclusiveMinimum": 0},
}
_REQUIRED: Final = ["resultType", "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs"]


def _check_input_requests(value: Json) -> None:
    validate_result({"resultType": "input_required", "inputRequests": value}, MODERN, "tools/call")


def _check_completed(value: Json) -> None:
    validate_result(value, MODERN, "tools/call")


_BRINGS: Final[dict[str, tuple[str, Callable[[Json], None]] | None]] = {
    "working": None,
    "input_required": ("inputRequests", _check_input_requests),
    "completed": ("result", _check_completed),
    "failed": ("error", check_error),
    "cancelled": None,
}
"""The extra member of a task by its status, and the check of that member."""


def check_task(task: Json, kind: str = "complete") -> None:
    """Fail unless this is a task as the extension defines it: with the members of its status, and no others."""
    brings = _BRINGS[task["status"]] if kind == "complete" else None
    member = {brings[0]: {"type": "object"}} if brings else {}
    properties = {**_TASK, **member, "status": {"enum": list(_BRINGS)}, "resultType": {"const": kind}}
    schema = {"properties": properties, "required": [*_REQUIRED, *member], "additionalProperties": False}
    Draft202012Validator(schema).validate(task)
    if brings:
        brings[1](task[brings[0]])


class TaskClient(SessionlessClient):
    """Calls tools and follows their tasks."""

    async def create(self, tool: str, /, **arguments: object) -> str:
        """Call a tool that must become a task; return the task's id."""
        answered = await self.post("tools/call", {"name": tool, "arguments": arguments})
        check_task(answered.result, "task")
        task_id: str = answered.result["taskId"]
        return task_id

    async def get(self, task_id: str) -> Json:
        """Return how a task is."""
        task = self._result(await self.post("tasks/get", {"taskId": task_id}))
        check_task(task)
        assert task["taskId"] == task_id
        return task

    async def status(self, task_id: str) -> str:
        """Return a task's status alone."""
        status: str = (await self.get(task_id))["status"]
        return status

    async def until(self, task_id: str, *statuses: str) -> Json:
        """Poll until a task has one of these statuses."""
        while (task := await self.get(task_id))["status"] not in statuses:
            await asyncio.sleep(POLL)
        return task

    async def done(self, task_id: str) -> Json:
        """Poll until a task has ended."""
        return await self.until(task_id, "completed", "failed", "cancelled")

    async def text_of(self, task_id: str) -> str:
        """Wait for a task that must succeed with one text; return it."""
        task = await self.done(task_id)
        (block,) = task["result"]["content"]
        assert not task["result"].get("isError"), task
        text: str = block["text"]
        return text

    async def update(self, task_id: str, **answers: object) -> None:
        """Answer the questions of a task."""
        await self._acknowledged("tasks/update", {"taskId": task_id, "inputResponses": answers})

    async def cancel(self, task_id: str) -> None:
        """Cancel a task."""
        await self._acknowledged("tasks/cancel", {"taskId": task_id})

    async def _acknowledged(self, method: str, params: Json) -> None:
        result = self._result(await self.post(method, params))
        assert result.keys() == {"resultType", "_meta"}, result
        assert result["resultType"] == "complete"

    @staticmethod
    def _result(answered: Answered) -> Json:
        if "error" in answered.message:
            error = answered.message["error"]
            raise McpError(error["code"], error["message"], error.get("data"))
        return answered.result


def named(name: str) -> Json:
    """Return a form's answer."""
    return {"action": "accept", "content": {"name": name}}


@asynccontextmanager
async def tasks_of(
    server: Server,
    *,
    limits: Limits = Limits(),
    times: Times = Times(task_poll=POLL),
    store: Store | None = None,
    **options: Any,
) -> "AsyncIterator[TaskClient]":
    """Run a server in virtual time, with one client."""
    settings = Settings(limits=limits, times=times)
    engine = Engine(server.back, settings, store=store, clock=LoopClock(), random=SeededRandom(1))
    server._engine = engine
    await engine.ensure_started()
    try:
        yield TaskClient(server, capabilities={**ALL, **EXTENSION}, **options)
    finally:
        await engine.aclose()
