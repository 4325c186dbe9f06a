"""Behind a balancer that cuts every response after two seconds, a tool of ten seconds delivers everything."""

import asyncio
import contextlib
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.http.client import Client, Keeper, call, http_test_within, text
from tests.http.serving import Process, free_port, wait_until_connected
from tests.programs import program

CUT_AFTER = 2.0


@contextlib.asynccontextmanager
async def cutting_proxy(port: int) -> AsyncIterator[int]:
    """Pass bytes on, and drop each connection two seconds after its response began; yield the port."""

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
def haproxy(port: int) -> Iterator[int]:
    """Run a real balancer that drops a response after two silent seconds; yield the port."""
    front = free_port()
    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as config:
        config.write(f"""
defaults
  mode http
  timeout connect 1s
  timeout client 30s
  timeout server {CUT_AFTER:g}s
listen balancer
  bind 127.0.0.1:{front}
  server one 127.0.0.1:{port}
""")
        config.flush()
        popen = subprocess.Popen(
            [program("haproxy"), "-db", "-q", "-f", config.name], stderr=subprocess.DEVNULL
        )
        try:
            wait_until_connected(front, popen)
            yield front
        finally:
            popen.kill()
            popen.wait()


@pytest.mark.slow
@http_test_within(30)
async def test_a_ten_second_tool_survives_balancers_that_cut_after_two_seconds(everything: Process) -> None:
    """Trap 14: one proxy cuts by age, haproxy by silence; chatty and silent tools behind both."""
    client = await Client.opened(everything.port)
    async with cutting_proxy(everything.port) as proxy:
        with haproxy(everything.port) as balancer:
            chatty = Keeper(client, call("chatty", "ticks", n=50, interval=0.2), port=proxy)
            sparse = Keeper(client, call("sparse", "ticks", n=4, interval=2.5), port=balancer)
            silent = Keeper(client, call("silent", "slow", seconds=10, text="done"), port=balancer)
            answers = await asyncio.gather(chatty.run(), sparse.run(), silent.run())
    assert [text(answer) for answer in answers] == ["50 ticks", "4 ticks", "done"]
    for keeper, ticks in ((chatty, 50), (sparse, 4), (silent, 0)):
        assert [m["params"]["progress"] for m in keeper.messages[:-1]] == list(range(1, ticks + 1))
        assert keeper.cuts >= 3, "the balancer did cut"
