"""TLS handshakes over real sockets: those that are not complete count as connections, and end in time."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import pytest

from limpet import Limits, Server, Settings
from limpet.config import HttpSettings
from limpet.fronts.http.http1.certificates import tls_context
from limpet.fronts.http.http1.connection_charge import TLS_BYTES
from limpet.fronts.http.http1.sockets import bind
from limpet.fronts.http.http1.start_and_stop import Service
from limpet.transports.loops import new_loop
from tests.http.test_descriptors import Exhausted
from tests.http.test_sockets import PROBE
from tests.support import BOUND, until

LOOPS: Final = pytest.mark.parametrize("loop", [asyncio.new_event_loop, new_loop], ids=["asyncio", "uvloop"])
Loop = Callable[[], asyncio.AbstractEventLoop]


def run(loop: Loop, test: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(test, BOUND))


@contextlib.asynccontextmanager
async def serving(certificate: Path, limits: Limits) -> AsyncIterator[tuple[Service, int]]:
    server = Server("tls", settings=Settings(limits=limits))
    front = server.front(HttpSettings())
    service = Service(front, tls=tls_context(str(certificate)))
    with bind("127.0.0.1", 0) as listener:
        async with service.running([listener]):
            yield service, listener.getsockname()[1]


async def is_served(port: int) -> bool:
    """True if a request over TLS is answered; False if the connection is closed before."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(PROBE)
        answer = await reader.read()
    except OSError:
        return False
    writer.close()
    return answer.endswith(b"ready\n")


async def begin(stack: contextlib.AsyncExitStack, port: int) -> asyncio.StreamReader:
    """Open a connection, and begin no handshake on it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    stack.callback(writer.close)
    return reader


@LOOPS
def test_handshakes_that_are_not_complete_count_as_connections_and_make_room(
    certificate: Path, loop: Loop
) -> None:
    async def test() -> None:
        async with (
            serving(certificate, Limits(connections=3)) as (service, port),
            contextlib.AsyncExitStack() as stack,
        ):
            held = [await begin(stack, port) for _ in range(3)]
            await until(lambda: len(service.members.connections) == 3)
            # For more than a second they are not idle, and a new connection is closed without an answer.
            while not await is_served(port):
                assert len(service.members.connections) <= 3
                await asyncio.sleep(0.1)
            assert sum(reader.at_eof() for reader in held) == 1
            await stack.aclose()
            await until(lambda: not service.members.connections)

    run(loop, test())


@LOOPS
def test_handshakes_that_are_not_complete_are_charged_and_without_memory_for_them_closed(
    certificate: Path, loop: Loop
) -> None:
    async def test() -> None:
        async with (
            serving(certificate, Limits(memory=40 * TLS_BYTES)) as (service, port),
            contextlib.AsyncExitStack() as stack,
        ):
            ledger = service.members.account(None).ledger
            before = ledger.used
            held = [await begin(stack, port) for _ in range(40)]
            await until(lambda: any(reader.at_eof() for reader in held))
            await until(
                lambda: len(service.members.connections) == sum(not reader.at_eof() for reader in held)
            )
            open_ones = len(service.members.connections)
            assert ledger.used - before == open_ones * TLS_BYTES
            assert open_ones < 30
            await stack.aclose()
            await until(lambda: not service.members.connections)
            assert ledger.used == before

    run(loop, test())


@LOOPS
def test_a_handshake_that_takes_too_long_or_is_invalid_ends(certificate: Path, loop: Loop) -> None:
    async def test() -> None:
        async with (
            serving(certificate, Limits(header_seconds=0.2)) as (service, port),
            contextlib.AsyncExitStack() as stack,
        ):
            late = await begin(stack, port)
            with contextlib.suppress(ConnectionError):
                assert await late.read() == b""
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(PROBE)
            assert b"HTTP/1.1" not in await reader.read()
            writer.close()
            await until(lambda: not service.members.connections)

    run(loop, test())


@LOOPS
def test_a_server_without_a_free_descriptor_tries_seldom_and_serves_again(
    certificate: Path, loop: Loop
) -> None:
    async def test() -> None:
        server = Server("tls").front(HttpSettings())
        begun = asyncio.get_running_loop().time()
        with Exhausted() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            async with Service(server, tls=tls_context(str(certificate))).running([listener]):
                port = listener.getsockname()[1]
                served = asyncio.ensure_future(is_served(port))
                await until(lambda: listener.tried >= 3)
                assert listener.tried <= 2 + (asyncio.get_running_loop().time() - begun) / 0.1
                listener.is_out = False
                assert await served

    run(loop, test())


@LOOPS
def test_a_server_that_stops_does_not_wait_for_handshakes(certificate: Path, loop: Loop) -> None:
    async def test() -> None:
        async with contextlib.AsyncExitStack() as stack:
            async with serving(certificate, Limits()) as (service, port):
                held = await begin(stack, port)
                await until(lambda: len(service.members.connections) == 1)
            with contextlib.suppress(ConnectionError):
                assert await held.read() == b""
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)

    run(loop, test())


@LOOPS
def test_a_client_that_resets_its_handshake_is_forgotten(
    certificate: Path, loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with serving(certificate, Limits(header_seconds=1_000)) as (service, port):
            for sent in (b"", b"\x16\x03\x01"):
                with socket.create_connection(("127.0.0.1", port)) as client:
                    client.sendall(sent)
                    await until(lambda: len(service.members.connections) == 1)
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                await until(lambda: not service.members.connections)
        assert not caplog.records

    run(loop, test())
