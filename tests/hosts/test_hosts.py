"""Mounted in another server, which forks after the import and stops while clients are connected."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.http.client import Client, http_test, sessionless, text
from tests.http.serving import ROOT, wait_until_connected
from tests.messages import Json
from tests.redis_server import redis_server
from tests.support import BOUND
from tools.ports import free_port

APP: Final = "tests.hosts.app"
PATIENCE: Final = BOUND
ASKABLE: Final[Json] = {"elicitation": {"form": {}}}
HOSTS: Final = {
    "uvicorn": ("uvicorn", f"{APP}:mounted", "--port", "{port}"),
    "uvicorn with lifespan": ("uvicorn", f"{APP}:endpoint", "--port", "{port}"),
    "hypercorn": ("hypercorn", "--workers", "0", f"{APP}:mounted", "--bind", "127.0.0.1:{port}"),
    "granian": ("granian", "--interface", "asgi", f"{APP}:mounted", "--port", "{port}"),
}
PRELOADED: Final = ("gunicorn", "--preload", "--no-control-socket", "--workers", "2", "--worker-class", "asgi",
                    f"{APP}:endpoint", "--bind", "127.0.0.1:{port}")  # fmt: skip


@contextlib.contextmanager
def hosted(command: tuple[str, ...], **env: str) -> Iterator[tuple[int, "subprocess.Popen[bytes]"]]:
    """Run a host; yield its port and its process."""
    port = free_port()
    words = [word.format(port=port) for word in command[1:]]
    with tempfile.TemporaryFile() as log:
        popen = subprocess.Popen(
            [Path(sys.executable).parent / command[0], *words],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
            stdout=log,
            stderr=log,
        )
        try:
            wait_until_connected(port, popen)
            yield port, popen
        finally:
            popen.kill()
            popen.wait()
            log.seek(0)
            print(log.read().decode())


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("host", HOSTS)
@http_test
async def test_a_host_that_stops_finishes_calls_and_does_not_wait_for_streams(
    host: str, signal_number: signal.Signals
) -> None:
    with hosted(HOSTS[host]) as (port, popen):
        client = await Client.opened(port)
        standalone = await client.get()
        listener = await sessionless(
            port, "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
        )
        working = await client.start("work", seconds=1.0)
        assert (standalone.status, listener.status) == (200, 200)
        popen.send_signal(signal_number)
        assert text(await working.answer()) == "worked"
        for response in (standalone, listener):
            await response.body()
            response.connection.cut()
        working.connection.cut()
        assert await asyncio.to_thread(popen.wait, PATIENCE) in {0, -signal_number}


async def elicited(port: int, number: int) -> str:
    """Make a call that asks, and its retry; each may arrive at another process. Return the text of the result."""
    params: Json = {"name": "ask", "arguments": {}}
    first = await sessionless(port, "tools/call", params, id=number, capabilities=ASKABLE)
    parked = (await first.answer())["result"]
    answer = {"action": "accept", "content": {"name": str(number)}}
    retry = {**params, "requestState": parked["requestState"], "inputResponses": {"who": answer}}
    second = await sessionless(port, "tools/call", retry, id=number, capabilities=ASKABLE)
    answered = text(await second.answer())
    for response in (first, second):
        response.connection.cut()
    return answered


@contextlib.contextmanager
def store_url(kind: str) -> Iterator[str]:
    if kind == "redis":
        with redis_server() as server:
            yield server.url
    else:
        with tempfile.TemporaryDirectory() as home:
            yield f"sqlite:///{home}/store.db"


@pytest.mark.parametrize("made", ["by its URL", "before the fork"])
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
@http_test
async def test_processes_forked_after_the_import_are_replicas_of_their_own(kind: str, made: str) -> None:
    few = asyncio.Semaphore(4)

    async def one(port: int, number: int) -> str:
        async with few:
            return await elicited(port, number)

    with store_url(kind) as url:
        env = {"STORE": url, "STORE_OBJECT": "1" if made == "before the fork" else ""}
        with hosted(PRELOADED, **env) as (port, _):
            texts = await asyncio.gather(*(one(port, number) for number in range(24)))
            assert texts == [str(number) for number in range(24)]
