"""Tools that run as tasks (2026-07-28, extension io.modelcontextprotocol/tasks): `limpet serve examples/tasks.py`.

The handlers are ordinary ones. Where a client does not know tasks, all but the required ones
answer in the usual way.
"""

import asyncio
from typing import Annotated

from pydantic import BaseModel, Field

from limpet import Context, McpError, Server, ToolError

server = Server("tasks", version="1.0.0", instructions="Tools that take their time.")


class Confirmation(BaseModel):
    confirm: bool


class Name(BaseModel):
    name: str


@server.tool
async def greet(name: str) -> str:
    """Greet a person, at once."""
    return f"Hello, {name}!"


@server.tool(task="optional")
async def slow_compute(
    seconds: Annotated[float, Field(ge=0, le=3600)], ctx: Context, label: str = "compute"
) -> str:
    """Take so many seconds, and say how far it is."""
    whole = int(seconds)
    for done in range(whole):
        await ctx.progress(done, seconds, f"{label}: {done} of {seconds:g} s")
        await asyncio.sleep(1)
    await asyncio.sleep(seconds - whole)
    return f"{label} took {seconds:g} s"


@server.tool(task="required")
async def failing_job() -> str:
    """Fail as tools fail: the task is completed, with an error result."""
    raise ToolError("The job failed, as it always does")


@server.tool(task="optional")
async def protocol_error_job() -> str:
    """Fail with a JSON-RPC error: the task is failed."""
    raise McpError(-32603, "The job could not be run")


@server.tool(task="optional")
async def confirm_delete(filename: str, ctx: Context) -> str:
    """Ask before a file is deleted (none is)."""
    answer = await ctx.elicit(f"Delete {filename}?", Confirmation)
    confirmed = answer.data is not None and answer.data.confirm
    return f"{filename} was {'deleted' if confirmed else 'kept'}"


@server.tool(task="optional")
async def multi_input(ctx: Context) -> str:
    """Ask two questions at once; they may be answered one by one."""
    first, second = await asyncio.gather(
        ctx.elicit("What is the first name?", Name), ctx.elicit("What is the second name?", Name)
    )
    names = [answer.data.name if answer.data is not None else "no name" for answer in (first, second)]
    return " and ".join(names)


@server.tool(task="required", task_by_hand=True)
async def test_tool_with_task(ctx: Context) -> str:
    """Ask for a name first, in the call itself, and greet in a task."""
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    await ctx.start_task()
    return f"Hello, {answer.data.name if answer.data is not None else 'stranger'}!"
