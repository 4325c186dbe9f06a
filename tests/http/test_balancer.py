"""Behind a balancer that cuts every response, a tool that runs much longer delivers everything."""

import asyncio
import contextlib
import math
import re
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from limpet.config import HttpSettings
from tests.http.back import Config
from tests.http.client import Client, Connection, Keeper, call, http_test, text
from tests.http.serving import ROOT, Process, process, wait_until_connected
from tests.programs import program
from tests.support import until
from tools.ports import free_port

CUT_AFTER = 0.8


@contextlib.asynccontextmanager
async def cutting_proxy(port: int) -> AsyncIterator[int]:
    """Pass bytes on, and drop each connection `CUT_AFTER` after its response began; yield the port."""

    async def copy(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            to.write(data)
            await to.drain()

    async def serve(client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        server, forth = await asyncio.open_connection("127.0.0.1", port)
        sending = asyncio.create_task(copy(client, forth))
        try:
            first = await server.read(65_536)
            back.write(first)
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(CUT_AFTER):
                    await copy(server, back)
        finally:
            sending.cancel()
            for writer in (back, forth):
                writer.transport.abort()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()


@contextlib.contextmanager
def haproxy(config: str) -> Iterator[int]:
    """Run a real balancer with this configuration, `FRONT` in it being a free address; yield its port."""
    front = free_port()
    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as file:
        file.write(config.replace("FRONT", f"127.0.0.1:{front}"))
        file.flush()
        popen = subprocess.Popen(
            [program("haproxy"), "-db", "-q", "-f", file.name], stderr=subprocess.DEVNULL
        )
        try:
            wait_until_connected(front, popen)
            yield front
        finally:
            popen.kill()
            popen.wait()


def cutting(port: int) -> str:
    """Return a balancer that drops a response that is silent for `CUT_AFTER`."""
    return f"""
defaults
  mode http
  timeout connect 1s
  timeout client 30s
  timeout server {CUT_AFTER * 1000:.0f}ms
listen balancer
  bind FRONT
  server one 127.0.0.1:{port}
"""


def shipped(*ports: int) -> str:
    """Return deploy/haproxy.cfg with these replicas and without health checks."""
    config = (ROOT / "deploy" / "haproxy.cfg").read_text()
    config = re.sub(r"^resolvers .*?(?=^frontend )", "", config, flags=re.MULTILINE | re.DOTALL)
    servers = "\n".join(f"  server s{port} 127.0.0.1:{port} no-check" for port in ports)
    config = re.sub(r"^  server-template .*$", servers, config, flags=re.MULTILINE)
    return config.replace("bind :8000", "bind FRONT")


@pytest.mark.slow
@http_test
async def test_a_tool_survives_balancers_that_cut_many_times_while_it_runs(trial: Process) -> None:
    """Trap 14: one proxy cuts by age, haproxy by silence; chatty and silent tools behind both."""
    client = await Client.opened(trial.port)
    async with cutting_proxy(trial.port) as proxy:
        with haproxy(cutting(trial.port)) as balancer:
            chatty = Keeper(client, call("chatty", "ticks", n=50, interval=0.08), port=proxy)
            sparse = Keeper(client, call("sparse", "ticks", n=4, interval=1.0), port=balancer)
            silent = Keeper(client, call("silent", "gated", key="silent"), port=balancer)
            running = asyncio.gather(chatty.run(), sparse.run(), silent.run())
            await until(lambda: silent.cuts >= 5)
            await client.call("open", key="silent")
            answers = await running
    assert [text(answer) for answer in answers] == ["50 ticks", "4 ticks", "silent through"]
    # A machine that stands still lets several ticks of a second pass at once: the silence is shorter then.
    for keeper, ticks, cuts in ((chatty, 50, 3), (sparse, 4, 1), (silent, 0, 5)):
        assert [m["params"]["progress"] for m in keeper.messages[:-1]] == list(range(1, ticks + 1))
        assert keeper.cuts >= cuts, "the balancer did cut"


# The configuration that we ship


@http_test
async def test_the_shipped_balancer_passes_an_event_on_at_once() -> None:
    """Without `option http-no-delay` each event but the last waits 200 ms for company."""
    config = Config(http=HttpSettings(trusted_proxies=["127.0.0.1"]))
    with process(config) as served, haproxy(shipped(served.port)) as balancer:
        client = await Client.opened(balancer)
        # One quick event is enough: a busy machine makes many of them late, the missing option all of them.
        waits: list[float] = [math.inf]
        while min(waits) > 0.15 and len(waits) < 100:
            began = time.monotonic()
            response = await client.start("ask", message="who?")
            async for message in response.messages():
                if "method" in message:
                    waits.append(time.monotonic() - began)
                    assert await client.reply(message, {"action": "decline"}) == 202
            response.connection.cut()
    assert min(waits) <= 0.15


class Replica:
    """Answers every request with 200, or is killed instead of answering."""

    def __init__(self, *, dies: bool) -> None:
        self.asked = 0
        self._dies = dies

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one request."""
        await reader.readuntil(b"\r\n\r\n{}")
        self.asked += 1
        if self._dies:
            sock: socket.socket = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()


@http_test
async def test_the_shipped_balancer_sends_a_request_again_only_if_it_was_never_sent() -> None:
    good, dying = Replica(dies=False), Replica(dies=True)
    async with (
        await asyncio.start_server(good.serve, "127.0.0.1", 0) as one,
        await asyncio.start_server(dying.serve, "127.0.0.1", 0) as two,
    ):
        ports = [server.sockets[0].getsockname()[1] for server in (one, two)]
        with haproxy(shipped(ports[0], free_port())) as balancer:
            assert await statuses(balancer, 6) == [200] * 6, "a connection that was refused took nothing"
        assert good.asked == 6
        with haproxy(shipped(*ports)) as balancer:
            assert sorted(await statuses(balancer, 6)) == [200, 200, 200, 502, 502, 502]
        assert (good.asked, dying.asked) == (9, 3), (
            "a request that was sent may have run, and is not sent again"
        )


async def statuses(port: int, count: int) -> list[int]:
    """Send requests one after another, each on its own connection; return their statuses."""
    found: list[int] = []
    for _ in range(count):
        connection = await Connection.open(port)
        await connection.send(b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
        found.append((await connection.response()).status)
        connection.cut()
    return found
