"""Traps of identity and routing (docs/traps.md, 1 to 13) that the tests of tests/http do not cover."""

import asyncio
import contextlib

import msgspec

from limpet.config import HttpSettings, Settings
from limpet.fronts.http import HttpFront
from limpet.fronts.http.read.request import Receive, Scope, Send
from tests.http.back import Config, build
from tests.http.client import Client, call, http_test, text
from tests.http.serving import in_loop, under_uvicorn
from tests.messages import Json
from tests.support import until


@http_test
async def test_trap_2_a_request_refused_or_failed_before_it_begins_leaves_its_id_free() -> None:
    """A slot is reserved in one step and released when a later step fails: here, a full queue."""
    config = msgspec.structs.replace(Settings().limits, running=1, queued=1)
    async with in_loop(Config(settings=Settings(limits=config))) as served:
        client = await Client.opened(served.port)
        first = asyncio.create_task(client.call("gated", key="one"))
        second = asyncio.create_task(client.call("gated", key="two"))
        await until(lambda: len(next(iter(served.engine.runtime.sessions.values())).exchanges) == 2)
        refused = await client.start("echo", id="x", text="busy")
        assert (refused.status, (await refused.json())["error"]["code"]) == (429, -31001)
        assert refused.headers["retry-after"] == "1"
        served.back.gates.setdefault("one", asyncio.Event()).set()
        served.back.gates.setdefault("two", asyncio.Event()).set()
        assert [await first, await second] == ["one through", "two through"]
        assert await client.call("echo", id="x", text="later") == "later"


@http_test
async def test_trap_9_one_server_mounted_twice_and_called_by_many_answers_each_client_itself() -> None:
    back, engine, one = build(Config())
    two = HttpFront(engine, HttpSettings(path="/other"))

    async def both(scope: Scope, receive: Receive, send: Send) -> None:
        front = two if scope.get("path", "").startswith("/other") else one
        await front(scope, receive, send)

    async with under_uvicorn(both) as port:
        clients = [await Client.opened(port, path=path) for path in ("/mcp", "/other") for _ in range(10)]

        async def called(number: int, client: Client) -> Json:
            return await client.call("slow", id=1, seconds=0.3, text=f"client {number}")

        answers = await asyncio.gather(*(called(number, client) for number, client in enumerate(clients)))
        assert answers == [f"client {number}" for number in range(20)]
        assert len({client.session_id for client in clients}) == 20
        await engine.aclose()
    assert back.runs["client 0"] == 1


@http_test
async def test_trap_11_stateless_clients_with_the_same_id_cannot_cancel_each_other() -> None:
    async with in_loop(Config(settings=Settings(stateless=True))) as served:
        mine, other = await Client.opened(served.port), await Client.opened(served.port)
        assert mine.session_id == ""
        running_call = asyncio.create_task(mine.call("slow", id=1, seconds=0.4, text="untouched"))
        await until(lambda: served.back.runs["untouched"] == 1)
        assert await other.tell("notifications/cancelled", {"requestId": 1}) == 202
        assert await other.call("echo", id=1, text="beside") == "beside"
        assert await running_call == "untouched"


@http_test
async def test_trap_12_progress_of_one_call_never_appears_on_another_stream() -> None:
    async with in_loop() as served:
        client = await Client.opened(served.port)
        standalone = await client.get()
        bodies = [call(number, "ticks", n=5, interval=0.01) for number in range(20)]

        async def tokens(body: Json) -> list[str]:
            messages = [message async for message in (await client.post(body)).messages()]
            assert messages[-1]["id"] == body["id"]
            return [message["params"]["progressToken"] for message in messages[:-1]]

        seen = await asyncio.gather(*(tokens(body) for body in bodies))
        assert seen == [[body["params"]["_meta"]["progressToken"]] * 5 for body in bodies]
        await client.call("push", start=0, n=1)
        async for message in standalone.messages():
            assert message["method"] == "notifications/message", "nothing of any call came here"
            break


@http_test
async def test_trap_13_a_session_has_as_many_streams_as_it_has_calls() -> None:
    async with in_loop() as served:
        client = await Client.opened(served.port)
        standalone = await client.get()
        responses = [await client.start("gated", key=f"g{number}", before=1) for number in range(5)]
        assert all(response.is_stream for response in responses)
        await client.call("push", start=7, n=1)
        for number in reversed(range(5)):
            await client.call("open", key=f"g{number}")
            assert text(await responses[number].answer()) == f"g{number} through"
        with contextlib.closing(standalone.connection._transport):
            async for message in standalone.messages():
                assert message["params"]["data"] == 7
                break
