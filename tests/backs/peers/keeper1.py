# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
# `mcp` lives in .peers/mcp1, never in our environment.
"""The server of tests/backs/keeper.py, as an object of `mcp` 1.x."""

import asyncio
from collections import defaultdict
from typing import Any
from weakref import WeakKeyDictionary

from mcp.server.fastmcp import Context, FastMCP
from mcp.types import RootsListChangedNotification
from pydantic import BaseModel

mcp = FastMCP("keeper", log_level="ERROR")
_kept: WeakKeyDictionary[Any, dict[str, int]] = WeakKeyDictionary()


def kept(ctx: Context) -> dict[str, int]:
    """Return the data of the session of a call."""
    return _kept.setdefault(ctx.session, defaultdict(int))


async def changed(_notification: RootsListChangedNotification) -> None:
    """Record it. The handlers of `mcp` 1 are not given the session."""
    heard.append("roots")


heard: list[str] = []
mcp._mcp_server.notification_handlers[RootsListChangedNotification] = changed


@mcp.tool()
async def roots_changed() -> int:
    """Return how often a client of this process has reported a change of its roots."""
    return len(heard)


class Answer(BaseModel):
    """A form with one field."""

    text: str


@mcp.tool()
async def bump(ctx: Context) -> int:
    """Count in the session."""
    kept(ctx)["n"] += 1
    return kept(ctx)["n"]


@mcp.tool()
async def ask(ctx: Context) -> str:
    """Ask the user."""
    answer = await ctx.elicit("name?", Answer)
    return answer.data.text if answer.action == "accept" else ""


@mcp.tool()
async def steps(ctx: Context, n: int, seconds: float) -> int:
    """Report progress n times."""
    try:
        for step in range(1, n + 1):
            await asyncio.sleep(seconds)
            await ctx.report_progress(step, n)
    except asyncio.CancelledError:
        kept(ctx)["cancelled"] += 1
        raise
    return n


@mcp.tool()
async def cancelled(ctx: Context) -> int:
    """Return how many calls of the session were cancelled."""
    return kept(ctx)["cancelled"]


@mcp.tool()
async def authorization(ctx: Context) -> str:
    """Return a header of the client's request, backwards: results are in the store as they are."""
    return str(ctx.request_context.request.headers.get("authorization", ""))[::-1]
