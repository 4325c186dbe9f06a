"""Where `holdfast serve` listens: Unix sockets, sockets of other programs, HTTPS; with one process and with several."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from holdfast import Server
from holdfast.config import HttpSettings
from holdfast.errors import ConfigError
from holdfast.fronts.http.listener.service import Service
from holdfast.fronts.http.listener.sockets import (
    bind,
    bind_unix,
    from_systemd,
    host_of,
    inherited,
    listening,
    tls_context,
    url_of,
)
from tests.http.certificates import key_of
from tests.http.serving import ROOT
from tests.support import BOUND, async_test, until, wait_until

SMALL: Final = ROOT / "tests" / "unit" / "fronts" / "fixtures" / "small.py"
PROBE: Final = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
INITIALIZE: Final = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"raw","version":"1"}}}'
)
AS_SYSTEMD: Final = """
import os, sys
kept = [os.dup(int(number)) for number in sys.argv[1].split(",")]
spare = [os.dup2(number, 50 + at) for at, number in enumerate(kept)]
for at, number in enumerate(spare):
    os.dup2(number, 3 + at)
os.environ.update(LISTEN_FDS=str(len(kept)), LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Passes sockets to a program as systemd does: from descriptor 3 on."""
CALL: Final = (
    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    b"Accept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%b"
    % (len(INITIALIZE), INITIALIZE)
)


def exchanged(sock: socket.socket, sent: bytes) -> bytes:
    """Send a request and return everything that comes back."""
    with sock:
        sock.settimeout(BOUND)
        sock.sendall(sent)
        parts = []
        while part := sock.recv(65_536):
            parts.append(part)
    return b"".join(parts)


@contextlib.contextmanager
def serving(
    *options: str, systemd: tuple[int, ...] = (), fds: tuple[int, ...] = ()
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run `holdfast serve`; yield the URL of its banner."""
    command = [sys.executable, "-m", "holdfast", "serve", str(SMALL), *options]
    if systemd:
        command = [sys.executable, "-c", AS_SYSTEMD, ",".join(map(str, systemd)), *command]
    with tempfile.TemporaryFile() as log:
        environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=log, stderr=log, pass_fds=(*systemd, *fds)
        )

        def output() -> str:
            log.seek(0)
            return log.read().decode()

        try:
            wait_until(lambda: process.poll() is not None or "serving" in output(), explain=output)
            found = re.search(r"serving\s+(\S+)", output())
            assert found is not None, output()
            yield found[1], process
        finally:
            process.kill()
            process.wait()


def unix(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(path))
    return sock


# Unix sockets


def test_a_unix_socket_is_served_and_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.sock"
    with serving("--http", f"unix:{path}") as (url, process):
        assert url == f"unix:{path}:/mcp"
        assert exchanged(unix(path), PROBE).endswith(b"ready\n")
        assert b"mcp-session-id" in exchanged(unix(path), CALL)
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND) == 0
        assert not path.exists()


def test_an_abandoned_unix_socket_is_replaced_and_one_in_use_is_not(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    bind_unix(path).close()
    with bind_unix(path) as listener:
        assert (host_of(listener), url_of(listener, "/mcp")) == ("localhost", f"unix:{path}:/mcp")
        with pytest.raises(ConfigError, match="in use"):
            bind_unix(path)
    (tmp_path / "file").write_text("kept")
    with pytest.raises(ConfigError, match="in use"):
        bind_unix(str(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "kept"
    with pytest.raises(ConfigError, match="No such file"):
        bind_unix(str(tmp_path / "nowhere" / "s"))


def test_a_server_removes_only_its_own_unix_socket(tmp_path: Path) -> None:
    path, file = tmp_path / "s", tmp_path / "file"
    file.write_text("kept")
    with bind_unix(str(path)):
        for used in (path, file):
            with pytest.raises(ConfigError, match="in use"), listening(f"unix:{used}"):
                pass
            assert used.exists()
    path.unlink()
    with contextlib.ExitStack() as stopping, contextlib.ExitStack() as running:
        stopping.enter_context(listening(f"unix:{path}")).close()
        running.enter_context(listening(f"unix:{path}"))
        stopping.close()
        assert path.exists(), "the next server started while the first one stopped"
        running.close()
        assert not path.exists()


@async_test
async def test_a_client_of_a_unix_socket_that_closes_its_side_gets_its_answer_and_one_that_goes_is_noticed(
    tmp_path: Path,
) -> None:
    server = Server("unix")
    running, release = asyncio.Event(), asyncio.Event()

    @server.tool
    async def held() -> str:
        running.set()
        await release.wait()
        return "released"

    path = str(tmp_path / "s")
    service = Service(server.front(HttpSettings()))
    with bind_unix(path) as listener:
        async with service.running([listener]):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(CALL.replace(b"Connection: close\r\n", b""))
            head = await reader.readuntil(b"\r\n\r\n")
            session = re.search(rb"mcp-session-id: (\S+)", head)
            assert session is not None
            body = b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"held","arguments":{}}}'
            await reader.readuntil(b"}}}")
            call = (
                b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Accept: application/json, text/event-stream\r\nMcp-Session-Id: %b\r\nContent-Length: %d\r\n\r\n%b"
                % (session[1], len(body), body)
            )
            writer.write(call)
            writer.write_eof()
            await running.wait()
            release.set()
            assert b"released" in await reader.read()
            writer.close()
            running.clear()
            release.clear()
            _, writer = await asyncio.open_unix_connection(path)
            writer.write(call.replace(b'"id":2', b'"id":3'))
            await running.wait()
            writer.transport.abort()
            await until(lambda: not service.members.connections)
            release.set()


# Sockets of other programs


@pytest.mark.parametrize("workers", [1, 2])
def test_a_socket_that_another_program_has_opened_is_served(workers: int) -> None:
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        options = ("--fd", str(listener.fileno()), "--workers", str(workers))
        with serving(*options, fds=(listener.fileno(),)) as (url, _):
            assert url == f"http://127.0.0.1:{port}/mcp"
            assert exchanged(socket.create_connection(("127.0.0.1", port)), PROBE).endswith(b"ready\n")


def test_the_sockets_of_systemd_are_served_if_no_address_is_given(tmp_path: Path) -> None:
    with bind("127.0.0.1", 0) as one, bind_unix(str(tmp_path / "s")) as two:
        port = one.getsockname()[1]
        with serving(systemd=(one.fileno(), two.fileno())) as (url, _):
            assert url == f"http://127.0.0.1:{port}/mcp"
            assert exchanged(socket.create_connection(("127.0.0.1", port)), PROBE).endswith(b"ready\n")
            assert exchanged(unix(tmp_path / "s"), PROBE).endswith(b"ready\n")


def test_sockets_for_another_process_are_not_taken() -> None:
    assert from_systemd({}, 7) == []
    assert from_systemd({"LISTEN_FDS": "1", "LISTEN_PID": "8"}, 7) == []
    assert from_systemd({"LISTEN_FDS": "no", "LISTEN_PID": "7"}, 7) == []


def test_a_descriptor_that_is_no_listening_socket_is_named(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file, pytest.raises(ConfigError, match="is no socket"):
        inherited(file.fileno())
    with socket.socket() as idle, pytest.raises(ConfigError, match="no socket that listens"):
        inherited(idle.fileno())
    # The program that opened it still owns it.
    with socket.socket() as still:
        still.setblocking(False)


# HTTPS


@pytest.mark.parametrize("workers", [1, 2])
def test_https_is_served_by_one_process_and_by_several(certificate: Path, workers: int) -> None:
    options = ("--http", "127.0.0.1:0", "--tls-cert", str(certificate), "--workers", str(workers))
    with serving(*options) as (url, process):
        found = re.fullmatch(r"https://127\.0\.0\.1:(\d+)/mcp", url)
        assert found is not None
        context = ssl.create_default_context(cafile=str(certificate))
        for sent, expected in ((PROBE, b"ready\n"), (CALL, b"mcp-session-id")):
            raw = socket.create_connection(("127.0.0.1", int(found[1])))
            assert expected in exchanged(context.wrap_socket(raw, server_hostname="localhost"), sent)
        # A request without TLS is no handshake.
        assert b"HTTP/1.1" not in exchanged(socket.create_connection(("127.0.0.1", int(found[1]))), PROBE)
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND) == 0


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path, certificate: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    for path in (tmp_path / "missing.pem", tmp_path / "empty.pem"):
        with pytest.raises(ConfigError, match=path.name):
            tls_context(str(path))
    locked = tmp_path / "locked.pem"
    locked.write_bytes(key_of(certificate, passphrase=b"x"))
    with pytest.raises(ConfigError, match="passphrase"):
        tls_context(str(certificate), str(locked))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--tls-key", "k.pem"), "--tls-key needs --tls-cert"),
        (("--fd", "3", "--http", "127.0.0.1:0"), "leave one out"),
        (("--http", "nowhere"), "unix:PATH"),
    ],
)
def test_options_that_cannot_work_are_refused(options: tuple[str, ...], text: str) -> None:
    command = [sys.executable, "-m", "holdfast", "serve", str(SMALL), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=BOUND)
    assert done.returncode == 2
    assert text in done.stderr
