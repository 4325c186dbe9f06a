"""Connections that wait to be accepted: several of them in one pass of the loop, so that a busy loop does not keep new clients out."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from holdfast import Server
from holdfast.config import HttpSettings
from holdfast.fronts.http.http1.certificates import tls_context
from holdfast.fronts.http.http1.sockets import bind
from holdfast.fronts.http.http1.start_and_stop import Service
from tests.http.test_handshakes import LOOPS
from tests.http.test_sockets import PROBE
from tests.support import BOUND

_WAITING: Final = 60
_PASSES: Final = 20
"""One for each connection would be three times as many. Each also needs some for itself."""


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
