"""Our own server stops: answers that clients read are sent to their end, and what is cut is in the log."""

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Final

import pytest

from limpet import Server, Settings, Times
from limpet.config import HttpSettings
from limpet.fronts.http.http1 import accept, connection, start_and_stop
from limpet.fronts.http.http1.sockets import bind
from limpet.fronts.http.http1.start_and_stop import Service
from limpet.testing import NotingObserver
from limpet.transports.loops import Orders
from tests.http.client import Client, Connection, http_test
from tests.messages import request
from tests.support import stays, until

LARGE: Final = 4_000_000


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the steps after the drain: an answer that takes longer shows that it was waited for."""
    monkeypatch.setattr(start_and_stop, "_GOODBYE", 0.01)
    monkeypatch.setattr(accept, "_LAST_BYTES", 0.01)
    monkeypatch.setattr(start_and_stop, "_LINGER", 0.01)


class Stopped:
    """A server in this loop, which a test stops."""

    def __init__(self, times: Times, orders: Orders | None = None, store: str | None = None) -> None:
        self.release = asyncio.Event()
        self.server = Server("stopping", settings=Settings(times=times), store=store)
        self.noted = self.server.engine.observer = NotingObserver()
        self.service = Service(self.server.front(HttpSettings()), orders=orders)
        self.running: asyncio.Future[None]
        self.port = 0

        @self.server.tool
        async def large() -> str:
            return "x" * LARGE

        @self.server.tool
        async def held() -> str:
            await self.release.wait()
            return "held"

    async def has_drained(self) -> None:
        """Tell it to stop, and wait until no call runs."""
        self.service.stop()
        await until(lambda: self.server.engine.draining and not self.server.engine.in_flight())


@contextlib.asynccontextmanager
async def stopping(
    drain: float = 60, orders: Orders | None = None, store: str | None = None
) -> AsyncIterator[Stopped]:
    made = Stopped(Times(drain=drain), orders, store)
    with bind("127.0.0.1", 0) as listener:
        made.port = listener.getsockname()[1]
        made.running = asyncio.ensure_future(made.service.serve([listener]))
        try:
            yield made
        finally:
            made.release.set()
            made.service.stop(force=True)
            await made.running


async def reading(made: Stopped) -> Connection:
    """Ask for a large answer, and take none of its bytes."""
    client = await Client.opened(made.port)
    connection = await Connection.open(made.port, receive_buffer=4_096)
    body = json.dumps(request(1, "tools/call", {"name": "large", "arguments": {}})).encode()
    headers = {
        **client.headers(),
        "host": "localhost",
        "content-type": "application/json",
        "content-length": str(len(body)),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    connection.stop_reading()
    await connection.send(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
    await until(lambda: any(one.unsent for one in made.service.members.connections))
    return connection


@http_test
async def test_an_answer_that_its_client_reads_is_sent_to_its_end() -> None:
    async with stopping() as made:
        connection = await reading(made)
        await made.has_drained()
        # Longer than the steps after the drain; real time is the subject.
        await asyncio.sleep(0.3)
        assert not made.running.done()
        connection.go_on_reading()
        assert len(await connection.rest()) > 2 * LARGE
        await made.running
        assert made.noted.named("answer.cut") == []


@pytest.mark.parametrize("why", ["the drain time is over", "it does not read"])
@http_test
async def test_an_answer_that_is_cut_is_in_the_log(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if why == "it does not read":
        monkeypatch.setattr(connection, "_READ_SECONDS", 0.1)
    seconds = 0.2 if why == "the drain time is over" else 600
    async with stopping(seconds) as made:
        slow = await reading(made)
        await made.has_drained()
        await made.running
        slow.go_on_reading()
        assert len(await slow.rest()) < 2 * LARGE
        assert made.noted.named("answer.cut") == [{"answers": 1}]


@http_test
async def test_a_client_that_got_its_answer_may_ask_once_more() -> None:
    """The official clients read the list of tools after a call: without it the call fails although it was done."""
    start_and_stop._LINGER = 600.0  # type: ignore[misc]
    async with stopping() as made:
        client = await Client.opened(made.port)
        running = await client.start("held")
        made.service.stop()
        await until(lambda: made.server.engine.draining)
        made.release.set()
        assert "result" in await running.answer()
        # Longer than the steps after the drain; real time is the subject.
        await stays(lambda: not made.running.done(), 0.3)
        again = await client.post({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
        assert "result" in await again.answer()


@http_test
async def test_a_server_without_work_ends_at_once_although_a_client_listens() -> None:
    async with stopping() as made:
        client = await Client.opened(made.port)
        listening = await client.get()
        assert listening.status == 200
        start_and_stop._LINGER = 600.0  # type: ignore[misc]
        made.service.stop()
        await made.running


@pytest.mark.parametrize("has_terminal", [True, False])
@http_test
async def test_sighup_stops_a_single_process_only_if_its_terminal_was_closed(
    monkeypatch: pytest.MonkeyPatch, *, has_terminal: bool
) -> None:
    monkeypatch.setattr("os.isatty", lambda _: has_terminal)
    async with stopping() as made:
        # It is no terminal any more.
        monkeypatch.setattr("os.isatty", lambda _: False)
        made.service._signalled(signal.SIGHUP)
        assert made.service._stopping.is_set() is has_terminal


@http_test
async def test_the_signals_of_a_terminal_do_not_end_the_calls_of_a_worker_but_its_parent_does() -> None:
    """Ctrl+C reaches the workers too, before or after the signal that their parent sends."""
    orders = Orders()
    async with stopping(600, orders) as made:
        client = await Client.opened(made.port)
        running = await client.start("held")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGINT):
            made.service._signalled(number)
        await until(lambda: made.server.engine.draining)
        # Longer than a look at the order; real time is the subject.
        await stays(lambda: bool(made.server.engine.in_flight()), 0.3)
        orders.at_once = True
        made.service._signalled(signal.SIGTERM)
        assert "stopping" in (await running.answer())["error"]["message"]
        await made.running


@pytest.mark.parametrize("siblings_stay", [True, False])
@http_test
async def test_a_worker_stops_accepting_only_if_its_parent_says_that_others_stay(
    tmp_path: Path, *, siblings_stay: bool
) -> None:
    """Another replica that stays is not enough: it may be on another machine, or get its own signal a moment later."""
    store = f"sqlite:///{tmp_path}/store.db"
    other = Server("stopping", store=store)
    async with aclosing(other.engine):
        await other.engine.ensure_started()
        orders = Orders()
        orders.siblings_stay = siblings_stay
        async with stopping(600, orders, store) as made:
            client = await Client.opened(made.port)
            running = await client.start("held")
            made.service.stop()
            await until(lambda: made.server.engine.draining)
            if siblings_stay:
                with pytest.raises(ConnectionRefusedError):
                    await Connection.open(made.port)
            else:
                response = await client.post({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
                assert response.status == 200
            made.release.set()
            running.connection.cut()
