"""Ports for servers that tests, tools and benchmarks start as processes, which need seconds until they listen.

Between the choice of a port and the start of its server, no other socket may take the port. The numbers are below those
that the system gives to connections by itself. A UDP socket of the same number reserves the port against all other
processes that choose here; it does not disturb the server, which listens on TCP, and it ends with this process.
"""

import os
import secrets
import socket
from collections import deque
from itertools import count
from typing import Final

_FIRST: Final = 15_000
_COUNT: Final = 17_000
_HELD: Final = 200
"""Reserved ports of a process. The oldest is free again after so many others; its server listens by then, or has ended."""

_numbers: Final = count(secrets.randbelow(_COUNT))
_reserved: Final[deque[int]] = deque()
"""File descriptors: sockets would warn at the end of the process that they are still open."""


def free_port() -> int:
    """Return a port that no socket uses and that no other process gets from here."""
    while True:
        port = _FIRST + next(_numbers) % _COUNT
        reservation = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            reservation.bind(("127.0.0.1", port))
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            reservation.close()
            continue
        _reserved.append(reservation.detach())
        if len(_reserved) > _HELD:
            os.close(_reserved.popleft())
        return port
