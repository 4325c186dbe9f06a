"""Session state: field operations that never lose a race."""

import asyncio
from typing import Any

import pytest

from limpet import Context, Server
from limpet.config import Limits, Settings
from limpet.errors import StateError
from limpet.server.context.state import MAX_TRIES
from tests.stores import ScriptedStore
from tests.support import async_test, virtual_test
from tests.unit.server.peer import connect, connected, serving


@async_test
async def test_fields_are_set_read_and_deleted() -> None:
    server = Server("s")

    @server.tool
    async def play(ctx: Context) -> str:
        state = ctx.state
        assert await state.get("a") is None
        assert await state.get("a", 5) == 5
        await state.set("a", {"x": [1, None, "y"]})
        assert await state.get("a") == {"x": [1, None, "y"]}
        assert await state.set_if_absent("a", 1) is False
        assert await state.set_if_absent("b", 1) is True
        await state.delete("a")
        await state.delete("a")
        assert await state.get("a", "gone") == "gone"
        assert await state.incr("b", 4) == 5
        assert await state.incr("fresh") == 1
        return "ok"

    async with connected(server) as peer:
        assert await peer.text("play") == "ok"


@async_test
async def test_a_thousand_concurrent_changes_are_a_thousand() -> None:
    server = Server("s")

    @server.tool
    async def bump(ctx: Context) -> int:
        return await ctx.state.incr("n")

    @server.tool
    async def push(ctx: Context, item: int) -> int:
        def add(items: list[int]) -> list[int]:
            return [*items, item]

        return len(await ctx.state.update("items", add, []))

    async with connected(server) as peer:
        await asyncio.gather(*(peer.call("bump") for _ in range(1000)))
        assert await peer.text("bump") == "1001"
        await asyncio.gather(*(peer.call("push", item=item) for item in range(100)))
        assert await peer.text("push", item=-1) == "101"


@async_test
async def test_an_update_gives_up_when_others_always_win() -> None:
    server = Server("s")
    tries = 0

    @server.tool
    async def fight(ctx: Context) -> str:
        async def change(value: Any) -> int:
            nonlocal tries
            tries += 1
            await ctx.state.set("field", tries)
            return 0

        with pytest.raises(StateError, match="'field': other calls changed it first"):
            await ctx.state.update("field", change)
        return str(await ctx.state.get("field"))

    async with connected(server) as peer:
        assert await peer.text("fight") == str(MAX_TRIES)


@async_test
async def test_state_is_the_sessions_own_and_bounded() -> None:
    server = Server("s", settings=Settings(limits=Limits(state_bytes=100)))

    @server.tool
    async def keep(ctx: Context, value: str) -> str:
        before = await ctx.state.get("v", "-")
        try:
            await ctx.state.set("v", value)
        except StateError:
            return "too much"
        return str(before)

    async with serving(server):
        one, two = await connect(server), await connect(server)
        assert await one.text("keep", value="one") == "-"
        assert await two.text("keep", value="two") == "-"
        assert await one.text("keep", value="x" * 200) == "too much"
        assert await one.text("keep", value="again") == "one"


STATE_CALLS = ("open_area", "find_area", "get_state", "set_state", "add_state")


def _keeper(store: ScriptedStore, limits: Limits) -> Server:
    server = Server("s", store=store, settings=Settings(limits=limits))

    @server.tool
    async def count(ctx: Context) -> int:
        return await ctx.state.incr("n")

    @server.tool
    async def everything(ctx: Context) -> list[Any]:
        handle = await ctx.new_handle()
        other = await ctx.state_for(handle)
        await other.set("a", 1)
        await ctx.state.update("list", lambda items: [*items, 1], [])
        return [await other.get("a"), await ctx.session.state.get("list"), await ctx.state.incr("n")]

    return server


@virtual_test
async def test_state_waits_for_the_store_as_long_as_messages_do() -> None:
    store = ScriptedStore(limits := Limits(store_seconds=20))
    async with connected(_keeper(store, limits)) as peer:
        store.fail(*STATE_CALLS, times=10)
        assert await peer.text("everything") == "[1,[1],1]"
        store.fail(*STATE_CALLS)
        loop = asyncio.get_running_loop()
        began = loop.time()
        failed = await peer.call("count")
        assert failed["isError"]
        assert 20 <= loop.time() - began <= 21
        store.recover()
        assert await peer.text("count") == "2"


@virtual_test
async def test_a_change_of_state_whose_reply_is_lost_is_made_once() -> None:
    store = ScriptedStore(limits := Limits(store_seconds=20))
    async with connected(_keeper(store, limits)) as peer:
        store.lose_replies(*STATE_CALLS)
        counting = asyncio.create_task(peer.text("count"))
        await asyncio.sleep(5)
        assert store.log.count("add_state") > 5
        store.recover()
        assert await counting == "1"
