"""Connections that wait to be accepted: several of them in one pass of the loop, in turn by address."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from limpet import Server
from limpet.config import HttpSettings
from limpet.fronts.http.http1.certificates import tls_context
from limpet.fronts.http.http1.sockets import bind
from limpet.fronts.http.http1.start_and_stop import Service
from tests.http.test_handshakes import LOOPS
from tests.http.test_sockets import PROBE
from tests.support import BOUND

_WAITING: Final = 60
_PASSES: Final = 20
"""One for each connection would be three times as many. Each also needs some for itself."""

_SOON: Final = 3
"""Passes in which a few connections begin."""


@LOOPS
@pytest.mark.parametrize("secured", [False, True], ids=["plain", "TLS"])
def test_connections_that_wait_are_accepted_together(
    certificate: Path, loop: Callable[[], asyncio.AbstractEventLoop], *, secured: bool
) -> None:
    async def test() -> None:
        front = Server("crowded").front(HttpSettings())
        service = Service(front, tls=tls_context(str(certificate)) if secured else None)
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(bind("127.0.0.1", 0))
            async with service.running([listener]):
                address = listener.getsockname()
                # The loop does not run meanwhile: the kernel takes the connections.
                clients = [
                    stack.enter_context(socket.create_connection(address, BOUND)) for _ in range(_WAITING)
                ]
                for _ in range(_PASSES):
                    await asyncio.sleep(0)
                assert len(service.members.connections) == _WAITING
                if not secured:
                    for client in clients:
                        client.sendall(PROBE)
                    answers = [asyncio.to_thread(client.recv, 65536) for client in clients]
                    assert all(
                        answer.startswith(b"HTTP/1.1 200 ") for answer in await asyncio.gather(*answers)
                    )

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(test(), BOUND))


@LOOPS
def test_a_new_client_does_not_wait_for_the_flood_of_another_address(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def test() -> None:
        service = Service(Server("crowded").front(HttpSettings()))
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(bind("127.0.0.1", 0))
            async with service.running([listener]):
                address = listener.getsockname()
                for number in range(_WAITING):
                    # The last but one has an address of its own.
                    source = "127.0.0.2" if number != _WAITING - 2 else "127.0.0.3"
                    stack.enter_context(socket.create_connection(address, BOUND, (source, 0)))
                while not service.members.connections:
                    await asyncio.sleep(0)
                for _ in range(_SOON):
                    await asyncio.sleep(0)
                clients = [one.client for one in service.members.connections]
                assert "127.0.0.3" in clients
                assert len(clients) < _WAITING // 2

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(test(), BOUND))


@LOOPS
def test_connections_that_wait_for_their_turn_are_served_also_when_no_more_are_accepted(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def test() -> None:
        service = Service(Server("crowded").front(HttpSettings()))
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(bind("127.0.0.1", 0))
            async with service.running([listener]):
                address = listener.getsockname()
                for _ in range(_WAITING):
                    stack.enter_context(socket.create_connection(address, BOUND))
                while not service.members.connections:
                    await asyncio.sleep(0)
                service._acceptor.close_sockets()
                for _ in range(_SOON):
                    await asyncio.sleep(0)
                assert len(service.members.connections) == _WAITING

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(test(), BOUND))
