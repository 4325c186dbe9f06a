"""A client that has closed its side: it may wait for its answer, or have disconnected.

The server receives the same in both cases. The difference shows when they get bytes: a client that has closed only
its side takes them, and the system of a client that has disconnected answers with a reset. So some bytes without a
meaning are sent at once: a stream gets an empty line, a request that is not answered yet "102 Processing". Linux then
reports the reset in `TCP_INFO`, and a Unix socket by an error. Where neither is possible, the client counts as
disconnected.
"""

import asyncio
import os
from typing import Final

from limpet.fronts.http.http1.acknowledged import is_reset
from limpet.fronts.http.http1.sockets import is_unix

_LOOKS: Final = (0.02, 0.1, 0.5)
"""Seconds after which it checks again. After that the sweep does."""


class HalfClosed:
    """Finds out whether the client of a connection has disconnected, and then ends the connection."""

    __slots__ = ("_transport",)

    def __init__(self, transport: asyncio.Transport, harmless: bytes) -> None:
        self._transport = transport
        if not transport.get_write_buffer_size():
            # Not by the transport: uvloop writes at the end of the turn.
            try:
                os.write(transport.get_extra_info("socket").fileno(), harmless)
            except BlockingIOError:
                # The client has not taken earlier bytes: these show the same.
                pass
            except OSError:
                transport.abort()
                return
        loop = asyncio.get_running_loop()
        for seconds in _LOOKS:
            loop.call_later(seconds, self._look)

    def is_gone(self) -> bool:
        """True if the client has disconnected, or this system does not report it."""
        sock = self._transport.get_extra_info("socket")
        reset = is_reset(sock)
        if reset is None:
            return self._transport.is_closing() or sock is None or not is_unix(sock)
        return reset

    def _look(self) -> None:
        if not self._transport.is_closing() and self.is_gone():
            self._transport.abort()
