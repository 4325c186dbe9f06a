"""HTTP+SSE, the transport of 2024-11-05, as a duplex: everything that the server says comes on one stream of events.

    GET URL               the stream; its first event, `endpoint`, names the URL for our messages
    POST that URL         each message of ours; the response to it has no content, the answer comes on the stream

A client finds out that a URL is of this kind as the specification of later revisions says: the server refuses the POST
of `initialize` (4xx), and a GET brings the `endpoint` event. The endpoint must have the origin of the URL: our
credentials go there.

When the stream ends the server has lost our session, so the link ends with it. A POST that the server refuses was
not executed. A POST whose connection breaks may have been: its answer can no longer be expected.
"""

import asyncio
import contextlib
from collections.abc import Callable
from urllib.parse import urljoin

from limpet.auth.urls import origin
from limpet.errors import Broken, HttpRefused, NotSent, OutcomeUnknown, WireError
from limpet.transports.http import HttpAnswer
from limpet.upstream.http_link import GET_HEADERS, POST_HEADERS, discard, is_stream
from limpet.upstream.http_server import HttpServer
from limpet.wire.sse import EventParser, ReceivedEvent


class SseDuplex:
    """Our end of one such session. Call `open` first."""

    exit_status = None

    def __init__(self, server: HttpServer, keep: Callable[[int], None]) -> None:
        """`keep` charges the bytes of an event that is not complete; it raises WireError if there is no memory."""
        self._server = server
        self._keep = keep
        self._stream: HttpAnswer | None = None
        self._parser = EventParser(server.limits.line, server.limits.message)
        self._events: list[ReceivedEvent] = []
        self._endpoint = ""

    @property
    def last_words(self) -> str:
        """Nothing more is known."""
        return "its stream has ended"

    async def open(self) -> None:
        """Open the stream, and read where messages go.

        Raises:
            HttpRefused: the URL has no such stream.
            NotSent: the server cannot be reached, or names no endpoint in time.
        """
        self._stream = await self._server.open("GET", GET_HEADERS)
        try:
            self._endpoint = await self._read_endpoint(self._stream)
        except BaseException:
            self._close()
            raise

    async def _read_endpoint(self, stream: HttpAnswer) -> str:
        event: ReceivedEvent | None = None
        with contextlib.suppress(TimeoutError, Broken, WireError):
            async with asyncio.timeout(self._server.times.connect):
                event = await self._next() if is_stream(stream) else None
        if event is None or event.kind != "endpoint":
            raise HttpRefused(stream.status, "the answer to GET does not begin with an endpoint event")
        endpoint = urljoin(self._server.url, event.data.decode(errors="replace"))
        if origin(endpoint) != origin(self._server.url):
            raise HttpRefused(stream.status, "the endpoint of the server has another origin")
        return endpoint

    async def read(self) -> bytes:
        """Return the next message; b"" when the stream has ended."""
        try:
            while (event := await self._next()) is not None:
                if event.data and not event.kind:
                    return event.data
        except (Broken, WireError) as error:
            self._server.observer.note("client.stream_broke", error=error)
        self._close()
        return b""

    async def _next(self) -> ReceivedEvent | None:
        while not self._events:
            chunk = await self._stream.chunk() if self._stream is not None else b""
            if not chunk:
                return None
            self._events += self._parser.feed(chunk)
            self._keep(self._parser.kept)
        return self._events.pop(0)

    async def write(self, message: bytes) -> None:
        """Send a message.

        Raises:
            NotSent: the server has refused it, or cannot be reached.
            OutcomeUnknown: the connection broke. The others on the stream are not concerned.
        """
        try:
            answer = await self._server.open("POST", POST_HEADERS, message, url=self._endpoint)
        except HttpRefused as error:
            # The session is lost, and with it the stream; or it is the answer to every message.
            self._close()
            raise NotSent(str(error)) from error
        except Broken as error:
            raise OutcomeUnknown(
                f"{error}: it is unknown whether the server has received the message"
            ) from error
        await discard(answer, self._server.limits.refusal)

    async def aclose(self) -> None:
        """Close the stream, which ends the session."""
        self._close()

    def _close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
