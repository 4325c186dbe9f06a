"""Several servers at one address, one of which is down, slow, or never answers."""

import asyncio

import pytest

from limpet.errors import McpError
from limpet.protocol.types import Result, Tool
from limpet.server.authoring.middleware import CallNext, MiddlewareRequest
from tests.backs.several.parts import ERAS, PATIENCE, Part, client_of, made_of, server_of
from tests.support import VirtualLoop, until, virtual_test_within

parts_test = virtual_test_within(3_000)


def names(tools: list[Tool]) -> list[str]:
    return [tool.name for tool in tools]


@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_a_part_that_is_down_hides_its_own_components_only(era: str) -> None:
    parts = {"a": Part(server_of("a", "one")), "b": Part(server_of("b", "two"))}
    parts["a"].place.gate.is_down = True
    async with made_of(parts, prefixed=False) as server, client_of(server, era) as client:
        assert names(await client.list_tools()) == ["two"]
        assert [one.uri for one in await client.list_resources()] == ["note://b"]
        assert (await client.call_tool("two")).text == "b.two"
        with pytest.raises(McpError):
            await client.call_tool("one")
        parts["a"].place.gate.is_down = False
        assert names(await client.list_tools(fresh=True)) == ["one", "two"]
        assert (await client.call_tool("one")).text == "a.one"


@parts_test
async def test_a_session_gets_a_part_that_comes_back_and_its_client_receives_list_changed() -> None:
    parts = {"a": Part(server_of("a", "one")), "b": Part(server_of("b", "two"))}
    parts["a"].place.gate.is_down = True
    heard: list[str] = []

    async def on_notification(method: str, _params: object) -> None:
        heard.append(method)

    async with (
        made_of(parts, prefixed=False) as server,
        client_of(server, "sessions", on_notification=on_notification) as client,
    ):
        assert names(await client.list_tools()) == ["two"]
        parts["a"].place.gate.is_down = False
        await until(lambda: "notifications/tools/list_changed" in heard, 600)
        attempts = parts["a"].place.gate.attempts
        assert names(await client.list_tools(fresh=True)) == ["one", "two"]
        assert parts["a"].place.gate.attempts == attempts, "it was connected before the client asked"


@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_a_part_that_never_answers_delays_the_others_once_and_for_a_short_time(era: str) -> None:
    now = asyncio.get_running_loop().time
    parts = {"a": Part(server_of("a", "one")), "b": Part(server_of("b", "two"))}
    parts["a"].place.gate.open.clear()
    async with made_of(parts, prefixed=False) as server:
        began = now()
        async with client_of(server, era) as client:
            assert names(await client.list_tools()) == ["two"]
            assert now() - began <= PATIENCE + 0.5
            began = now()
            for _ in range(5):
                assert names(await client.list_tools(fresh=True)) == ["two"]
                assert (await client.call_tool("two")).text == "b.two"
            assert now() - began < 0.5, "a late part is not waited for again"
            async with client_of(server, era) as other:
                assert names(await other.list_tools()) == ["two"]
            assert now() - began < 0.5


@parts_test
async def test_a_part_that_is_slow_to_start_appears_when_it_has_started() -> None:
    parts = {"a": Part(server_of("a", "one")), "b": Part(server_of("b", "two"))}
    gate = parts["a"].place.gate
    gate.open.clear()
    heard: list[str] = []

    async def on_notification(method: str, _params: object) -> None:
        heard.append(method)

    async with (
        made_of(parts, prefixed=False) as server,
        client_of(server, "sessions", on_notification=on_notification) as client,
    ):
        assert "prompts" in client.agreed.capabilities, "a part that has not answered may have everything"
        assert names(await client.list_tools()) == ["two"]
        assert not heard
        gate.open.set()
        await until(lambda: "notifications/tools/list_changed" in heard)
        assert names(await client.list_tools(fresh=True)) == ["one", "two"]
        assert gate.attempts == 1, "the start that was late has been used"


@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_a_part_whose_lists_always_take_long_is_seen_and_no_client_asks_in_circles(era: str) -> None:
    slow = server_of("a", "one")
    asked = 0

    @slow.middleware
    async def wait(request: MiddlewareRequest, call_next: CallNext) -> Result:
        nonlocal asked
        if request.method == "tools/list":
            asked += 1
            await asyncio.sleep(3 * PATIENCE)
        return await call_next(request)

    parts = {"a": Part(slow), "b": Part(server_of("b", "two"))}
    heard: list[str] = []

    async def on_notification(method: str, _params: object) -> None:
        heard.append(method)

    async with (
        made_of(parts, prefixed=False) as server,
        client_of(server, era, on_notification=on_notification) as client,
    ):
        changes = client.listen(tools=True) if era == "sessionless" else None
        if changes is not None:
            await changes.__aenter__()
        assert names(await client.list_tools()) == ["two"]
        await until(lambda: "notifications/tools/list_changed" in heard)
        assert names(await client.list_tools(fresh=True)) == ["one", "two"]
        assert asked == 1
        if changes is not None:
            await changes.__aexit__(None, None, None)


@parts_test
async def test_a_client_that_gives_up_leaves_no_connection() -> None:
    parts = {"a": Part(server_of("a", "one")), "b": Part(server_of("b", "two"))}
    parts["a"].place.gate.open.clear()
    async with made_of(parts, prefixed=False) as server:
        client = client_of(server, "sessions")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(PATIENCE / 2):
                await client.__aenter__()
        parts["a"].place.gate.open.set()
        await until(lambda: parts["b"].place.living == 0 and parts["a"].place.living == 0)


@parts_test
async def test_a_session_that_closes_ends_the_attempts_for_it() -> None:
    parts = {"a": Part(server_of("a", "one"))}
    parts["a"].place.gate.is_down = True
    async with made_of(parts, prefixed=False) as server:
        async with client_of(server, "sessions") as client:
            assert names(await client.list_tools()) == []
        await asyncio.sleep(1)
        attempts = parts["a"].place.gate.attempts
        await asyncio.sleep(600)
        assert parts["a"].place.gate.attempts == attempts


@parts_test
async def test_the_time_in_which_our_own_loop_is_blocked_does_not_make_a_part_late() -> None:
    blocking = server_of("a", "one")
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)

    @blocking.middleware
    async def block(request: MiddlewareRequest, call_next: CallNext) -> Result:
        if request.method == "tools/list":
            loop.idle(3 * PATIENCE)  # As a module that is imported by the first request would.
        return await call_next(request)

    parts = {"a": Part(blocking), "b": Part(server_of("b", "two"))}
    async with made_of(parts, prefixed=False) as server, client_of(server, "sessions") as client:
        assert names(await client.list_tools()) == ["one", "two"]
