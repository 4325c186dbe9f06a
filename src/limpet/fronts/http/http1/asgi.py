"""A request of our server in the form of ASGI, for the routes that authors add to the endpoint.

Authors' headers and lengths are checked here: a line end in a header, or a body that is longer or shorter than
announced, would let a client read one answer as two.
"""

import re
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Final

from limpet.fronts.http.http1.framing import split
from limpet.fronts.http.read.head import RawHeaders
from limpet.fronts.http.read.request import Gone, Scope

if TYPE_CHECKING:
    from limpet.fronts.http.http1.channel import SocketChannel

_VERSION: Final = {"version": "3.0", "spec_version": "2.3"}
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(rb"[^\x00\r\n]*")
_FRAMING: Final = frozenset({b"transfer-encoding", b"connection", b"date"})
"""Headers that the server writes itself."""


def scope_of(channel: "SocketChannel") -> Scope:
    """Return the ASGI scope of a request."""
    request, parsed, connection = channel.request, channel.parsed, channel.connection
    _, raw_path, query = split(parsed.target)
    return {
        "type": "http",
        "asgi": _VERSION,
        "http_version": parsed.version,
        "method": request.method,
        "scheme": connection.scheme,
        "path": request.path,
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": request.head.lines,
        "client": connection.peer,
        "server": connection.address,
        "state": {},
        "extensions": {},
    }


class Messages:
    """The messages of ASGI on a channel."""

    __slots__ = ("_channel", "_left")

    def __init__(self, channel: "SocketChannel") -> None:
        self._channel = channel
        self._left: int | None = None
        """Bytes of the body that are left of the announced length; None: no length was announced."""

    async def receive(self) -> MutableMapping[str, Any]:
        """Return a part of the body, or wait for the end of the connection or of the response."""
        channel = self._channel
        try:
            if channel.has_read_all:
                await channel.until_over()
                return {"type": "http.disconnect"}
            part, more = await channel.read()
        except Gone:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": part, "more_body": more}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Write a part of the response."""
        channel, kind = self._channel, message["type"]
        if kind == "http.response.start" and not channel.is_begun:
            headers = list(message.get("headers", ()))
            self._check(headers)
            await channel.start(message["status"], headers)
        elif kind == "http.response.body" and channel.is_begun and not channel.is_complete:
            await self._body(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"the message {kind} does not belong here")

    def _check(self, headers: RawHeaders) -> None:
        kept: RawHeaders = []
        for name, value in headers:
            if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
                raise RuntimeError(f"the header {name!r} cannot be sent")
            if name.lower() == b"content-length":
                if self._left is not None or not value.isdigit():
                    raise RuntimeError(f"the content-length {value!r} cannot be sent")
                self._left = int(value)
            elif name.lower() == b"connection":
                self._channel.is_last |= b"close" in value.lower()
            if name.lower() not in _FRAMING:
                kept.append((name.lower(), value))
        headers[:] = kept

    async def _body(self, part: bytes, *, more: bool) -> None:
        channel = self._channel
        if self._left is not None and not channel.is_bodiless:
            self._left -= len(part)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError("the body is not as long as its content-length says")
        if part:
            await channel.write(part)
        if not more:
            await channel.end()
