"""`Client(server)`: a client in the server's own process. Every message is encoded and decoded as on a socket."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from limpet import Client, Context, Limits, Principal, Server, Settings
from limpet.client.in_process import InProcessDuplex
from limpet.engine.caller import Caller
from limpet.errors import ClientError, ConfigError, LimpetError, McpError, ToolError
from limpet.protocol.types import CreateMessageParams
from tests.support import async_test, virtual_test

BOTH: Final = pytest.mark.parametrize("version", ["sessions", "sessionless"])


def make() -> Server:
    server = Server("made")
    server.tool(echo)
    server.tool(fanout)
    server.tool(forever)
    server.tool(count)
    return server


async def echo(text: str) -> str:
    return text


async def forever() -> None:
    await asyncio.Event().wait()


async def fanout(n: int, ctx: Context) -> str:
    answers = await asyncio.gather(*(ctx.sample(str(i), max_tokens=5) for i in range(n)))
    return ",".join(answer.content.text for answer in answers)  # type: ignore[union-attr]


async def count(ctx: Context) -> str:
    for i in range(3):
        await ctx.progress(i, 3)
    return "counted"


def asked_text(asked: CreateMessageParams) -> str:
    """Return the text of a sampling request."""
    content: Any = asked.messages[0].content
    text: str = content.text
    return text


class Notifications:
    """Collects a client's notifications, in order; a test waits for as many as it expects."""

    def __init__(self) -> None:
        self._by_method: dict[str, list[Any]] = defaultdict(list)
        self._arrived = asyncio.Event()

    def __call__(self, method: str, params: dict[str, Any]) -> None:
        self._by_method[method].append(params)
        self._arrived.set()

    @property
    def count(self) -> int:
        return sum(map(len, self._by_method.values()))

    async def wait_for(self, method: str, count: int = 1) -> list[Any]:
        """Return the params of a method's notifications once there are `count` of them."""
        while len(self._by_method[method]) < count:
            self._arrived.clear()
            await self._arrived.wait()
        return self._by_method[method]


@BOTH
@async_test
async def test_a_call_returns_its_result_and_many_calls_run_at_once(version: str) -> None:
    async with Client(make(), protocol_version=version) as client:
        assert client.agreed.server["name"] == "made"
        calls = [client.call_tool("echo", {"text": str(i)}) for i in range(100)]
        assert [result.data for result in await asyncio.gather(*calls)] == [str(i) for i in range(100)]


@BOTH
@async_test
async def test_an_error_answer_is_raised_with_its_code(version: str) -> None:
    async with Client(make(), protocol_version=version) as client:
        with pytest.raises(McpError, match="nothing/such") as caught:
            await client.request("nothing/such")
        assert caught.value.code == -32601


@BOTH
@async_test
async def test_the_clients_handler_answers_twenty_requests_at_once(version: str) -> None:
    peak, running, all_in = 0, 0, asyncio.Event()

    async def sample(asked: CreateMessageParams) -> str:
        nonlocal peak, running
        running += 1
        peak = max(peak, running)
        if running == 20:
            all_in.set()
        await all_in.wait()
        running -= 1
        return asked_text(asked)

    async with Client(make(), protocol_version=version, sampling=sample) as client:
        result = await client.call_tool("fanout", {"n": 20})
    assert result.data == ",".join(map(str, range(20)))
    assert peak == 20


@async_test
async def test_an_error_of_the_clients_handler_reaches_the_tool() -> None:
    def refuse(asked: CreateMessageParams) -> str:
        raise McpError(-1, "the user said no")

    async with Client(make(), protocol_version="sessions", sampling=refuse) as client:
        with pytest.raises(ToolError, match="the user said no"):
            await client.call_tool("fanout", {"n": 1})


@BOTH
@async_test
async def test_progress_arrives_in_order_and_before_the_result(version: str) -> None:
    seen: list[float] = []

    def progress(value: float, total: float | None, message: str | None) -> None:
        seen.append(value)

    async with Client(make(), protocol_version=version) as client:
        assert (await client.call_tool("count", progress=progress)).data == "counted"
    assert seen == [0, 1, 2]


@BOTH
@async_test
async def test_cancelling_a_call_cancels_its_tool(version: str) -> None:
    server = Server("made")
    began, ended = asyncio.Event(), asyncio.Event()

    @server.tool
    async def hold() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with Client(server, protocol_version=version) as client:
        call = asyncio.ensure_future(client.call_tool("hold"))
        await began.wait()
        call.cancel()
        await ended.wait()


@BOTH
@virtual_test
async def test_closing_the_client_ends_its_calls_and_refuses_new_ones(version: str) -> None:
    client = await Client(make(), protocol_version=version).__aenter__()
    call = asyncio.ensure_future(client.call_tool("forever"))
    await asyncio.sleep(1)
    await client.aclose()
    with pytest.raises(LimpetError, match="closed"):
        await call
    with pytest.raises(LimpetError, match="closed"):
        await client.call_tool("echo", {"text": "x"})


@async_test
async def test_without_a_session_a_tool_asks_in_rounds_and_its_body_runs_once() -> None:
    runs: list[str] = []
    server = make()

    @server.tool
    async def twice(ctx: Context) -> str:
        runs.append("begun")
        first = await ctx.sample("one", max_tokens=5)
        answers = await asyncio.gather(*(ctx.sample(str(i), max_tokens=5) for i in range(5)))
        return ",".join(answer.content.text for answer in (first, *answers))  # type: ignore[union-attr]

    async with Client(server, protocol_version="sessionless", sampling=asked_text) as client:
        assert client.agreed.version == "2026-07-28"
        result = await client.call_tool("twice")
    assert result.data == "one,0,1,2,3,4"
    assert runs == ["begun"]


@async_test
async def test_clients_of_both_eras_receive_the_same_change() -> None:
    server = make()
    server.resource("note://1", name="note")(lambda: "text")
    with_session, without_session = Notifications(), Notifications()
    async with (
        Client(server, protocol_version="sessions", on_notification=with_session) as session,
        Client(server, protocol_version="sessionless", on_notification=without_session) as sessionless,
    ):
        await session.request("resources/subscribe", {"uri": "note://1"})
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["note://1", "note://2"]}
        params = {"notifications": wanted}
        listening = asyncio.ensure_future(sessionless.request("subscriptions/listen", params))
        (acknowledged,) = await without_session.wait_for("notifications/subscriptions/acknowledged")
        assert acknowledged["notifications"] == {**wanted, "resourceSubscriptions": ["note://1"]}
        await server.resource_updated("note://1")
        server.remove_tool("count")
        server.notify_prompts_changed()
        for received in (with_session, without_session):
            assert len(await received.wait_for("notifications/resources/updated")) == 1
            assert len(await received.wait_for("notifications/tools/list_changed")) == 1
        await with_session.wait_for("notifications/prompts/list_changed")
        assert without_session.count == 3, "no notification that the client did not ask for"
        listening.cancel()
        await asyncio.wait({listening})
        server.notify_tools_changed()
        await with_session.wait_for("notifications/tools/list_changed", 2)
        assert without_session.count == 3, "no notification after the subscription was cancelled"


@async_test
async def test_a_subscription_leaves_out_resources_that_are_hidden_from_the_client() -> None:
    server = make()
    server.resource("note://{n}", name="notes")(lambda n: n)
    server.resource("secret://1", name="secret", enabled=False)(lambda: "text")
    received = Notifications()
    async with Client(server, protocol_version="sessionless", on_notification=received) as client:
        params = {"notifications": {"resourceSubscriptions": ["note://5", "secret://1"]}}
        listening = asyncio.ensure_future(client.request("subscriptions/listen", params))
        (acknowledged,) = await received.wait_for("notifications/subscriptions/acknowledged")
        assert acknowledged["notifications"] == {"resourceSubscriptions": ["note://5"]}
        await server.engine.aclose()
        assert (await listening)["resultType"] == "complete"


@BOTH
@async_test
async def test_a_client_calls_as_a_principal_with_its_scopes_and_headers(version: str) -> None:
    server = Server("users", state="principal")

    @server.tool
    async def who(ctx: Context) -> str:
        assert isinstance(ctx.principal, Principal)
        return f"{ctx.principal.subject} {ctx.headers.get('x-tenant')} {await ctx.state.incr('calls')}"

    @server.tool(scopes={"write"})
    async def write() -> str:
        return "written"

    async def call(principal: Principal, tool: str) -> str:
        headers = {"X-Tenant": "shop"}
        async with Client(server, protocol_version=version, principal=principal, headers=headers) as client:
            return (await client.call_tool(tool)).text

    async with Client(server):  # keeps the server running
        ada, alan = Principal(subject="ada"), Principal(subject="alan", scopes=frozenset({"write"}))
        assert [await call(user, "who") for user in (ada, ada, alan)] == [
            "ada shop 1",
            "ada shop 2",
            "alan shop 1",
        ]
        assert await call(alan, "write") == "written"
        with pytest.raises(LimpetError):
            await call(ada, "write")


def test_credentials_that_a_target_would_ignore_are_refused() -> None:
    with pytest.raises(ConfigError, match="pass principal="):
        Client(make(), auth="token")
    with pytest.raises(ConfigError, match="in this process"):
        Client("http://127.0.0.1:8000/mcp", principal=Principal(subject="ada"))


@async_test
async def test_a_subscription_that_the_server_refuses_fails_its_own_listener_and_may_be_tried_again() -> None:
    server = Server("small", settings=Settings(limits=Limits(subscriptions=1)))
    server.resource("memo://{name}", name="memo")(lambda name: name)
    async with Client(server, protocol_version="sessions") as client:
        async with client.listen(resources=["memo://one"]):
            listeners = [client.listen(resources=["memo://two"]) for _ in range(2)]
            for failed in await asyncio.gather(*(one.start() for one in listeners), return_exceptions=True):
                assert isinstance(failed, McpError)
        for one in listeners:
            await one.start()
        await server.resource_updated("memo://two")
        assert [(await anext(one)).uri for one in listeners] == ["memo://two"] * 2
        for one in listeners:
            await one.aclose()
        assert not client._listeners
        assert not client._subscribed


@BOTH
@async_test
async def test_listening_ends_with_the_client(version: str) -> None:
    client = Client(make(), protocol_version=version)
    async with client:
        changes = client.listen(tools=True)
        await changes.start()
    with pytest.raises(ClientError, match="the client is closed"):
        await anext(changes)
    assert changes._keeping is not None
    await asyncio.wait({changes._keeping})


@virtual_test
async def test_a_duplex_that_begins_while_the_last_one_stops_the_server_starts_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopping, may_stop = asyncio.Event(), asyncio.Event()

    server = make()
    drain = server.engine.drain

    async def drain_slowly(*, answerable: bool) -> None:
        stopping.set()
        await may_stop.wait()
        await drain(answerable=answerable)

    monkeypatch.setattr(server.engine, "drain", drain_slowly)

    async def leave() -> None:
        async with Client(server):
            pass

    leaving = asyncio.create_task(leave())
    await stopping.wait()
    duplex = InProcessDuplex(server.engine, Caller(""))
    starting = asyncio.create_task(duplex.start())
    await asyncio.sleep(1)
    assert not starting.done()
    may_stop.set()
    await asyncio.gather(leaving, starting)
    assert server.engine.started
    await duplex.aclose()
    assert not server.engine.started


@virtual_test
async def test_a_client_in_the_end_of_a_lifespan_is_served() -> None:
    """The stop waits for the lifespan: the client in it cannot wait for the stop."""
    said: list[Any] = []

    @asynccontextmanager
    async def life(server: Server) -> AsyncIterator[None]:
        yield
        async with asyncio.timeout(60), Client(server) as client:
            said.append((await client.call_tool("echo", {"text": "last"})).data)

    server = Server("made", lifespan=life)
    server.tool(echo)
    async with Client(server):
        pass
    assert said == ["last"]


@async_test
async def test_a_start_that_fails_does_not_count() -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def life(_: Server) -> AsyncIterator[None]:
        steps.append("enter")
        if len(steps) == 1:
            raise RuntimeError("not yet")
        yield
        steps.append("leave")

    server = Server("made", lifespan=life)
    with pytest.raises(Exception, match="not yet"):
        async with Client(server):
            raise AssertionError("it was served")
    async with Client(server):
        pass
    assert steps == ["enter", "enter", "leave"]
    assert not server.engine.started
