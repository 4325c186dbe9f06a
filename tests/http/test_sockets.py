"""Where `limpet serve` listens: Unix sockets, sockets of other programs, HTTPS; with one process and with several."""

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
from typing import IO, Final

import pytest

from limpet import Server
from limpet.config import HttpSettings
from limpet.errors import ConfigError
from limpet.fronts.http.http1.certificates import tls_context
from limpet.fronts.http.http1.sockets import (
    bind,
    bind_unix,
    from_systemd,
    host_of,
    inherited,
    open_socket,
    url_of,
)
from limpet.fronts.http.http1.start_and_stop import Service
from tests.http.certificates import key_of, write_certificate
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
    *options: str, systemd: tuple[int, ...] = (), fds: tuple[int, ...] = (), log: IO[bytes] | None = None
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run `limpet serve`; yield the URL of its banner. Its output goes to `log`, if one is given."""
    command = [sys.executable, "-m", "limpet", "serve", str(SMALL), *options]
    if systemd:
        command = [sys.executable, "-c", AS_SYSTEMD, ",".join(map(str, systemd)), *command]
    with contextlib.ExitStack() as stack:
        log = log or stack.enter_context(tempfile.TemporaryFile())
        environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            # At a terminal SIGHUP would stop it.
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(*systemd, *fds),
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
    path = tmp_path / "limpet.sock"
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
            with pytest.raises(ConfigError, match="in use"), open_socket(f"unix:{used}"):
                pass
            assert used.exists()
    path.unlink()
    with contextlib.ExitStack() as stopping, contextlib.ExitStack() as running:
        stopping.enter_context(open_socket(f"unix:{path}")).close()
        running.enter_context(open_socket(f"unix:{path}"))
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
    front = server.front(HttpSettings())
    # A loaded machine looks like a pause of the process, and after a pause a client that has closed its side is not served.
    front._is_waking = lambda: False
    service = Service(front)
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


def served_certificate(port: int) -> str:
    """Return the certificate that a server shows, in PEM form."""
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=BOUND)


def parts_of(path: Path) -> tuple[str, str]:
    """Return the certificate and the key of a file."""
    chain, mark, key = path.read_text().partition("-----BEGIN PRIVATE KEY-----")
    return chain, mark + key


def check_https(port: int, certificate: Path) -> None:
    context = ssl.create_default_context(cafile=str(certificate))
    context.set_alpn_protocols(["h2", "http/1.1"])
    for sent, expected in ((PROBE, b"ready\n"), (CALL, b"mcp-session-id")):
        raw = socket.create_connection(("127.0.0.1", port))
        secured = context.wrap_socket(raw, server_hostname="localhost")
        assert secured.selected_alpn_protocol() == "http/1.1"
        assert expected in exchanged(secured, sent)
    # A request without TLS is no handshake.
    assert b"HTTP/1.1" not in exchanged(socket.create_connection(("127.0.0.1", port)), PROBE)


def test_https_is_served(certificate: Path) -> None:
    with serving("--http", "127.0.0.1:0", "--tls-cert", str(certificate)) as (url, process):
        found = re.fullmatch(r"https://127\.0\.0\.1:(\d+)/mcp", url)
        assert found is not None
        check_https(int(found[1]), certificate)
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND) == 0


def test_several_workers_and_their_admin_surface_use_a_new_certificate_after_sighup(tmp_path: Path) -> None:
    path, token = write_certificate(tmp_path / "server.pem"), tmp_path / "token"
    token.write_text("t" * 16)
    admin = ("--admin", "0.0.0.0:0", "--admin-host", "localhost", "--admin-token-file", str(token))
    options = ("--http", "127.0.0.1:0", "--tls-cert", str(path), "--workers", "2", *admin)
    with (tmp_path / "log").open("w+b") as log, serving(*options, log=log) as (_, process):

        def output() -> str:
            return (tmp_path / "log").read_text()

        def port(label: str) -> int:
            wait_until(
                lambda: re.search(rf"{label}\s+https://\S+:\d+/", output()) is not None, explain=output
            )
            return int(re.findall(rf"{label}\s+https://\S+:(\d+)/", output())[0])

        endpoint, surface = port("serving"), port("admin")
        check_https(endpoint, path)
        first, _ = parts_of(path)
        assert {served_certificate(endpoint), served_certificate(surface)} == {first}
        write_certificate(path)
        second, key = parts_of(path)
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: "every worker was replaced" in output(), explain=output)
        assert {served_certificate(endpoint), served_certificate(surface)} == {second}
        third, _ = parts_of(write_certificate(tmp_path / "other.pem"))
        path.write_text(third + key)
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: "could not start" in output(), explain=output)
        assert "does not belong to the first certificate" in output()
        assert {served_certificate(endpoint), served_certificate(surface)} == {second}
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND) == 0


def test_sighup_does_not_end_a_single_process_and_is_refused_in_the_log(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+b") as log, serving("--http", "127.0.0.1:0", log=log) as (url, process):
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: "SIGHUP is ignored" in (tmp_path / "log").read_text())
        found = re.search(r":(\d+)/", url)
        assert found is not None
        ready = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert b" 200 " in exchanged(socket.create_connection(("127.0.0.1", int(found[1]))), ready)
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND) == 0


def test_files_of_tls_that_cannot_be_used_are_named_with_the_reason(
    tmp_path: Path, certificate: Path
) -> None:
    chain, key = parts_of(certificate)
    _, other = parts_of(write_certificate(tmp_path / "other.pem"))
    files = {
        "chain": chain,
        "key": key,
        "other": other,
        "locked": key_of(certificate, passphrase=b"x").decode(),
        "text": "no PEM",
        "broken": chain.replace("MII", "xxx"),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    def refusal(chain: str, key: str | None = None) -> str:
        with pytest.raises(ConfigError) as refused:
            tls_context(str(tmp_path / chain), None if key is None else str(tmp_path / key))
        return str(refused.value).replace(f"{tmp_path}/", "")

    assert refusal("none") == "the TLS certificate none cannot be read: No such file or directory"
    assert refusal("chain", "none") == "the TLS key none cannot be read: No such file or directory"
    assert "the file has no certificate in PEM form" in refusal("text", "key")
    assert "the file has no certificate in PEM form" in refusal("key")
    assert "the file chain has no private key in PEM form; give the key with --tls-key" in refusal("chain")
    assert "the file text has no private key in PEM form" in refusal("chain", "text")
    assert refusal("chain", "other") == "the TLS key other does not belong to the first certificate of chain"
    assert "the key has a passphrase; give a key without one" in refusal("chain", "locked")
    assert refusal("broken", "key").startswith("the TLS certificate broken cannot be used: ")
    accepted = tls_context(str(tmp_path / "chain"), str(tmp_path / "key"))
    assert accepted.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("hours", "warned"), [((-48, -24), "expired on "), ((24, 48), "is valid from "), ((-1, 1), None)]
)
def test_a_certificate_that_clients_will_refuse_is_a_warning(
    hours: tuple[int, int], warned: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls_context(str(write_certificate(tmp_path / "server.pem", hours=hours)))
    assert len(caplog.messages) == (warned is not None)
    assert (warned or "") in "".join(caplog.messages)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--tls-key", "k.pem"), "--tls-key needs --tls-cert"),
        (("--fd", "3", "--http", "127.0.0.1:0"), "leave one out"),
        (("--http", "nowhere"), "unix:PATH"),
    ],
)
def test_options_that_cannot_work_are_refused(options: tuple[str, ...], text: str) -> None:
    command = [sys.executable, "-m", "limpet", "serve", str(SMALL), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=BOUND)
    assert done.returncode == 2
    assert text in done.stderr
