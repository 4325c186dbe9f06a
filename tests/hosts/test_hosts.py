"""Mounted in somebody else's server: it forks after the import, and it stops while clients are connected."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.http.serving import ROOT, free_port, wait_until_connected
from tests.redis_server import redis_server
from tests.unit.fronts.http.test_listen import META, VERSION

APP: Final = "tests.hosts.app"
PATIENCE: Final = 20.0
HOSTS: Final = {
    "uvicorn": ("uvicorn", f"{APP}:mounted", "--port", "{port}"),
    "uvicorn with lifespan": ("uvicorn", f"{APP}:endpoint", "--port", "{port}"),
    "hypercorn": ("hypercorn", "--workers", "0", f"{APP}:mounted", "--bind", "127.0.0.1:{port}"),
    "granian": ("granian", "--interface", "asgi", f"{APP}:mounted", "--port", "{port}"),
}
LISTEN: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "subscriptions/listen",
    "params": {"notifications": {"toolsListChanged": True}, "_meta": META},
}
PRELOADED: Final = ("gunicorn", "--preload", "--no-control-socket", "--workers", "2", "--worker-class", "asgi",
                    f"{APP}:endpoint", "--bind", "127.0.0.1:{port}")  # fmt: skip


@contextlib.contextmanager
def hosted(command: tuple[str, ...], **env: str) -> Iterator[tuple[httpx.Client, "subprocess.Popen[bytes]"]]:
    """Run a host; yield a client of it, and its process."""
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
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
                yield client, popen
        finally:
            popen.kill()
            popen.wait()
            log.seek(0)
            print(log.read().decode())


def sent(
    client: httpx.Client, message: object = None, **headers: str
) -> AbstractContextManager[httpx.Response]:
    """Send a message, or without one a GET; the response is entered once it has begun."""
    given = {"accept": "application/json, text/event-stream"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    if message is None:
        return client.stream("GET", "/mcp", headers=given)
    return client.stream("POST", "/mcp", json=message, headers=given)


def request(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def opened(client: httpx.Client) -> str:
    """Open a session; return its id."""
    info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    with sent(client, request(0, "initialize", info)) as response:
        return response.headers["mcp-session-id"]


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("host", HOSTS)
def test_a_host_that_is_told_to_stop_finishes_calls_and_does_not_wait_for_streams(
    host: str, signal_number: signal.Signals
) -> None:
    with hosted(HOSTS[host]) as (client, popen):
        session = opened(client)
        call = request(2, "tools/call", {"name": "work", "arguments": {"seconds": 1.0}})
        with (
            sent(client, mcp_session_id=session) as standalone,
            sent(client, LISTEN, mcp_protocol_version=VERSION, mcp_method="subscriptions/listen") as listener,
            sent(client, call, mcp_session_id=session) as working,
        ):
            assert (standalone.status_code, listener.status_code) == (200, 200)
            popen.send_signal(signal_number)
            assert b'"worked"' in working.read()
            standalone.read()
            listener.read()
        assert popen.wait(PATIENCE) in {0, -signal_number}


def elicited(client: httpx.Client, number: int) -> str:
    """Make a call that asks, and its retry; each may land at another process. Return the result's text."""
    capable = {**META, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
    headers = {
        "mcp_protocol_version": VERSION,
        "mcp_method": "tools/call",
        "mcp_name": "ask",
        "connection": "close",
    }
    params: dict[str, Any] = {"name": "ask", "arguments": {}, "_meta": capable}
    with sent(client, request(number, "tools/call", params), **headers) as response:
        parked = json.loads(response.read())["result"]
    answer = {"action": "accept", "content": {"name": str(number)}}
    retry = {**params, "requestState": parked["requestState"], "inputResponses": {"who": answer}}
    with sent(client, request(number, "tools/call", retry), **headers) as response:
        body = response.read()
    message = json.loads(body if body.startswith(b"{") else body.rpartition(b"data: ")[2])
    text: str = message["result"]["content"][0]["text"]
    return text


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
def test_processes_forked_after_the_import_are_replicas_of_their_own(kind: str, made: str) -> None:
    with store_url(kind) as url:
        env = {"STORE": url, "STORE_OBJECT": "1" if made == "before the fork" else ""}
        with hosted(PRELOADED, **env) as (client, _), ThreadPoolExecutor(4) as pool:
            texts = list(pool.map(lambda number: elicited(client, number), range(24)))
            assert texts == [str(number) for number in range(24)]
