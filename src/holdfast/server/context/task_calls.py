"""Tools that run as tasks, and what clients ask about a task.

A tool says whether its calls may become tasks or must; whether one does is up to what its
client declared with the call. In a session, where a call outlives its connection anyway, there
are no tasks, and such a tool answers like any other.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal

from holdfast.core.tasks import TaskState, created
from holdfast.engine.exchange import Client, Exchange
from holdfast.engine.tasks import TaskWriter
from holdfast.errors import ConfigError, MissingCapability
from holdfast.protocol.tasks import EXTENSION, declares_tasks
from holdfast.protocol.types import CallToolResult, InputRequiredResult
from holdfast.protocol.versions import SESSIONLESS
from holdfast.server.catalog.server_controls import ServerControls

TaskMode = Literal["optional", "required"]
Run = Callable[[Exchange, dict[str, Any], ServerControls], Awaitable[CallToolResult | InputRequiredResult]]
MODES: Final = ("optional", "required")


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
        exchange: Exchange, arguments: dict[str, Any], server: ServerControls
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


async def begin_task(exchange: Exchange, server: ServerControls) -> None:
    """Answer a call with a task and go on with it.

    Raises:
        Busy: there are too many.
    """
    tasks = server.engine.tasks

    def announce(task_id: str, state: TaskState) -> bytes:
        return server.encode_sessionless(created(task_id, state, tasks.poll))

    await tasks.begin(exchange, announce)


async def start_task(exchange: Exchange, server: ServerControls) -> bool:
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
