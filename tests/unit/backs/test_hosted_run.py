"""A run of a hosted object that fails, or does not end. The object and its messages are fakes: no framework is needed."""

import asyncio
import contextlib
import contextvars
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from limpet.backs.hosted.lifespan import Lifespan
from limpet.backs.hosted.run import STOP_SECONDS, Dialect, HostedLink
from limpet.backs.hosted.streams import RunInput
from limpet.engine.caller import Caller
from limpet.errors import BadAnswer, McpError, NotSent, OutcomeUnknown
from limpet.ports import Ports, SystemClock, SystemRandom
from limpet.server.hosted import HostedConnector
from limpet.testing import NotingObserver
from limpet.upstream.connection import Callbacks, Connection, ConnectionOptions
from limpet.upstream.pending import OutgoingRequest
from limpet.upstream.profile import ClientProfile
from limpet.upstream.settings import ClientTimes
from tests.support import virtual_test

WELCOME = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "serverInfo": {"name": "fake", "version": "1"},
}


class FakeDialect:
    """Messages are plain dicts."""

    identity = SimpleNamespace(variable=SimpleNamespace(set=lambda _user: None), user=lambda _caller: None)

    async def run(self, server: Any, read: Any, write: Any) -> None:
        await server.run(read, write, server.create_initialization_options())

    def decode(self, data: bytes) -> Any:
        return json.loads(data)

    def request(self, request: OutgoingRequest) -> Any:
        if request.method == "refused":
            raise ValueError("no such method")
        if request.method == "stranger":
            raise OverflowError("no such user")
        return {"id": request.id, "method": request.method}

    def wrap(self, message: Any, _caller: object) -> Any:
        return message

    def user_of_run(self, _caller: object) -> None:
        return

    def encode(self, item: Any) -> bytes:
        return json.dumps(item, ensure_ascii=False).encode()

    def answered(self, item: Any) -> Any:
        return item["id"]

    def call_id(self, _item: Any) -> None:
        return


class FakeServer:
    """Answers every request, `half` with half of a surrogate pair; fails on `fail`; does not end after `hang`.

    After `busy` it reads nothing until it is released.
    """

    name = "fake"

    def __init__(self) -> None:
        self.runs = 0
        self.seen: list[str] = []
        self.released = asyncio.Event()

    @contextlib.asynccontextmanager
    async def lifespan(self, _server: object) -> AsyncIterator[None]:
        yield

    def create_initialization_options(self) -> None:
        return

    async def run(self, read: Any, write: Any, _options: None) -> None:
        self.runs += 1
        hangs = False
        async with read, write:
            async for message in read:
                self.seen.append(message["method"])
                if message["method"] == "busy":
                    await self.released.wait()
                if message["method"] == "fail":
                    raise OSError("out of order")
                hangs = hangs or message["method"] == "hang"
                result = {"initialize": WELCOME, "half": {"text": "\ud800"}}.get(message["method"], {})
                if "id" in message:
                    await write.send({"jsonrpc": "2.0", "id": message["id"], "result": result})
        if hangs:
            with contextlib.suppress(asyncio.CancelledError):
                await self.released.wait()
            await self.released.wait()


@contextlib.asynccontextmanager
async def connected(server: FakeServer, notes: NotingObserver) -> AsyncIterator[Connection]:
    async def refuse(method: str, _params: object, _origin: object) -> object:
        raise McpError(-32601, method)

    lifespan = Lifespan(server, notes, lambda _: None)
    await lifespan.start()
    dialect = cast("Dialect", FakeDialect())
    connection = Connection(
        HostedConnector(server, dialect, lifespan, Caller("anonymous"), ClientTimes(), notes),
        ClientProfile({"name": "test", "version": "1"}, {}),
        Callbacks(on_request=refuse, on_notification=lambda _notification, _origin: None),
        options=ConnectionOptions(version="sessions"),
        ports=Ports(SystemClock(), SystemRandom(), notes),
    )
    await connection.open()
    yield connection
    await connection.aclose()
    await lifespan.stop()


@virtual_test
async def test_a_run_that_fails_costs_its_calls_one_error_and_the_next_call_gets_a_new_run() -> None:
    server, notes = FakeServer(), NotingObserver()
    async with connected(server, notes) as connection:
        with pytest.raises(OutcomeUnknown, match="out of order"):
            await connection.request("fail")
        assert await connection.request("work") == {}
    assert server.runs == 2
    assert notes.named("hosted.run_failed")


@virtual_test
async def test_requests_that_wait_for_a_run_that_ends_are_not_in_doubt_and_go_to_the_next_run() -> None:
    server, notes = FakeServer(), NotingObserver()
    async with connected(server, notes) as connection:
        failing = [asyncio.create_task(connection.request(name)) for name in ("busy", "fail", "work", "work")]
        await asyncio.sleep(1)
        server.released.set()
        ended = await asyncio.gather(*failing, return_exceptions=True)
        assert isinstance(ended[1], OutcomeUnknown)
        assert [ended[0], *ended[2:]] == [{}, {}, {}]
    assert server.runs == 2
    assert server.seen.count("work") == 2


@virtual_test
async def test_a_request_to_a_run_that_takes_no_more_and_does_not_end_goes_to_the_next_run() -> None:
    server, notes = FakeServer(), NotingObserver()
    async with connected(server, notes) as connection:
        await connection.request("hang")
        cast("HostedLink", await connection.link())._run.input.close()
        assert await connection.request("work") == {}
        server.released.set()
    assert server.seen.count("work") == 1
    assert server.runs == 2


@virtual_test
async def test_an_answer_that_cannot_be_encoded_costs_its_call_and_not_the_run() -> None:
    server, notes = FakeServer(), NotingObserver()
    async with connected(server, notes) as connection:
        with pytest.raises(BadAnswer, match="cannot be encoded"):
            await connection.request("half")
        assert await connection.request("work") == {}
    assert server.runs == 1


@virtual_test
async def test_a_run_that_does_not_end_holds_up_the_end_of_its_session_for_a_bounded_time() -> None:
    server, notes = FakeServer(), NotingObserver()
    loop = asyncio.get_running_loop()
    async with connected(server, notes) as connection:
        await connection.request("hang")
        before = loop.time()
        await connection.aclose()
        assert loop.time() - before == pytest.approx(STOP_SECONDS)
        server.released.set()
    assert notes.named("hosted.run_lingers")


@virtual_test
async def test_a_request_that_ends_before_the_run_takes_it_does_not_run() -> None:
    server, notes = FakeServer(), NotingObserver()
    async with connected(server, notes) as connection:
        busy = asyncio.create_task(connection.request("busy"))
        await asyncio.sleep(1)
        given_up = asyncio.create_task(connection.request("given up"))
        kept = [asyncio.create_task(connection.request(name)) for name in ("one", "two")]
        await asyncio.sleep(1)
        given_up.cancel()
        await asyncio.wait({given_up})
        server.released.set()
        assert [await one for one in (busy, *kept)] == [{}, {}, {}]
        await asyncio.sleep(1)
    assert server.seen[1:] == ["notifications/initialized", "busy", "one", "two", "notifications/cancelled"]


@virtual_test
async def test_a_request_that_the_framework_does_not_accept_fails_alone() -> None:
    server, notes = FakeServer(), NotingObserver()
    async with connected(server, notes) as connection:
        with pytest.raises(NotSent, match="does not accept the message: no such method"):
            await connection.request("refused")
        with pytest.raises(OverflowError, match="no such user"):
            await connection.request("stranger")
        assert await connection.request("work") == {}
    assert server.runs == 1


@virtual_test
async def test_a_message_without_a_request_waits_with_its_writer() -> None:
    read = RunInput(lambda _: None, EOFError)
    context = contextvars.copy_context()
    given_up = asyncio.create_task(read.write((context, "given up")))
    kept = asyncio.create_task(read.write((context, "kept")))
    await asyncio.sleep(1)
    assert not kept.done()
    given_up.cancel()
    await asyncio.wait({given_up})
    assert await read.receive() == "kept"
    assert read.last_context is context
    assert await kept
    late = asyncio.create_task(read.write((context, "late")))
    await asyncio.sleep(1)
    read.close()
    assert not await late
    assert not await read.write((context, "later"))
    with pytest.raises(EOFError):
        await read.receive()
    assert [message async for message in read] == []
