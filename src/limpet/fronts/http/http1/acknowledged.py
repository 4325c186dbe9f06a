"""How many of the bytes that were written to a TCP connection the other side has acknowledged.

A write succeeds when the kernel has taken the bytes, even if the other side no longer exists (a half-open
connection). Linux reports in `TCP_INFO` how many segments are not acknowledged, and how many bytes are not yet sent.
It also counts the acknowledged bytes. That count shows whether a slow client takes anything: the kernel's own buffer
can hold megabytes, and accepts new bytes only after a large part of it was acknowledged.
"""

import socket
from struct import Struct
from typing import Final

_TCP_INFO: Final[int | None] = getattr(socket, "TCP_INFO", None)
_TCP_CLOSE: Final = 7
"""The value of `tcpi_state`, the first byte of `struct tcp_info`, for a connection that is closed."""
_UNACKNOWLEDGED: Final = Struct("=24xI")
"""`tcpi_unacked` of `struct tcp_info`."""
_ACKNOWLEDGED: Final = Struct("=120xQ")
"""`tcpi_bytes_acked`; since Linux 4.1."""
_UNSENT: Final = Struct("=144xI")
"""`tcpi_notsent_bytes`; since Linux 4.6."""


def is_acknowledged(sock: socket.socket | None) -> bool | None:
    """True if the other side has acknowledged all bytes; None: this system does not report it."""
    info = _info(sock)
    if info is None:
        return None
    return not (_UNACKNOWLEDGED.unpack_from(info)[0] or _UNSENT.unpack_from(info)[0])


def acknowledged_bytes(sock: socket.socket | None) -> int | None:
    """Return how many bytes the other side has acknowledged since the connection began.

    None: this system does not report it.
    """
    info = _info(sock)
    return None if info is None else int(_ACKNOWLEDGED.unpack_from(info)[0])


def is_reset(sock: socket.socket | None) -> bool | None:
    """True if the other side has answered with a reset: it has closed the connection.

    None: this system does not report it.
    """
    info = _info(sock)
    return None if info is None else info[0] == _TCP_CLOSE


def _info(sock: socket.socket | None) -> bytes | None:
    if sock is None or _TCP_INFO is None:
        return None
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _UNSENT.size)
    except (OSError, AttributeError, ValueError):
        # Closed meanwhile (uvloop's socket then has a negative descriptor), or no TCP connection.
        return None
    return info if len(info) == _UNSENT.size else None
