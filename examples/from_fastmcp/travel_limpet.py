"""The travel desk of travel_fastmcp.py on Limpet. Clients of 2026-07-28 are asked too.

limpet serve examples/from_fastmcp/travel_limpet.py:server
"""

from dataclasses import dataclass

from msgspec.structs import replace

from limpet import Context, Server, ToolAnnotations, ToolError
from limpet.middleware import CallNext, Hooks, MiddlewareRequest
from limpet.types import ListToolsResult, Result

FARES = {"Bergen": 120, "Cairo": 480, "Quito": 910}

weather = Server("weather")


@weather.tool(annotations=ToolAnnotations(read_only_hint=True))
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


class Desk(Hooks):
    """Refuse destinations without a fare, and hide the tools of the staff."""

    async def on_call_tool(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
        city = request.params.get("arguments", {}).get("city", "Bergen")
        if city not in FARES:
            raise ToolError(f"{request.params['name']}: there is no fare to {city}")
        await request.ctx.info(f"calling {request.params['name']}")
        return await call_next(request)

    async def on_list_tools(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
        listed = await call_next(request)
        if not isinstance(listed, ListToolsResult):
            return listed
        return replace(listed, tools=[tool for tool in listed.tools if not tool.name.startswith("staff_")])


server = Server("travel", instructions="Plan a journey.")
server.middleware(Desk())
server.include(weather, prefix="weather")


@dataclass
class Traveller:
    name: str
    bags: int = 1


@server.tool
async def book(city: str, ctx: Context) -> str:
    """Book a journey; asks for the class, the traveller and a confirmation."""
    cabin = await ctx.elicit("Which class?", ["economy", "business"])
    if cabin.data is None:
        return "no class chosen"
    traveller = await ctx.elicit("Who travels?", Traveller)
    if traveller.data is None:
        return "no traveller"
    price = FARES[city] * (3 if cabin.data == "business" else 1)
    sure = await ctx.elicit(f"Book for {price} euros?", bool)
    if not sure.data:
        return "not booked"
    return f"{traveller.data.name} flies to {city} with {traveller.data.bags} bags for {price} euros"


@server.tool
async def advertise(city: str, ctx: Context) -> str:
    """Let the client's model write a line."""
    answer = await ctx.sample(f"Praise {city} in a line.", max_tokens=60, system_prompt="You sell journeys.")
    return f"{city}: {answer.text}"


@server.tool
async def folders(ctx: Context) -> list[str]:
    """List the folders that the client works in."""
    return [str(root.uri) for root in await ctx.roots()]


@server.tool
async def staff_prices() -> dict[str, int]:
    """All fares; hidden from the list."""
    return FARES


if __name__ == "__main__":
    server.run()
