"""Listening sockets."""

import os
import socket
from typing import Final

from holdfast.config import KIB
from holdfast.errors import ConfigError

SEND_BUFFER: Final = 256 * KIB
"""Bytes that the kernel may hold for one client that does not read; the default grows to megabytes."""
BACKLOG: Final = 2048


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        ConfigError: the address is taken, unknown or not ours.
    """
    name = host.strip("[]")
    try:
        family, _, _, _, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise ConfigError(
            f"cannot listen on {host}:{port}: {reason}; choose another with --http HOST:PORT (port 0 takes a free one)"
        ) from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    return listener


def url_of(listener: socket.socket, path: str) -> str:
    """Return the URL of the endpoint."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"
