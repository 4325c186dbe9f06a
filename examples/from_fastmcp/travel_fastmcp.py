# mypy: disable-error-code="import-not-found,untyped-decorator,misc,no-any-return"
"""A travel desk on FastMCP: questions to the user, sampling, middleware, and a second server that is mounted.

python examples/from_fastmcp/travel_fastmcp.py                  # by FastMCP
limpet serve examples/from_fastmcp/travel_fastmcp.py:mcp        # the same object, by Limpet
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import Tool
from mcp_types import SamplingMessage, TextContent

FARES = {"Bergen": 120, "Cairo": 480, "Quito": 910}

weather = FastMCP("weather")


@weather.tool(annotations={"readOnlyHint": True})
async def forecast(city: str) -> dict[str, int]:
    """Forecast the temperatures of a city."""
    return {"low": len(city), "high": 3 * len(city)}


@weather.resource("climate://{city}")
async def climate(city: str) -> str:
    """The climate of a city."""
    return f"{city} is mild."


@weather.prompt
async def pack(city: str) -> str:
    """Ask for a packing list."""
    return f"What do I pack for {city}?"


class Desk(Middleware):
    """Refuse destinations without a fare, and hide the tools of the staff."""

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        city = (context.message.arguments or {}).get("city", "Bergen")
        if city not in FARES:
            raise ToolError(f"{context.message.name}: there is no fare to {city}")
        if context.fastmcp_context is not None:
            await context.fastmcp_context.info(f"calling {context.message.name}")
        return await call_next(context)

    async def on_list_tools(
        self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]
    ) -> Sequence[Tool]:
        return [tool for tool in await call_next(context) if not tool.name.startswith("staff_")]


mcp = FastMCP("travel", instructions="Plan a journey.")
mcp.add_middleware(Desk())
mcp.mount(weather, namespace="weather")


@dataclass
class Traveller:
    name: str
    bags: int = 1


@mcp.tool
async def book(city: str, ctx: Context) -> str:
    """Book a journey; asks for the class, the traveller and a confirmation."""
    cabin = await ctx.elicit("Which class?", ["economy", "business"])
    if cabin.action != "accept":
        return "no class chosen"
    traveller = await ctx.elicit("Who travels?", Traveller)
    if traveller.action != "accept":
        return "no traveller"
    price = FARES[city] * (3 if cabin.data == "business" else 1)
    sure = await ctx.elicit(f"Book for {price} euros?", bool)
    if sure.action != "accept" or not sure.data:
        return "not booked"
    return f"{traveller.data.name} flies to {city} with {traveller.data.bags} bags for {price} euros"


@mcp.tool
async def advertise(city: str, ctx: Context) -> str:
    """Let the client's model write a line."""
    question = SamplingMessage(
        role="user", content=TextContent(type="text", text=f"Praise {city} in a line.")
    )
    answer = await ctx.session.create_message(
        [question], max_tokens=60, system_prompt="You sell journeys.", related_request_id=ctx.request_id
    )
    return f"{city}: {answer.content.text if isinstance(answer.content, TextContent) else 'no text'}"


@mcp.tool
async def folders(ctx: Context) -> list[str]:
    """List the folders that the client works in."""
    return [str(root.uri) for root in (await ctx.session.list_roots()).roots]


@mcp.tool
async def staff_prices() -> dict[str, int]:
    """All fares; hidden from the list."""
    return FARES


if __name__ == "__main__":
    mcp.run(show_banner=False)
