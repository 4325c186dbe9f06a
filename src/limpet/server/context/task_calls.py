"""Calls that run as tasks.

A tool declares whether its calls can or must run as tasks. A call becomes a task if its client declared the tasks
extension. A session has no tasks, because there a call survives its connection: in a session such a tool answers like
every other tool.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Literal

from limpet.core.exchange import ExchangeState
from limpet.errors import ConfigError, MissingCapability
from limpet.protocol.tasks import EXTENSION, Progress, declares_tasks
from limpet.protocol.types import CallToolResult, InputRequiredResult
from limpet.protocol.versions import SESSIONLESS
from limpet.server.catalog.server_controls import ServerControls

if TYPE_CHECKING:
    from limpet.engine.exchange import Client, Exchange

TaskMode = Literal["optional", "required"]
Run = Callable[["Exchange", dict[str, Any], ServerControls], Awaitable[CallToolResult | InputRequiredResult]]
MODES: Final = ("optional", "required")


def as_task(run: Run, tool: str, mode: TaskMode | None, *, by_hand: bool) -> Run:
    """Return a run function whose calls become tasks: at their start, or by hand when the function asks for it.

    Raises:
        ConfigError: the task mode is invalid.
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
            await server.engine.tasks.begin(exchange)
        return await run(exchange, arguments, server)

    return run_as_task


def takes_tasks(client: Client) -> bool:
    """Return True if the client accepts a task as the answer to this request."""
    return client.revision is SESSIONLESS and declares_tasks(client.record.capabilities)


async def start_task(exchange: Exchange, server: ServerControls) -> bool:
    """Turn a call into a task; return False if its client does not support tasks.

    Raises:
        RuntimeError: the tool is not registered with `task`.
        Busy: the limit of tasks is reached.
    """
    entry = server.tools.entries.get(exchange.inner.params.get("name", ""))
    if exchange.request.method != "tools/call" or entry is None or entry.task is None:
        raise RuntimeError('only a tool registered with task="optional" or task="required" can start a task')
    if not takes_tasks(exchange.session):
        return False
    await server.engine.tasks.begin(exchange)
    return True


async def describe(
    exchange: Exchange, server: ServerControls, done: float, total: float | None, message: str | None
) -> bool:
    """Set progress as the status message of a task; return False if the call is not a task."""
    if exchange.state is not ExchangeState.TASK:
        return False
    await server.engine.tasks.describe(exchange, Progress(done, total, message))
    return True
