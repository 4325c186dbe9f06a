"""Ports for servers that tests start as processes, which need seconds until they listen.

They are below those that the system gives to connections by itself, and each worker of pytest has a range of its own. So
between the choice of a port and the start of its server, no other socket takes the port.
"""

import contextlib
import os
import secrets
import socket
from itertools import count
from typing import Final

_FIRST: Final = 15_000
_RANGE: Final = 1_000
_RANGES: Final = 17
_WORKER: Final = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
_MINE: Final = _FIRST + _RANGE * ((int(_WORKER) if _WORKER else secrets.randbelow(_RANGES)) % _RANGES)
_numbers: Final = count(secrets.randbelow(_RANGE))


def free_port() -> int:
    """Return a port that no socket uses. No port is returned twice within a thousand calls."""
    while True:
        port = _MINE + next(_numbers) % _RANGE
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
