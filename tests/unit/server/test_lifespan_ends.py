"""A lifespan that ends by itself: its server drains, refuses new work with the reason, and ends its process with status 1."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Final

import pytest

from limpet import Client, Server, Servers
from limpet.config import HttpSettings
from limpet.errors import LifespanEnded, McpError
from limpet.testing import NotingObserver
from tests.asgi import Call, Peer
from tests.support import BOUND, all_closed, async_test, until, virtual_test, wait_until
from tests.unit.fronts.stdio_process import python
from tests.workers.fleet import fleet

ENDED: Final = "the lifespan of dying has ended, so this process cannot serve any more"


class Dying:
    """A server whose lifespan ends when a test breaks it, and a call that waits for a test."""

    def __init__(self, *, swallows: bool = False) -> None:
        self.broken, self.held = asyncio.Event(), asyncio.Event()
        self.notes = NotingObserver()
        self.left: list[str] = []
        self._swallows = swallows
        self.server = Server("dying", lifespan=self._lifespan, observer=self.notes)
        self.server.tool(self.hold)

    async def hold(self) -> str:
        await self.held.wait()
        return "held"

    async def _lifespan(self) -> AsyncIterator[None]:
        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(self._watch())
                yield
                watch.cancel()
        except ExceptionGroup:
            if not self._swallows:
                raise
        finally:
            self.left.append("left")

    async def _watch(self) -> None:
        await self.broken.wait()
        raise OSError("the connection to the queue broke")


async def _ready(peer: Peer) -> tuple[int | None, bytes]:
    answer: Call = await peer.send("GET", path="/readyz").done()
    return answer.status, answer.body


@pytest.mark.parametrize("swallows", [False, True])
@virtual_test
async def test_a_mounted_server_lets_running_calls_finish_and_then_refuses_with_the_reason(
    swallows: bool,
) -> None:
    dying = Dying(swallows=swallows)
    peer = Peer(dying.server.asgi())
    await peer.initialize()
    assert await _ready(peer) == (200, b"ready\n")
    running = peer.call(1, "hold")
    await asyncio.sleep(1)
    dying.broken.set()
    await asyncio.sleep(1)
    assert await _ready(peer) == (503, f"{ENDED}\n".encode())
    assert ENDED in (await peer.call(3, "hold").done()).json["error"]["message"]
    [noted] = dying.notes.named("lifespan.ended")
    assert noted["reason"] == ENDED
    assert isinstance(noted["error"], ExceptionGroup) != swallows
    dying.held.set()
    assert (await running.done()).messages[-1]["result"]["content"][0]["text"] == "held"
    await until(lambda: dying.server.engine.drained)
    for refused in (await peer.call(2, "hold").done(), await Peer(dying.server.asgi()).initialize()):
        assert refused.status == 503
        assert ENDED in refused.json["error"]["message"]
    await dying.server.engine.aclose()
    assert dying.left == ["left"]


@virtual_test
async def test_a_client_in_the_same_process_gets_the_reason() -> None:
    dying = Dying()
    async with Client(dying.server) as client:
        dying.broken.set()
        await until(lambda: dying.server.engine.drained)
        with pytest.raises(McpError, match=ENDED):
            await client.call_tool("hold")


@virtual_test
async def test_a_server_that_failed_can_be_started_again() -> None:
    dying = Dying()
    engine = dying.server.engine
    await engine.ensure_started()
    dying.broken.set()
    await until(lambda: engine.drained)
    await engine.aclose()
    dying.broken.clear()
    await engine.ensure_started()
    assert engine.failure is None
    assert (await Peer(dying.server.asgi()).initialize()).status == 200
    await engine.aclose()
    assert len(dying.notes.named("lifespan.ended")) == 1, "a lifespan that is left has not failed"


@virtual_test
async def test_every_server_fails_that_includes_the_one_whose_lifespan_ended() -> None:
    dying, parents = Dying(), [Server("first"), Server("second")]
    async with all_closed(*(parent.engine for parent in parents)):
        for parent in parents:
            parent.include(dying.server)
            await parent.engine.ensure_started()
        dying.broken.set()
        await until(lambda: all(parent.engine.drained for parent in parents))
        assert [str(parent.engine.failure) for parent in parents] == [ENDED, ENDED]


@virtual_test
async def test_of_several_servers_the_others_stop_with_the_one_whose_lifespan_ended() -> None:
    dying, other = Dying(), Server("other")
    front = Servers({"/dying": dying.server, "/other": other}).front(HttpSettings())
    group, stopped = front.engine, list[str]()
    async with aclosing(group):
        await group.ensure_started()
        group.when_failed(lambda: stopped.append("stop"))
        assert group.failure is None
        dying.broken.set()
        await until(lambda: stopped == ["stop"])
        assert str(group.failure) == ENDED
        assert not other.engine.draining, "the front of the process stops it"


@virtual_test
async def test_a_lifespan_that_ends_before_the_start_is_over_fails_the_start() -> None:
    dying = Dying()
    dying.broken.set()
    other = Server("parent")

    async def slow() -> AsyncIterator[None]:
        await asyncio.sleep(1)
        yield

    dying.server.include(Server("slow", lifespan=slow))
    other.include(dying.server)
    with pytest.raises(LifespanEnded, match="the lifespan of dying has ended"):
        await other.engine.ensure_started()
    assert not other.engine.started


PROGRAM: Final = """
import asyncio
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from limpet import Server

BROKEN = Path(__file__).with_name("broken")


@asynccontextmanager
async def lifespan():
    async def watch():
        while True:
            await asyncio.sleep(0.02)
            # Of several processes, one takes the file.
            with suppress(FileNotFoundError):
                BROKEN.unlink()
                raise OSError("the connection to the queue broke")

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch())
        yield
        watching.cancel()


server = Server("dying", lifespan=lifespan)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "dying.py"
    file.write_text(PROGRAM)
    return file


def test_a_process_whose_lifespan_ended_drains_and_ends_with_status_1(program: Path) -> None:
    with fleet(target=str(program)) as running:
        program.with_name("broken").touch()
        assert running.popen.wait(BOUND) == 1
        assert "the connection to the queue broke" in running.output()
        assert running.output().endswith(f"limpet: {ENDED}\n")


def test_a_worker_whose_lifespan_ended_is_replaced(program: Path) -> None:
    with fleet("--workers", "2", target=str(program)) as running:
        first = set(running.workers())
        program.with_name("broken").touch()
        wait_until(lambda: len(set(running.workers()) & first) == 1)
        wait_until(lambda: len(running.workers()) == 2)
        assert "ended with status 1; another starts in 0.1 s" in running.output()
        assert running.end() == 0


@async_test
async def test_a_server_on_stdio_whose_lifespan_ended_ends_with_status_1(program: Path) -> None:
    async with python("-m", "limpet", "serve", str(program), "--stdio") as client:
        await client.open()
        program.with_name("broken").touch()
        out, err, status = await client.rest()
    assert (out, status) == ([], 1)
    assert "the connection to the queue broke" in err
