"""Plain functions in worker threads: an exception of one does not leave its caller waiting."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any

import pytest

from limpet.config import Settings
from limpet.engine.turn import TURN, Turn
from limpet.fronts.http.read.addresses import counted
from limpet.server.app import Server
from limpet.server.context.session_view import SessionView
from limpet.server.functions.depends import Depends
from limpet.server.functions.threads import in_thread
from limpet.transports.threads import OWNER
from tests.asgi import Peer
from tests.messages import LATEST
from tests.support import BOUND, async_test, until
from tests.unit.server.peer import connected
from tests.unit.server.sessionless_client import sessionless


class Panic(BaseException):
    """An exception as a Rust extension raises it."""


ENDS = [StopIteration(), Panic("a panic"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()]


def server_raising(error: BaseException) -> Server:
    """Return a server whose every plain function raises the error."""
    server = Server("raising")

    def fail() -> str:
        raise error

    def depend(value: str = Depends(fail)) -> str:
        return value

    def complete(value: str) -> list[str]:
        raise error

    server.tool(fail)
    server.tool(depend)
    server.prompt(fail)
    server.resource("test://fail")(fail)
    server.completion()(complete)
    return server


REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("tools/call", {"name": "fail", "arguments": {}}),
    ("tools/call", {"name": "depend", "arguments": {}}),
    ("prompts/get", {"name": "fail"}),
    ("resources/read", {"uri": "test://fail"}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "fail"}, "argument": {"name": "x", "value": ""}},
    ),
]


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
@async_test
async def test_a_call_whose_plain_function_raises_is_answered(error: BaseException) -> None:
    async with connected(server_raising(error)) as peer:
        for method, params in REQUESTS:
            answer = await peer.message(method, params)
            assert "error" in answer or answer["result"]["isError"]
        assert peer.session.exchanges == {}
    async with sessionless(server_raising(error)) as client:
        for method, params in REQUESTS:
            message = (await client.send(method, params)).message
            assert "error" in message or message["result"]["isError"]


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
@async_test
async def test_the_next_listener_is_called_after_a_plain_listener_raised(error: BaseException) -> None:
    heard: list[str] = []
    server = Server("listening")

    @server.on_opened
    def fail(session: SessionView) -> None:
        raise error

    @server.on_opened
    def listen(session: SessionView) -> None:
        heard.append("opened")

    async with connected(server) as peer:
        await peer.session.listeners_called()
        assert heard == ["opened"]


@async_test
async def test_a_call_keeps_its_turn_until_the_thread_of_its_plain_function_has_returned() -> None:
    ran: list[str] = []
    begun, release = threading.Event(), threading.Event()
    server = Server("ordered", settings=Settings(in_order=True))

    def hold() -> None:
        begun.set()
        release.wait(BOUND)
        ran.append("slow")

    @server.tool
    async def slow() -> str:
        held = asyncio.ensure_future(in_thread(hold))
        await until(begun.is_set)
        held.cancel()  # As a time limit does.
        await held
        return ""

    @server.tool
    def quick() -> str:
        ran.append("quick")
        return ""

    async with connected(server) as peer:
        late = await peer.message("tools/call", {"name": "slow", "arguments": {}})
        assert "error" in late or late["result"]["isError"], "it is answered while its thread runs"
        second = asyncio.ensure_future(peer.call("quick"))
        await asyncio.sleep(0.2)  # real time is the subject: nothing says that a call does not begin
        assert ran == []
        release.set()
        await second
        assert ran == ["slow", "quick"]


def test_a_plain_function_that_is_cancelled_before_its_thread_begins_never_runs_and_holds_no_turn() -> None:
    ran: list[str] = []
    turn = Turn(lambda: ran.append("over"))

    @async_test
    async def conversation() -> None:
        release = threading.Event()
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        blocked = loop.run_in_executor(None, release.wait, BOUND)
        TURN.set(turn)
        waiting = asyncio.ensure_future(in_thread(ran.append, "ran"))
        await until(lambda: turn.has_threads)
        held = [turn.has_threads]
        waiting.cancel()
        await asyncio.wait([waiting])
        assert [*held, turn.has_threads] == [True, False]
        release.set()
        await blocked
        await in_thread(ran.append, "later")

    conversation()
    turn.leave()
    assert ran == ["later", "over"]


@async_test
async def test_a_plain_function_gets_its_thread_as_a_function_of_its_client() -> None:
    """Threads are given to clients in turn. An anonymous client is known by its address."""
    server = Server("owners")

    def whose() -> str:
        return OWNER.get()

    @server.tool
    async def depends(owner: str = Depends(whose)) -> str:
        return owner

    server.tool(whose)
    app = server.asgi(allow_anonymous=True, response="json")
    async with aclosing(server.engine):
        for client in ("10.0.0.7", "2001:db8::1"):
            peer = Peer(app, client=client)
            assert (await peer.initialize(LATEST)).status == 200
            for tool in ("whose", "depends"):
                call = await peer.call(1, tool).done()
                assert call.json["result"]["content"] == [{"type": "text", "text": counted(client)}]
