"""One request on uvicorn's protocol, past ASGI: a body that is there, and an answer that is ready.

ASGI takes three messages and as many dictionaries for what is one read and one write here. What
cannot be done this way is left to ASGI: nothing is half done. Imported only where uvicorn runs.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

Headers = list[tuple[bytes, bytes]]
_CLOSE: Final = b"connection: close\r\n\r\n"
_JSON_HEAD: Final = STATUS_LINE[200] + b"content-type: application/json\r\ncontent-length: %d\r\n"


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])


class DefaultHeaders:
    """The lines that every answer has (the date), made anew when the server makes them anew."""

    __slots__ = ("_lines", "_made_of")

    def __init__(self) -> None:
        self._made_of: Headers | None = None
        self._lines = b""

    def lines(self, headers: Headers) -> bytes:
        """Return them as they are written."""
        if headers is not self._made_of:
            self._made_of, self._lines = headers, _lines(headers)
        return self._lines


class Wire:
    """The connection underneath one request."""

    __slots__ = ("_cycle", "_defaults", "_transport")

    def __init__(
        self, transport: asyncio.Transport, cycle: RequestResponseCycle, defaults: DefaultHeaders
    ) -> None:
        self._transport = transport
        self._cycle = cycle
        self._defaults = defaults

    def is_closing(self) -> bool:
        """Tell whether the connection is gone."""
        return self._transport.is_closing()

    def abort(self) -> None:
        """Drop the connection with whatever is still buffered for it."""
        self._transport.abort()

    def take_body(self) -> bytes | None:
        """Return the whole body if it has come; None: it must be waited for."""
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected or cycle.response_complete or cycle.waiting_for_100_continue:
            return None
        body = bytes(cycle.body)
        cycle.body = bytearray()
        cycle.message_event.clear()
        return body

    def answer_json(self, body: bytes) -> bool:
        """Write a JSON body with status 200 at once; False, with nothing written, if it cannot be done this way."""
        return self._write(_JSON_HEAD % len(body), body)

    def answer(self, status: int, headers: Headers, body: bytes) -> bool:
        """Write a whole answer at once; False, with nothing written, if it cannot be done this way.

        The headers must give the body's length, and be ours: they are not looked at.
        """
        return self._write(STATUS_LINE[status] + _lines(headers), body)

    def _write(self, head: bytes, body: bytes) -> bool:
        cycle = self._cycle
        if cycle.disconnected or cycle.response_started or cycle.flow.write_paused:
            return False
        end = b"\r\n" if cycle.keep_alive else _CLOSE
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        self._transport.write(b"".join((head, self._defaults.lines(cycle.default_headers), end, body)))
        cycle.message_event.set()
        if not cycle.keep_alive:
            self._transport.close()
        cycle.on_response()
        return True
