"""Several servers at one address without prefixes: their lists decide who has a name."""

import asyncio

import pytest

from limpet import Server
from limpet.config import Limits, Settings
from limpet.errors import McpError
from limpet.testing import NotingObserver
from tests.backs.several.parts import ERAS, PATIENCE, Part, client_of, made_of, server_of
from tests.support import until, virtual_test_within

parts_test = virtual_test_within(600)


@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_each_name_leads_to_the_server_that_lists_it(era: str) -> None:
    parts = {"a": Part(server_of("a", "one", "both")), "b": Part(server_of("b", "two", "both"))}
    async with made_of(parts, prefixed=False) as server, client_of(server, era) as client:
        # Without a list before: the routes read it.
        assert (await client.call_tool("two")).text == "b.two"
        assert (await client.call_tool("both")).text == "a.both"
        assert [tool.name for tool in await client.list_tools()] == ["one", "both", "two"]
        assert (await client.read_resource("note://b"))[0].text == "the note of b"
        # These URIs are in no list: the servers are asked in their order.
        assert (await client.read_resource("b://bees"))[0].text == "b about bees"
        assert (await client.read_resource("a://ants"))[0].text == "a about ants"
        with pytest.raises(McpError):
            await client.read_resource("other://thing")
        with pytest.raises(McpError, match="Unknown tool"):
            await client.call_tool("three")


@parts_test
async def test_a_clash_is_won_by_the_first_server_and_reported_once_with_both_names() -> None:
    notes = NotingObserver()
    own = Server("all", observer=notes)
    parts = {"a": Part(server_of("a", "both")), "b": Part(server_of("b", "both"))}
    async with made_of(parts, own, prefixed=False) as server, client_of(server, "sessions") as client:
        for _ in range(2):
            assert [tool.name for tool in await client.list_tools(fresh=True)] == ["both"]
        assert [prompt.name for prompt in await client.list_prompts()] == ["ask"]
    assert notes.named("component.clash") == [
        {"tool": "both", "used": "a", "hidden": "b"},
        {"prompt": "ask", "used": "a", "hidden": "b"},
    ]


@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_a_name_that_the_first_server_gets_later_is_its_own_from_then_on(era: str) -> None:
    first = server_of("a")
    parts = {"a": Part(first), "b": Part(server_of("b", "both"))}
    async with made_of(parts, prefixed=False) as server, client_of(server, era) as client:
        assert (await client.call_tool("both")).text == "b.both"

        @first.tool("both")
        def both() -> str:
            return "a.both"

        async def is_first() -> bool:
            await client.list_tools(fresh=True)
            return (await client.call_tool("both")).text == "a.both"

        await until(is_first)


@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_functions_of_the_server_come_first(era: str) -> None:
    own = Server("all", observer=NotingObserver())

    @own.tool("one")
    def one() -> str:
        return "own"

    async with (
        made_of({"a": Part(server_of("a", "one", "two"))}, own, prefixed=False) as server,
        client_of(server, era) as client,
    ):
        assert (await client.call_tool("one")).text == "own"
        assert (await client.call_tool("two")).text == "a.two"
        assert [tool.name for tool in await client.list_tools()] == ["one", "two"]


@parts_test
async def test_a_part_that_is_down_leaves_its_names_to_the_others() -> None:
    parts = {"a": Part(server_of("a", "both")), "b": Part(server_of("b", "both"))}
    parts["a"].place.gate.is_down = True
    async with made_of(parts, prefixed=False) as server, client_of(server, "sessions") as client:
        assert (await client.call_tool("both")).text == "b.both"
        parts["a"].place.gate.is_down = False

        async def is_back() -> bool:
            await client.list_tools(fresh=True)
            return (await client.call_tool("both")).text == "a.both"

        await until(is_back)


@pytest.mark.parametrize("is_down", [True, False], ids=["down", "hangs"])
@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_a_resource_in_no_list_is_found_while_an_earlier_server_is_ill(
    era: str, *, is_down: bool
) -> None:
    parts = {"a": Part(server_of("a")), "b": Part(server_of("b"))}
    gate = parts["a"].place.gate
    gate.is_down = is_down
    if not is_down:
        gate.open.clear()
    async with made_of(parts, prefixed=False) as server, client_of(server, era) as client:
        assert (await client.read_resource("b://bees"))[0].text == "b about bees"
        if is_down:
            # It may be one of the server that is down.
            with pytest.raises(McpError, match="cannot be reached"):
                await client.read_resource("other://thing")
        gate.open.set()


@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_a_slow_resource_in_no_list_is_found_after_the_other_servers_were_asked(era: str) -> None:
    first = server_of("a")

    @first.resource("slow://{topic}")
    async def slow(topic: str) -> str:
        await asyncio.sleep(5 * PATIENCE)
        return topic

    parts = {"a": Part(first), "b": Part(server_of("b"))}
    async with made_of(parts, prefixed=False) as server, client_of(server, era) as client:
        assert (await client.read_resource("slow://thing"))[0].text == "thing"


def paged(name: str, *tools: str) -> Part:
    server = Server(name, settings=Settings(limits=Limits(page_size=2)))
    for tool in tools:
        server.add_tool(lambda: name, name=tool)
    return Part(server)


@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_a_name_is_in_one_page_only_and_that_of_the_first_server(era: str) -> None:
    parts = {"a": paged("a", "a1", "a2", "both"), "b": paged("b", "both", "b1", "b2")}
    async with made_of(parts, prefixed=False) as server, client_of(server, era) as client:
        assert [tool.name for tool in await client.list_tools()] == ["a1", "a2", "both", "b1", "b2"]
        assert (await client.call_tool("both")).text == "a"


@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_a_part_may_have_the_name_of_the_whole(era: str) -> None:
    own = Server("a", observer=NotingObserver())
    own.add_tool(lambda: "own", name="own")
    async with (
        made_of({"a": Part(server_of("a", "say"))}, own) as server,
        client_of(server, era) as client,
    ):
        assert [tool.name for tool in await client.list_tools()] == ["own", "a_say"]
