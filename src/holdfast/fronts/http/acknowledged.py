"""Whether the other side of a TCP connection has acknowledged everything that was written to it.

A write succeeds when the kernel has taken the bytes, also if the other side is no longer there (a half-open
connection). Linux tells in `TCP_INFO` how many segments are not acknowledged, and how many bytes are not yet sent.
"""

import socket
from struct import Struct
from typing import Final

_TCP_INFO: Final[int | None] = getattr(socket, "TCP_INFO", None)
_UNACKNOWLEDGED: Final = Struct("=24xI")
"""`tcpi_unacked` of `struct tcp_info`."""
_UNSENT: Final = Struct("=144xI")
"""`tcpi_notsent_bytes`; since Linux 4.6."""


def is_acknowledged(sock: socket.socket | None) -> bool | None:
    """True if the other side has acknowledged all bytes; None: this system cannot say."""
    if sock is None or _TCP_INFO is None:
        return None
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _UNSENT.size)
    except (OSError, AttributeError, ValueError):
        # Closed meanwhile (uvloop's socket then has a negative descriptor), or no TCP connection.
        return None
    if len(info) < _UNSENT.size:
        return None
    return not (_UNACKNOWLEDGED.unpack_from(info)[0] or _UNSENT.unpack_from(info)[0])
