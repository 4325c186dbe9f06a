"""Lists of many pages, and servers that ask forever."""

from typing import Any

import pytest

from limpet import Client, Context, Limits, Server, Settings
from limpet.errors import TooManyRounds
from limpet.upstream.settings import ClientLimits
from tests.support import async_test

ERAS = ("sessions", "sessionless")


def many(count: int) -> Server:
    server = Server("many", settings=Settings(limits=Limits(page_size=3)))
    for number in range(count):

        def work(text: str = "") -> str:
            return text

        server.add_tool(work, name=f"tool-{number}")
        server.add_prompt(work, name=f"prompt-{number}")
        server.add_resource(f"many://{number}", work, name=f"resource-{number}")
    return server


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("count", [1, 3, 10])
@async_test
async def test_lists_of_many_pages_come_whole_in_order_and_once(era: str, count: int) -> None:
    async with Client(many(count), protocol_version=era) as client:
        wanted = [f"tool-{number}" for number in range(count)]
        assert [tool.name for tool in await client.list_tools()] == wanted
        assert [tool.name async for tool in client.tools(fresh=True)] == wanted
        assert [item.name for item in await client.list_prompts()] == [f"prompt-{n}" for n in range(count)]
        assert len({str(item.uri) for item in await client.list_resources()}) == count


@async_test
async def test_a_server_that_asks_forever_is_left_after_the_clients_bound() -> None:
    server = Server("asks")
    asked = 0

    @server.tool
    async def curious(ctx: Context) -> str:
        nonlocal asked
        while True:
            asked += 1
            await ctx.elicit("again?", {"type": "object", "properties": {}})

    async def on_elicit(_params: Any) -> dict[str, Any]:
        return {"action": "accept", "content": {}}

    limits = ClientLimits(rounds=4)
    async with Client(server, protocol_version="sessionless", elicitation=on_elicit, limits=limits) as client:
        with pytest.raises(TooManyRounds, match="more than 4 times"):
            await client.call_tool("curious")
    assert asked == 5
