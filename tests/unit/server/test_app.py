"""The server around its functions: its description, lifespan, listeners, middleware, inclusion."""

import asyncio
import gc
import re
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from limpet import Context, McpError, Server, SessionView, ToolError
from limpet.core.lifecycle import SessionInput
from limpet.errors import ConfigError
from limpet.middleware import CallNext, MiddlewareRequest
from limpet.protocol.types import CallToolResult, Result
from limpet.server.running.method_handlers import MethodHandlers
from limpet.stores.memory import MemoryStore
from limpet.testing import NotingObserver
from limpet.types import Icon
from tests.support import BOUND, async_test, until
from tests.unit.server.peer import connect, connected, serving, settle


async def hello() -> str:
    return "hello"


@async_test
async def test_a_server_declares_the_capabilities_that_it_uses() -> None:
    bare = Server("bare")
    async with connected(bare) as peer:
        assert peer.initialized == {
            "protocolVersion": "2025-11-25",
            "capabilities": {"logging": {}},
            "serverInfo": {"name": "bare", "version": "0.0.0"},
        }
    full = Server(
        "full",
        version="2",
        title="Full",
        instructions="Ask nicely.",
        icons=[Icon(src="https://a.example/i.png")],
        website_url="https://a.example",
    )
    full.add_tool(hello)
    full.add_prompt(hello)
    full.add_resource("a://{x}", lambda x: x, name="x")
    async with connected(full) as peer:
        assert peer.initialized["capabilities"] == {
            "tools": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
            "prompts": {"listChanged": True},
            "logging": {},
        }
        assert peer.initialized["instructions"] == "Ask nicely."
        assert peer.initialized["serverInfo"] == {
            "name": "full",
            "version": "2",
            "title": "Full",
            "websiteUrl": "https://a.example",
            "icons": [{"src": "https://a.example/i.png"}],
        }


@async_test
async def test_ping_is_answered_and_an_unknown_method_is_not_found() -> None:
    async with connected(Server("s")) as peer:
        assert await peer.request("ping") == {}
        with pytest.raises(McpError) as raised:
            await peer.request("tools/dance")
        assert raised.value.code == -32601


def test_a_server_has_one_engine() -> None:
    server = Server("s")
    server.asgi()
    server.asgi("/other")
    assert server.engine is server.engine
    assert server.engine.runtime.back is server.back


def test_an_application_builds_nothing_before_it_is_used(tmp_path: Path) -> None:
    server = Server("s", store=f"sqlite:///{tmp_path}/store.db")
    server.asgi()
    assert not server.is_built
    assert list(tmp_path.iterdir()) == []


@async_test
async def test_a_store_object_serves_one_server_at_a_time() -> None:
    store = MemoryStore()
    one, two = Server("one", store=store), Server("two", store=store)
    async with aclosing(two.engine):
        await one.engine.ensure_started()
        with pytest.raises(ConfigError, match="already serves another server"):
            await two.engine.ensure_started()
        await one.engine.aclose()
        await two.engine.ensure_started()


def test_a_server_runs_on_transports_that_exist() -> None:
    with pytest.raises(ConfigError, match="not 'pigeon'"):
        Server("s").run("pigeon")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0 can be reached"):
        Server("s").run("http", host="0.0.0.0", port=0)
    with pytest.raises(ConfigError, match=r'write run\("http", \.\.\.\)'):
        Server("s").run(port=9000)
    with pytest.raises(ConfigError, match="these options are for HTTP"):
        Server("s").run(response="json")


def test_a_running_server_prints_its_url() -> None:
    program = "from limpet import Server; Server('s').run('http', port=0)"
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert re.fullmatch(r"s: serving http://127\.0\.0\.1:\d+/mcp\n", running.stderr.readline())
        running.terminate()


def test_a_resource_needs_its_uri() -> None:
    with pytest.raises(TypeError, match=r"write @server\.resource"):
        Server("s").resource(hello)  # type: ignore[arg-type]


# Lifespan


@async_test
async def test_the_lifespan_is_entered_once_and_its_value_is_in_the_context() -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def life(server: Server) -> AsyncIterator[dict[str, str]]:
        steps.append(f"enter {server.name}")
        # Cancel scopes must be left in the task that entered them.
        async with asyncio.timeout(BOUND):
            yield {"db": "open"}
        steps.append("leave")

    server = Server("s", lifespan=life)

    @server.tool
    async def use(ctx: Context) -> str:
        return str(ctx.lifespan["db"])

    async with serving(server):
        one, two = await connect(server), await connect(server)
        assert await one.text("use") == await two.text("use") == "open"
        assert steps == ["enter s"]
    assert steps == ["enter s", "leave"]
    assert server.lifespan_value is None


@async_test
async def test_a_lifespan_may_be_a_generator_without_parameters_and_its_failure_is_the_starts() -> None:
    async def life() -> AsyncIterator[int]:
        yield 7

    @asynccontextmanager
    async def broken() -> AsyncIterator[int]:
        for number in range(2):
            if number == 0:
                raise OSError("no database")
            yield number

    left: list[str] = []

    async def outer() -> AsyncIterator[int]:
        yield 1
        left.append("outer")

    server = Server("s", lifespan=life)
    async with serving(server):
        assert server.lifespan_value == 7
    for _ in range(2):
        host = Server("t", lifespan=outer)
        host.include(Server("u", lifespan=broken))
        with pytest.raises(OSError, match="no database"):
            await host.engine.ensure_started()
    assert left == ["outer", "outer"]


# Listeners


@async_test
async def test_listeners_are_called_for_sessions_and_their_failures_are_contained() -> None:
    notes = NotingObserver()
    server = Server("s", observer=notes)
    heard: list[tuple[str, ...]] = []

    @server.on_opened
    async def fails(_session: SessionView) -> None:
        raise ValueError("broken listener")

    @server.on_opened
    def opened(session: SessionView) -> None:
        heard.append(("opened", session.client_info.name))

    @server.on_detached
    async def detached(session: SessionView) -> None:
        heard.append(("detached", session.name))

    @server.on_reattached
    async def reattached(session: SessionView) -> None:
        heard.append(("reattached", session.name))

    @server.on_closed
    async def closed(session: SessionView, reason: str) -> None:
        heard.append(("closed", reason))

    @server.on_closed
    def closed_too(session: SessionView) -> None:
        heard.append(("closed", "too"))

    async with connected(server) as peer:
        await peer.session.listeners_called()
        assert heard == [("opened", "peer")]
        (facts,) = notes.named("listener.failed")
        assert isinstance(facts["error"], ValueError)
        await server.back.detached(peer.session)
        await server.back.reattached(peer.session)
        assert await server.engine.sessions.close(peer.session, SessionInput.DELETED)
        await peer.session.listeners_called()
        assert heard[1:] == [
            ("detached", peer.session.name),
            ("reattached", peer.session.name),
            ("closed", "deleted"),
            ("closed", "too"),
        ]


# Middleware


@async_test
async def test_middleware_surrounds_every_request_the_first_outermost() -> None:
    server = Server("s")
    seen: list[str] = []

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.middleware
    async def outer(request: MiddlewareRequest, call_next: CallNext) -> Result:
        seen.append(f"outer {request.method} {request.ctx.request_id}")
        result = await call_next(request)
        seen.append("outer done")
        return result

    @server.middleware
    async def inner(request: MiddlewareRequest, call_next: CallNext) -> Result:
        seen.append("inner")
        if request.method != "tools/call":
            return await call_next(request)
        arguments = {"text": request.params["arguments"]["text"].upper()}
        result = await call_next(replace(request, params={**request.params, "arguments": arguments}))
        assert isinstance(result, CallToolResult)
        return replace(result, meta={"seen": True})

    async with connected(server) as peer:
        result = await peer.call("echo", text="hi")
        assert result["content"][0]["text"] == "HI"
        assert result["_meta"] == {"seen": True}
        assert seen == ["outer tools/call 1", "inner", "outer done"]
        await peer.request("ping")
        assert seen[3:] == ["outer ping 2", "inner", "outer done"]


@async_test
async def test_middleware_may_refuse() -> None:
    server = Server("s")
    server.add_tool(hello)

    @server.middleware
    async def guard(request: MiddlewareRequest, call_next: CallNext) -> Result:
        if request.method == "tools/call":
            raise ToolError("not on Sundays")
        raise McpError(-32050, "closed")

    async with connected(server) as peer:
        assert await peer.failure("hello") == "not on Sundays"
        with pytest.raises(McpError) as raised:
            await peer.request("tools/list")
        assert raised.value.code == -32050


def test_without_middleware_no_wrapper_is_called() -> None:
    server = Server("s")
    assert all(
        isinstance(getattr(handler, "__self__", None), MethodHandlers)
        for handler in server.native.handlers.values()
    )


# Inclusion


def included() -> Server:
    @asynccontextmanager
    async def life() -> AsyncIterator[str]:
        yield "child's"

    child = Server("child", lifespan=life)

    @child.tool
    async def whose(ctx: Context) -> str:
        return f"{ctx.lifespan} in {ctx.server.name}"

    @child.prompt
    def say(word: str) -> str:
        return word

    child.add_resource("data://one/two", hello)
    child.add_resource("data://{x}", lambda x: x, name="x")
    child.add_resource("urn:thing", hello)

    @child.completion(prompt="say", argument="word")
    def words() -> list[str]:
        return ["hi"]

    return child


@async_test
async def test_an_included_server_answers_under_its_prefix() -> None:
    host, child = Server("host"), included()
    host.include(child, prefix="sub")
    async with connected(host) as peer:
        assert await peer.text("sub_whose") == "child's in host"
        result = await peer.request("prompts/get", {"name": "sub_say", "arguments": {"word": "w"}})
        assert result["messages"][0]["content"]["text"] == "w"
        listed = (await peer.request("resources/list"))["resources"]
        assert [item["uri"] for item in listed] == ["data://sub/one/two", "urn:sub/thing"]
        for uri, text in (("data://sub/one/two", "hello"), ("data://sub/y", "y"), ("urn:sub/thing", "hello")):
            (contents,) = (await peer.request("resources/read", {"uri": uri}))["contents"]
            assert (contents["uri"], contents["text"]) == (uri, text)
        params: dict[str, Any] = {
            "ref": {"type": "ref/prompt", "name": "sub_say"},
            "argument": {"name": "word", "value": ""},
        }
        completed = await peer.request("completion/complete", params)
        assert completed["completion"]["values"] == ["hi"]
        await peer.request("resources/subscribe", {"uri": "data://sub/y"})
        await child.resource_updated("data://y")
        assert await peer.wait_for("notifications/resources/updated") == [{"uri": "data://sub/y"}]


@async_test
async def test_an_inclusion_is_live() -> None:
    host, child = Server("host"), Server("child")
    host.add_tool(hello)
    child.add_tool(hello, name="early")
    host.include(child, prefix="c")
    async with connected(host) as peer:
        child.add_tool(hello, name="late", enabled=False)
        assert await peer.names("tools") == ["hello", "c_early"]
        child.enable_tool("late")
        child.remove_tool("early")
        await peer.wait_for("notifications/tools/list_changed")
        await settle()
        assert await peer.names("tools") == ["hello", "c_late"]


def test_an_inclusion_that_cannot_work_is_refused() -> None:
    host, child = Server("host"), Server("child")
    host.add_tool(hello)
    host.include(child)
    with pytest.raises(ConfigError, match="include itself"):
        child.include(host)
    with pytest.raises(ConfigError, match="include itself"):
        host.include(host)
    other = Server("other")
    other.add_tool(hello, name="free")
    other.add_prompt(hello)
    host.add_prompt(hello)
    with pytest.raises(ConfigError, match="registered already"):
        host.include(other)
    assert list(host.tools.entries) == ["hello"]


@async_test
async def test_an_engine_that_was_never_closed_is_freed_with_its_server() -> None:
    server = Server("dropped", store=MemoryStore())
    await server.engine.ensure_started()
    freed = weakref.ref(server.engine)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    del server, task

    def is_freed() -> bool:
        gc.collect()
        return freed() is None

    await until(is_freed)
