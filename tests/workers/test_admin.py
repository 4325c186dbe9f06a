"""The admin surface of real `limpet serve` processes: its guard, its drain, and one surface for several workers."""

import asyncio
import contextlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import Struct

from limpet.ops.admin.surface import ROUTES
from tests.http.client import Client, Connection, Cut, http_test
from tests.messages import Json
from tests.support import BOUND, until
from tests.workers.fleet import ROOT, Fleet, fleet

TOKEN: Final = "operators-know-this-token"
ENV: Final = {"LIMPET_ADMIN_TOKEN": TOKEN}
WITH_TOKEN: Final = {"Authorization": f"Bearer {TOKEN}"}
SMALL: Final = str(ROOT / "tests" / "unit" / "fronts" / "fixtures" / "small.py")
ADMIN: Final = ("--admin", "127.0.0.1:0")
CALLS: Final = re.compile(r"^mcp_server_operation_duration_seconds_count\{.*\} (\d+)$", re.MULTILINE)


def admin_port(output: str) -> int:
    found = re.search(r"admin +http://127\.0\.0\.1:(\d+)/", output)
    assert found is not None, output
    return int(found[1])


class Answer(Struct):
    """A response that was read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        return json.loads(self.body)


async def ask(
    running: Fleet, path: str, method: str = "GET", headers: Mapping[str, str] = WITH_TOKEN
) -> Answer:
    """Send one request to the admin surface of a server, on a connection of its own."""
    connection = await Connection.open(admin_port(running.output()))
    response = await connection.request(method, headers, path=path)
    answer = Answer(response.status, response.headers, await response.body())
    connection.cut()
    return answer


async def state(running: Fleet) -> Json:
    answer = await ask(running, "/api/state")
    assert answer.status == 200, answer.body
    return answer.json


async def calls(running: Fleet) -> int:
    """Return how many calls the metrics count."""
    answer = await ask(running, "/metrics")
    assert answer.status == 200
    return sum(map(int, CALLS.findall(answer.body.decode())))


@pytest.fixture(scope="module")
def single() -> Iterator[Fleet]:
    with fleet(*ADMIN, env=ENV) as running:
        yield running


@pytest.fixture(scope="module")
def pair() -> Iterator[Fleet]:
    with fleet(*ADMIN, "--workers", "2", "--log-level", "info", env=ENV) as running:
        yield running


# One process


@http_test
async def test_every_route_passes_the_guard_of_the_real_server(single: Fleet) -> None:
    other_host = {**WITH_TOKEN, "Host": "evil.example"}
    other_origin = {**WITH_TOKEN, "Origin": "http://evil.example"}
    for form, (method, _) in ROUTES.items():
        path = "/" + "/".join(form).replace("*", "nothing")
        wrong_method = "POST" if method == "GET" else "GET"
        for headers, verb, status in (
            ({}, method, 401),
            (other_host, method, 421),
            (other_origin, method, 403),
            (WITH_TOKEN, wrong_method, 405),
            (WITH_TOKEN, "DELETE", 405),
        ):
            answer = await ask(single, path, verb, headers)
            assert answer.status == status, (path, verb, headers)
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            assert answer.json["error"]
    await until(lambda: "audit.refused" in single.output())
    assert TOKEN not in single.output()


@http_test
async def test_the_page_is_public_and_the_endpoint_is_not_there(single: Fleet) -> None:
    page = await ask(single, "/", headers={})
    assert page.status == 200
    assert b"<html" in page.body
    assert (await ask(single, "/mcp", "POST")).status == 404
    # And the other way round: the endpoint's address has no admin surface.
    connection = await Connection.open(single.port)
    assert (await connection.request("GET", WITH_TOKEN, path="/api/state")).status == 404


@http_test
async def test_idle_connections_do_not_lock_the_operator_out(single: Fleet) -> None:
    port = admin_port(single.output())
    held = [await Connection.open(port) for _ in range(64)]
    for connection in held:
        await connection.send(b"GET / HTTP/1.1\r\n")
    # The endpoint has connections of its own.
    assert (await (await Client.opened(single.port)).call("who")) > 0

    async def is_free() -> bool:
        with contextlib.suppress(Cut):
            return (await ask(single, "/")).status == 200
        return False

    await until(is_free)
    for connection in held:
        connection.cut()


@http_test
async def test_an_operator_closes_a_session_and_the_audit_log_says_so(single: Fleet) -> None:
    client = await Client.opened(single.port)
    sessions = (await state(single))["sessions"]
    assert len(sessions) >= 1
    for session in sessions:
        answer = await ask(single, f"/api/sessions/{session['id']}/close", "POST")
        assert answer.status == 200, answer.body
    assert (await (await client.post({"jsonrpc": "2.0", "id": 5, "method": "ping"})).json())["error"]
    assert (await state(single))["sessions"] == []

    def closings() -> list[Any]:
        lines = [json.loads(line) for line in single.output().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == "audit.done" and line["act"] == "session_closed"]

    # A thread writes the log.
    await until(lambda: len(closings()) >= len(sessions))
    done = closings()
    assert [line["address"] for line in done] == ["127.0.0.1"] * len(sessions)
    assert [line["session"] for line in done] == [session["id"] for session in sessions]


@http_test
async def test_the_surface_is_readable_while_the_server_drains_and_live_streams_end_completely() -> None:
    with fleet(*ADMIN, "--drain", "20", env=ENV, target=SMALL) as running:
        client = await Client.opened(running.port)
        call = asyncio.ensure_future(client.call("wait", gate="never"))
        connection = await Connection.open(admin_port(running.output()))
        live = await connection.request("GET", WITH_TOKEN, path="/api/live")
        events = live.events()
        while not json.loads((await anext(events)).data)["calls"]:
            pass
        running.tell(signal.SIGTERM)
        while (shown := (await state(running))["replicas"][0]["state"]) != "stopping":
            assert shown == "live"
        # The operator ends the call that the drain waits for.
        (waiting,) = (await state(running))["calls"]
        assert (await ask(running, f"/api/calls/{waiting['id']}/cancel", "POST")).status == 200
        # A stream that is not complete raises Cut.
        async for _ in events:
            pass
        assert "by an operator" in str(await call)
        assert await asyncio.to_thread(running.popen.wait, BOUND) == 0


# Tokens


def serve(*options: str, env: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    without = {name: value for name, value in os.environ.items() if name != "LIMPET_ADMIN_TOKEN"}
    command = [sys.executable, "-m", "limpet", "serve", SMALL, "--http", "127.0.0.1:0", *options]
    return subprocess.run(
        command, env={**without, **(env or {})}, capture_output=True, text=True, timeout=BOUND, check=False
    )


@pytest.mark.parametrize("workers", ["1", "2"])
def test_without_a_terminal_a_token_must_be_given(workers: str) -> None:
    refused = serve(*ADMIN, "--workers", workers)
    assert refused.returncode == 2
    assert refused.stderr.startswith("limpet: --admin needs a token")
    assert "--admin-token-file FILE, or set LIMPET_ADMIN_TOKEN" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = serve("--admin", f"127.0.0.1:{port}", env=ENV)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"limpet: cannot listen on 127.0.0.1:{port}: Address already in use")
    assert "--admin HOST:PORT" in refused.stderr


@http_test
async def test_a_terminal_shows_a_new_token_once_and_stdio_has_a_surface_too() -> None:
    ours, terminal = pty.openpty()
    env = {name: value for name, value in os.environ.items() if name != "LIMPET_ADMIN_TOKEN"}
    command = [sys.executable, "-m", "limpet", "serve", SMALL, "--stdio", *ADMIN]
    popen = subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=terminal, cwd=ROOT
    )
    os.close(terminal)
    shown = b""
    try:
        while b"token" not in shown or not shown.endswith(b"\n"):
            shown += await asyncio.to_thread(os.read, ours, 65_536)
        text = shown.decode()
        found = re.search(r"token +(\S{24,})", text)
        assert found is not None
        connection = await Connection.open(admin_port(text))
        answer = await connection.request("GET", {"Authorization": f"Bearer {found[1]}"}, path="/api/state")
        assert (await answer.json())["servers"][0]["name"] == "small"
        assert text.count(found[1]) == 1
        assert popen.stdin is not None
        popen.stdin.close()
        assert await asyncio.to_thread(popen.wait, BOUND) == 0
        assert popen.stdout is not None
        assert popen.stdout.read() == b""
    finally:
        popen.kill()
        popen.wait()
        if popen.stdout is not None:
            popen.stdout.close()
        os.close(ours)


# A program


@http_test
async def test_a_program_serves_its_own_surface(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from limpet import Server\n"
        "from limpet.config import AdminSettings\n"
        "server = Server('mine')\n"
        "server.run('http', port=0, admin=AdminSettings(address='127.0.0.1:0', token='" + TOKEN + "'))\n"
    )
    popen = subprocess.Popen([sys.executable, str(program)], stderr=subprocess.PIPE, text=True)
    try:
        assert popen.stderr is not None
        lines = iter(popen.stderr.readline, "")
        port = next(int(line.rpartition(":")[2].strip("/\n")) for line in lines if line.startswith("admin:"))
        connection = await Connection.open(port)
        answer = await connection.request("GET", WITH_TOKEN, path="/api/state")
        assert [server["name"] for server in (await answer.json())["servers"]] == ["mine"]
        popen.terminate()
        assert await asyncio.to_thread(popen.wait, BOUND) == 0
    finally:
        popen.kill()
        popen.wait()
        if popen.stderr is not None:
            popen.stderr.close()


# Workers


@http_test
async def test_workers_have_one_surface_whose_counters_survive_them(pair: Fleet) -> None:
    served: set[int] = set()
    sent = 0
    while len(served) < 2:
        served.add(await (await Client.opened(pair.port)).call("who"))
        sent += 1
    assert await calls(pair) >= sent
    assert len((await state(pair))["replicas"]) == 2

    before = await calls(pair)
    victim = min(pair.workers())
    os.kill(victim, signal.SIGKILL)
    # No question fails, and no counter goes back, while the worker dies and is replaced.
    while victim in pair.workers() or len(pair.workers()) < 2:
        await state(pair)
        now = await calls(pair)
        assert now >= before
        before = now
    assert await (await Client.opened(pair.port)).call("who") in pair.workers()
    assert await calls(pair) > before


@http_test
async def test_counters_are_exact_when_all_workers_are_replaced(pair: Fleet) -> None:
    for _ in range(5):
        await (await Client.opened(pair.port)).call("who")
    await Connection.cut_all()
    before = await calls(pair)
    old = set(pair.workers())
    pair.tell(signal.SIGHUP)
    while set(pair.workers()) & old:
        await state(pair)
        assert await calls(pair) >= before
    assert await calls(pair) == before


@http_test
async def test_a_worker_that_hangs_costs_the_surface_seconds_and_no_answer(pair: Fleet) -> None:
    for stopped in pair.workers():
        os.kill(stopped, signal.SIGSTOP)
        try:
            assert len((await state(pair))["servers"]) == 1
        finally:
            os.kill(stopped, signal.SIGCONT)
