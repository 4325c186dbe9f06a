"""The kernel's count of written bytes that were not acknowledged."""

import contextlib
import socket
import sys

import pytest

from limpet.fronts.http.http1.acknowledged import acknowledged_bytes, is_acknowledged
from tests.support import async_test, until


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")
@async_test
async def test_bytes_are_acknowledged_when_the_other_side_has_room_for_them() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect(listening.getsockname())
        server, _ = listening.accept()
        with server:
            server.setblocking(False)
            server.send(b"a few bytes")
            await until(lambda: is_acknowledged(server) is True)
            # The first byte of the count is that of the opening (SYN).
            assert acknowledged_bytes(server) in {11, 12}
            with contextlib.suppress(BlockingIOError):
                while True:
                    server.send(b"more than it has room for" * 1_000)
            assert is_acknowledged(server) is False
            before = acknowledged_bytes(server) or 0
            await until(lambda: len(client.recv(4_096)) > 0 and (acknowledged_bytes(server) or 0) > before)
        assert acknowledged_bytes(server) is None, "it is closed"
        assert is_acknowledged(server) is None, "it is closed"
    assert is_acknowledged(None) is None
