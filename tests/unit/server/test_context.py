"""The context: its notifications, its asks, and its use from threads."""

import asyncio
import concurrent.futures
import threading
from typing import Any

import pytest
from pydantic import BaseModel, Field

from limpet import Context, McpError, Message, Principal, Server, SessionView
from limpet.asks import UrlElicitation
from limpet.content import TextContent
from limpet.errors import AskRefused, CapabilityMissing, UrlElicitationRequired
from limpet.types import SamplingMessage
from tests.support import BOUND, async_test, virtual_test
from tests.unit.server.peer import connect, connected, serving, settle

PROGRESS = "notifications/progress"
LOG = "notifications/message"


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": {"type": "text", "text": text}, "model": "m"}


@async_test
async def test_progress_carries_the_callers_token_and_only_increases() -> None:
    server = Server("s")

    @server.tool
    async def work(ctx: Context) -> str:
        for done in (0, 1, 1, 0.5, 2):
            await ctx.progress(done, 2, "working")
        return "done"

    async with connected(server) as peer:
        await peer.request("tools/call", {"name": "work", "_meta": {"progressToken": "t"}})
        told = peer.notified(PROGRESS)
        assert [item["progress"] for item in told] == [0, 1, 2]
        assert told[0] == {"progressToken": "t", "progress": 0, "total": 2, "message": "working"}


@async_test
async def test_without_a_progress_token_no_progress_is_sent() -> None:
    server = Server("s")

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.progress(1)
        return "done"

    async with connected(server) as peer:
        await peer.call("work")
        await peer.request("tools/call", {"name": "work", "_meta": {"progressToken": True}})
        assert peer.heard == []


@async_test
async def test_log_messages_below_the_sessions_level_are_left_out() -> None:
    server = Server("s")

    @server.tool
    async def talk(ctx: Context) -> str:
        await ctx.debug("d")
        await ctx.info({"a": 1}, logger="mine")
        await ctx.warning("w")
        await ctx.error("e")
        await ctx.log("emergency", None)
        return "done"

    async with connected(server) as peer:
        await peer.call("talk")
        assert [item["level"] for item in peer.notified(LOG)] == ["info", "warning", "error", "emergency"]
        assert peer.notified(LOG)[0] == {"level": "info", "data": {"a": 1}, "logger": "mine"}
        peer.heard.clear()
        await peer.request("logging/setLevel", {"level": "error"})
        await peer.call("talk")
        assert [item["level"] for item in peer.notified(LOG)] == ["error", "emergency"]
        peer.heard.clear()
        await peer.request("logging/setLevel", {"level": "debug"})
        await peer.call("talk")
        assert len(peer.notified(LOG)) == 5
        with pytest.raises(McpError) as raised:
            await peer.request("logging/setLevel", {"level": "loud"})
        assert raised.value.code == -32602


@async_test
async def test_sampling_sends_what_was_asked_and_returns_the_typed_answer() -> None:
    server = Server("s")

    async def weather(city: str) -> str:
        """Look outside."""
        return city

    @server.tool
    async def think(ctx: Context) -> str:
        result = await ctx.sample(
            [
                "hello",
                Message("hi", "assistant"),
                SamplingMessage(role="user", content=TextContent(text="so?")),
            ],
            max_tokens=7,
            system_prompt="be brief",
            temperature=0.5,
            stop_sequences=["."],
            model_preferences="small",
            tools=[weather],
            tool_choice="auto",
            metadata={"k": "v"},
        )
        return result.text

    async with connected(server, capabilities={"sampling": {"tools": {}}}) as peer:
        peer.answers["sampling/createMessage"] = lambda _: said("42")
        assert await peer.text("think") == "42"
        params = peer.asked[0]["params"]
        assert [item["role"] for item in params["messages"]] == ["user", "assistant", "user"]
        assert params["maxTokens"] == 7
        assert params["modelPreferences"] == {"hints": [{"name": "small"}]}
        assert params["tools"][0]["name"] == "weather"
        assert params["toolChoice"] == {"mode": "auto"}


@async_test
async def test_asks_need_the_clients_capability() -> None:
    server = Server("s")
    missing: list[str] = []

    @server.tool
    async def try_all(ctx: Context) -> str:
        for ask in (
            ctx.sample("x"),
            ctx.sample("x", tools=[]),
            ctx.sample("x", include_context="allServers"),
            ctx.elicit("x", {"type": "object", "properties": {}}),
            ctx.elicit_url("x", "https://a.example"),
            ctx.roots(),
        ):
            try:
                await ask
            except CapabilityMissing as error:
                missing.append(str(error))
        return "tried"

    @server.tool
    async def careless(ctx: Context) -> str:
        return (await ctx.sample("x")).text

    async with serving(server):
        peer = await connect(server)
        await peer.call("try_all")
        assert len(missing) == 6
        assert "`sampling`" in await peer.failure("careless")
        missing.clear()
        able = await connect(server, capabilities={"sampling": {}, "roots": {}, "elicitation": {"url": {}}})
        able.answers["sampling/createMessage"] = lambda _: said("x")
        able.answers["roots/list"] = lambda _: {"roots": []}
        able.answers["elicitation/create"] = lambda _: {"action": "decline"}
        await able.call("try_all")
        assert [text.split(": it did not")[0] for text in missing] == [
            "the client cannot sample with tools",
            "the client cannot include context",
            "the client cannot show forms",
        ]


@async_test
async def test_a_clients_refusal_and_its_nonsense_are_errors_that_say_so() -> None:
    server = Server("s")
    caught: list[Exception] = []

    @server.tool
    async def think(ctx: Context) -> str:
        try:
            await ctx.sample("x")
        except AskRefused as error:
            caught.append(error)
            raise
        return ""

    def refuse(_: dict[str, Any]) -> dict[str, Any]:
        raise McpError(-1, "user said no")

    async with connected(server, capabilities={"sampling": {}}) as peer:
        peer.answers["sampling/createMessage"] = refuse
        assert "user said no" in await peer.failure("think")
        assert len(caught) == 1
        peer.answers["sampling/createMessage"] = lambda _: {"role": "unknown"}
        assert "malformed" in await peer.failure("think")


class Booking(BaseModel):
    name: str = Field(description="Who comes", min_length=1)
    guests: int = Field(default=2, ge=1, le=9)


@async_test
async def test_a_form_is_filled_in_and_read_back_as_its_model() -> None:
    server = Server("s")
    got: list[Any] = []

    @server.tool
    async def book(ctx: Context) -> str:
        elicited = await ctx.elicit("Book a table", Booking)
        got.append(elicited.data)
        return elicited.action

    async with connected(server, capabilities={"elicitation": {}}) as peer:
        peer.answers["elicitation/create"] = lambda _: {"action": "accept", "content": {"name": "Ada"}}
        assert await peer.text("book") == "accept"
        assert got == [Booking(name="Ada", guests=2)]
        schema = peer.asked[0]["params"]["requestedSchema"]
        assert schema["required"] == ["name"]
        assert schema["properties"]["guests"]["default"] == 2
        peer.answers["elicitation/create"] = lambda _: {"action": "decline"}
        assert await peer.text("book") == "decline"
        assert got[1] is None
        peer.answers["elicitation/create"] = lambda _: {"action": "accept", "content": {"guests": 99}}
        assert "does not fit the form" in await peer.failure("book")


@async_test
async def test_url_elicitation_names_itself_and_is_completed_later() -> None:
    server = Server("s")

    @server.tool
    async def pay(ctx: Context) -> str:
        elicited = await ctx.elicit_url("Pay", "https://pay.example", elicitation_id="e1")
        await ctx.session.elicitation_complete(elicited.elicitation_id)
        return elicited.action

    @server.tool
    async def blocked() -> str:
        raise UrlElicitationRequired(
            UrlElicitation(message="Log in", url="https://login.example", elicitation_id="e2")
        )

    async with connected(server, capabilities={"elicitation": {"url": {}}}) as peer:
        peer.answers["elicitation/create"] = lambda _: {"action": "accept"}
        assert await peer.text("pay") == "accept"
        assert peer.asked[0]["params"]["mode"] == "url"
        assert await peer.wait_for("notifications/elicitation/complete") == [{"elicitationId": "e1"}]
        with pytest.raises(McpError) as raised:
            await peer.call("blocked")
        assert raised.value.code == -32042
        assert raised.value.data == {
            "elicitations": [
                {"mode": "url", "message": "Log in", "url": "https://login.example", "elicitationId": "e2"}
            ]
        }


@async_test
async def test_roots_are_listed_and_a_change_of_them_is_noticed() -> None:
    server = Server("s")
    changed: asyncio.Queue[SessionView] = asyncio.Queue()

    @server.on_roots_changed
    async def note(session: SessionView) -> None:
        await changed.put(session)

    @server.tool
    async def where(ctx: Context) -> str:
        return ",".join(root.uri for root in await ctx.roots())

    async with connected(server, capabilities={"roots": {}}) as peer:
        peer.answers["roots/list"] = lambda _: {"roots": [{"uri": "file:///a"}, {"uri": "file:///b"}]}
        assert await peer.text("where") == "file:///a,file:///b"
        await peer.notify("notifications/roots/list_changed")
        assert (await changed.get()).client_info.name == "peer"


@async_test
async def test_the_context_has_the_principal_client_and_session() -> None:
    server = Server("s")
    seen: dict[str, Any] = {}

    @server.tool
    async def look(ctx: Context) -> str:
        seen.update(
            principal=ctx.principal,
            headers=dict(ctx.headers),
            id=ctx.request_id,
            meta=ctx.meta,
            client=ctx.session.client_info.version,
            version=ctx.session.protocol_version,
            samples=ctx.session.capabilities.sampling,
            server=ctx.server,
            lifespan=ctx.lifespan,
        )
        return ctx.session.name

    ada = Principal(subject="ada")
    async with connected(server, principal=ada, headers={"x-a": "1"}, capabilities={"sampling": {}}) as peer:
        name = await peer.text("look")
        assert name == peer.session.record.key[:8]
        assert seen == {
            "principal": ada,
            "headers": {"x-a": "1"},
            "id": 1,
            "meta": {},
            "client": "1",
            "version": "2025-11-25",
            "samples": {},
            "server": server,
            "lifespan": None,
        }


@async_test
async def test_session_notifications_go_to_the_standalone_stream() -> None:
    server = Server("s")

    @server.tool
    async def spread(ctx: Context) -> str:
        await ctx.session.log("info", "outside")
        await ctx.session.log("debug", "too quiet")
        await ctx.session.notify("notifications/tools/list_changed")
        return "ok"

    async with connected(server) as peer:
        await peer.call("spread")
        assert [item["method"].removeprefix("notifications/") for item in peer.heard] == [
            "message",
            "tools/list_changed",
        ]


@async_test
async def test_plain_functions_use_the_context_from_their_thread() -> None:
    server = Server("s")

    @server.tool
    def work(ctx: Context) -> str:
        assert threading.current_thread() is not threading.main_thread()
        ctx.sync.progress(1)
        ctx.sync.info("from a thread")
        ctx.sync.session.log("info", "outside")
        count = ctx.sync.state.incr("n")
        return f"{count} {ctx.sync.sample('x').text}"

    async with connected(server, capabilities={"sampling": {}}) as peer:
        peer.answers["sampling/createMessage"] = lambda _: said("y")
        params = {"name": "work", "_meta": {"progressToken": 1}}
        result = await peer.request("tools/call", params)
        assert result["content"][0]["text"] == "1 y"
        assert [item["method"] for item in peer.heard] == [PROGRESS, LOG, LOG]


@async_test
async def test_the_blocking_view_refuses_to_block_the_event_loop() -> None:
    server = Server("s")

    @server.tool
    async def wrong(ctx: Context) -> str:
        with pytest.raises(RuntimeError, match="await the method of ctx"):
            ctx.sync.progress(1)
        return "refused"

    async with connected(server) as peer:
        assert await peer.text("wrong") == "refused"


@async_test
async def test_a_cancelled_plain_function_sees_its_cancellation() -> None:
    server = Server("s")
    running, noticed = threading.Event(), threading.Event()

    @server.tool
    def spin(ctx: Context) -> str:
        running.set()
        while not ctx.cancelled:
            threading.Event().wait(0.001)
        noticed.set()
        return "dropped"

    async with connected(server) as peer:
        call = asyncio.ensure_future(peer.call("spin"))
        await asyncio.to_thread(running.wait)
        await peer.notify("notifications/cancelled", {"requestId": 1})
        with pytest.raises(McpError) as raised:
            await call
        assert raised.value.code == -32800
        assert await asyncio.to_thread(noticed.wait, BOUND)


@async_test
async def test_a_plain_function_that_waits_for_the_client_is_released_when_its_call_is_cancelled() -> None:
    server = Server("s")
    asked, ended = threading.Event(), threading.Event()

    @server.tool
    def ask(ctx: Context) -> str:
        try:
            asked.set()
            ctx.sync.sample("never answered")
        except concurrent.futures.CancelledError:
            pass
        with pytest.raises(concurrent.futures.CancelledError):
            ctx.sync.info("late")
        ended.set()
        return "dropped"

    async with connected(server, capabilities={"sampling": {}}) as peer:
        peer.answers.clear()
        call = asyncio.ensure_future(peer.call("ask"))
        await asyncio.to_thread(asked.wait)
        await peer.notify("notifications/cancelled", {"requestId": 1})
        with pytest.raises(McpError):
            await call
        assert await asyncio.to_thread(ended.wait, BOUND)


@virtual_test
async def test_messages_of_a_handler_after_its_end_are_dropped() -> None:
    server = Server("s")
    late: list[asyncio.Task[None]] = []

    @server.tool
    async def leaves_work(ctx: Context) -> str:
        async def later() -> None:
            await asyncio.sleep(1)
            await ctx.progress(1)
            await ctx.info("late")

        late.append(asyncio.ensure_future(later()))
        return "done"

    async with connected(server) as peer:
        await peer.request("tools/call", {"name": "leaves_work", "_meta": {"progressToken": 1}})
        await late[0]
        await settle()
        assert peer.heard == []
