"""Tools that run as tasks, and what clients ask about a task.

A tool says whether its calls may become tasks or must; whether one does is up to what its
client declared with the call. In a session, where a call outlives its connection anyway, there
are no tasks, and such a tool answers like any other.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Literal

from holdfast.backs.native import Handler
from holdfast.core.tasks import TaskState, created, detailed
from holdfast.engine.exchange import Client, Exchange
from holdfast.engine.tasks import TaskWriter
from holdfast.errors import ConfigError, InvalidParams
from holdfast.protocol.sessionless import MissingCapability
from holdfast.protocol.tasks import EXTENSION, DetailedTask, check_tasks, declares_tasks
from holdfast.protocol.types import CallToolResult, InputRequiredResult, Result
from holdfast.protocol.versions import SESSIONLESS

if TYPE_CHECKING:
    from holdfast.server.app import Server

TaskMode = Literal["optional", "required"]
Run = Callable[[Exchange, dict[str, Any], "Server"], Awaitable[CallToolResult | InputRequiredResult]]
Params = dict[str, Any]
MODES: Final = ("optional", "required")
_ACKNOWLEDGED: Final = Result()


def as_task(run: Run, tool: str, mode: TaskMode | None, *, by_hand: bool) -> Run:
    """Return a tool's way through a call that becomes a task: at once, or where the handler says so.

    Raises:
        ConfigError: that is no way to be a task.
    """
    if mode is not None and mode not in MODES:
        raise ConfigError(f'tool {tool}: task is "optional" or "required", not {mode!r}')
    if mode is None:
        if by_hand:
            raise ConfigError(f'tool {tool}: task_by_hand needs task="optional" or task="required"')
        return run

    async def run_as_task(
        exchange: Exchange, arguments: dict[str, Any], server: "Server"
    ) -> CallToolResult | InputRequiredResult:
        if not takes_tasks(exchange.session):
            if mode == "required" and exchange.session.revision is SESSIONLESS:
                raise MissingCapability(EXTENSION)
        elif not by_hand:
            await begin_task(exchange, server)
        return await run(exchange, arguments, server)

    return run_as_task


def takes_tasks(client: Client) -> bool:
    """Tell whether a client takes a task for an answer to this request."""
    return client.revision is SESSIONLESS and declares_tasks(client.record.capabilities)


def is_task(exchange: Exchange) -> bool:
    """Tell whether a call has become a task."""
    return isinstance(exchange.writer, TaskWriter)


async def begin_task(exchange: Exchange, server: "Server") -> None:
    """Answer a call with a task and go on with it.

    Raises:
        Busy: there are too many.
    """
    tasks = server.engine.tasks

    def announce(task_id: str, state: TaskState) -> bytes:
        return server.sessionless_result(created(task_id, state, tasks.poll))

    await tasks.begin(exchange, announce)


async def start_task(exchange: Exchange, server: "Server") -> bool:
    """Make a task of a call whose tool allows it; False where its client takes none.

    Raises:
        RuntimeError: its tool does not allow it.
    """
    entry = server.tools.entries.get(exchange.request.params.get("name", ""))
    if exchange.request.method != "tools/call" or entry is None or entry.task is None:
        raise RuntimeError('only a tool registered with task="optional" or task="required" can start a task')
    if not takes_tasks(exchange.session):
        return False
    await begin_task(exchange, server)
    return True


async def describe(exchange: Exchange, done: float, total: float | None, message: str | None) -> bool:
    """Let progress be a task's status message; False where the call is no task."""
    writer = exchange.writer
    if not isinstance(writer, TaskWriter):
        return False
    await writer.describe(message or (f"{done:g}" if total is None else f"{done:g} of {total:g}"))
    return True


class TaskHandlers:
    """Answers what clients ask about their tasks."""

    def __init__(self, server: "Server") -> None:
        self._server = server

    def table(self) -> dict[str, Handler]:
        """Return method → handler."""
        return {"tasks/get": self.get, "tasks/update": self.update, "tasks/cancel": self.cancel}

    async def get(self, exchange: Exchange, params: Params) -> DetailedTask:
        """Tell how a task is, with what that brings along."""
        task_id = _task_id(exchange, params)
        tasks = self._server.engine.tasks
        state = await tasks.get(task_id, exchange.caller.key)
        return detailed(task_id, state, tasks.poll)

    async def update(self, exchange: Exchange, params: Params) -> Result:
        """Give a task what it asked for."""
        task_id = _task_id(exchange, params)
        answers = params.get("inputResponses")
        if type(answers) is not dict:
            raise InvalidParams("Invalid params: inputResponses must be an object")
        await self._server.engine.tasks.update(task_id, exchange.caller.key, answers)
        return _ACKNOWLEDGED

    async def cancel(self, exchange: Exchange, params: Params) -> Result:
        """Cancel a task."""
        await self._server.engine.tasks.cancel(_task_id(exchange, params), exchange.caller.key)
        return _ACKNOWLEDGED


def _task_id(exchange: Exchange, params: Params) -> str:
    check_tasks(exchange.session.record.capabilities)
    task_id = params.get("taskId")
    if type(task_id) is not str:
        raise InvalidParams("Invalid params: taskId must be a string")
    return task_id
