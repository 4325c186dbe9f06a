"""`current_context()`: the context for code that does not get it as a parameter."""

import asyncio
import gc
from typing import Any

import pytest

from limpet import Context, Depends, Server, current_context
from limpet.middleware import CallNext, MiddlewareRequest
from limpet.types import Result
from tests.support import async_test
from tests.unit.server.peer import connected


def here() -> Any:
    """The request that this code runs in."""
    return current_context().request_id


@async_test
async def test_every_kind_of_function_has_it() -> None:
    server = Server("s")
    seen: list[tuple[str, Any]] = []

    @server.middleware
    async def around(request: MiddlewareRequest, call_next: CallNext) -> Result:
        result = await call_next(request)
        seen.append(("middleware", here() == request.ctx.request_id))
        return result

    def dependency() -> object:
        return here()

    @server.tool
    async def tool(made: object = Depends(dependency)) -> str:
        children = await asyncio.gather(
            asyncio.to_thread(here), asyncio.create_task(asyncio.sleep(0, here()))
        )
        seen.append(("tool", {here(), made, *children} == {current_context().request_id}))
        return "done"

    @server.tool
    def plain() -> str:
        seen.append(("plain", isinstance(here(), int)))
        return "done"

    @server.resource("data://{name}")
    async def resource(name: str) -> str:
        seen.append(("resource", isinstance(here(), int)))
        return name

    @server.prompt
    async def prompt() -> str:
        seen.append(("prompt", isinstance(here(), int)))
        return "done"

    @server.completion
    async def complete(value: str) -> list[str]:
        seen.append(("completion", isinstance(here(), int)))
        return [value]

    ref = {"type": "ref/prompt", "name": "prompt"}
    async with connected(server) as peer:
        await peer.call("tool")
        await peer.call("plain")
        await peer.request("resources/read", {"uri": "data://x"})
        await peer.request("prompts/get", {"name": "prompt"})
        await peer.request("completion/complete", {"ref": ref, "argument": {"name": "a", "value": "x"}})
    assert [name for name, _ in seen if name != "middleware"] == [
        "tool",
        "plain",
        "resource",
        "prompt",
        "completion",
    ]
    assert all(right for _, right in seen)


@async_test
async def test_concurrent_calls_have_their_own() -> None:
    server = Server("s")
    both = asyncio.Barrier(20)

    @server.tool
    async def which(ctx: Context) -> bool:
        await both.wait()
        return bool(ctx.request_id == here())

    async with connected(server) as peer:
        answers = await asyncio.gather(*(peer.call("which") for _ in range(20)))
    assert all(answer["structuredContent"]["result"] for answer in answers)


@async_test
async def test_a_function_of_an_included_server_has_its_own_lifespan() -> None:
    async def lifespan() -> Any:
        yield "inner's"

    inner, outer = Server("inner", lifespan=lifespan), Server("outer")
    outer.include(inner)

    @inner.tool
    async def value() -> str:
        return str(current_context().lifespan)

    async with connected(outer) as peer:
        assert (await peer.call("value"))["content"][0]["text"] == "inner's"


def test_without_a_running_function_it_says_so() -> None:
    with pytest.raises(RuntimeError, match="only while a tool"):
        current_context()


@async_test
async def test_a_call_leaves_no_reference_cycle_with_its_context() -> None:
    server = Server("s")

    @server.tool
    async def echo(text: str) -> str:
        return text

    async with connected(server) as peer:
        await peer.call("echo", text="warm")
        gc.collect()
        gc.disable()
        try:
            gc.set_debug(gc.DEBUG_SAVEALL)
            await peer.call("echo", text="hi")
            gc.collect()
            left = [type(found).__name__ for found in gc.garbage]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert not [name for name in left if "Exchange" in name]


@async_test
async def test_progress_increases_over_all_contexts_of_a_call() -> None:
    server = Server("s")

    @server.tool
    async def steps(ctx: Context) -> str:
        await ctx.progress(2)
        await current_context().progress(1)
        await current_context().report_progress(3, 3, "done")
        return "done"

    async with connected(server) as peer:
        await peer.request("tools/call", {"name": "steps", "_meta": {"progressToken": "t"}})
        found = [note["progress"] for note in peer.notified("notifications/progress")]
    assert found == [2, 3]
