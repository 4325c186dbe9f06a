"""The server that is checked: single HTTP requests, right or wrong on purpose, and a full account of each response.

A `SeenResponse` says everything that a probe judges: the status, the messages, their event ids, and how the response
ended. A response that does not come, or does not end, within the time limit is an outcome too.

Probes run at the same time. Each has a branch of the peer with its own open responses; the connections, the headers and
the limit of memory are shared. A response is read up to `BODY_BYTES`, and all responses together up to
`TOGETHER_BYTES`.
"""

import asyncio
from collections.abc import Mapping
from itertools import count
from typing import Any, Final

import msgspec

from limpet.checking.seen_response import EVENT_STREAM, SeenEvent, SeenResponse, Until
from limpet.errors import Broken, LimpetError, WireError
from limpet.transports.http import HttpAnswer, HttpClientOptions, HttpTransport
from limpet.wire.sse import EventParser

POST_HEADERS: Final = {"accept": f"application/json, {EVENT_STREAM}", "content-type": "application/json"}
GET_HEADERS: Final = {"accept": EVENT_STREAM}
BODY_BYTES: Final = 8 * 1024 * 1024
TOGETHER_BYTES: Final = 32 * 1024 * 1024
EVENTS: Final = 10_000
"""The most events of one response."""
_AFTERWARDS: Final = 0.3
"""How long a stream is read after its answer. A second answer would come within this time."""
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What JSON of a server can raise."""
_TOO_MANY: Final = 429


class TooManyRequests(LimpetError):
    """The server limits the number of requests. This says nothing about a rule of the specification."""


class _TooLarge(LimpetError):
    """A response is over the limit of bytes."""


class _Shared:
    """The part of a peer that all its branches use."""

    def __init__(self, patience: float) -> None:
        self.http: HttpTransport = HttpTransport(HttpClientOptions(connect_seconds=min(0.9 * patience, 5.0)))
        self.held: int = 0
        """Bytes of the responses that are being read."""
        self.tokens: count[int] = count(1)


class Peer:
    """Sends requests to one URL."""

    def __init__(
        self, url: str, headers: Mapping[str, str], patience: float, shared: _Shared | None = None
    ) -> None:
        self.url: str = url
        self.patience: float = patience
        """How long an answer may take, in seconds."""
        self._headers = {name.lower(): value for name, value in headers.items()}
        self._shared = shared or _Shared(patience)
        self._open: set[HttpAnswer] = set()

    def branch(self, headers: Mapping[str, str] | None = None) -> "Peer":
        """Return a peer with its own open responses; `headers` replace the headers of every request."""
        return Peer(self.url, self._headers if headers is None else headers, self.patience, self._shared)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of every request."""
        return self._headers

    @property
    def http(self) -> HttpTransport:
        """The connections, for requests without the headers."""
        return self._shared.http

    def next_token(self) -> str:
        """Return a progress token that no other request of this check has."""
        return f"limpet-check-{next(self._shared.tokens)}"

    async def send(
        self,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        until: Until | None = None,
        seconds: float | None = None,
    ) -> SeenResponse:
        """Send a request and read its response until its end, its answer, `until`, or the time limit.

        Raises:
            NotSent: no connection could be opened.
            TooManyRequests: the server limits the number of requests (429).
        """
        loop = asyncio.get_running_loop()
        begun, outcome = loop.time(), SeenResponse()
        answer: HttpAnswer | None = None
        try:
            async with asyncio.timeout(self.patience if seconds is None else seconds):
                answer = await self.open(method, headers, body)
                outcome.status, outcome.headers = answer.status, answer.headers()
                outcome.kind = answer.header("content-type").partition(";")[0].strip().lower()
                outcome.head = loop.time() - begun
                await _Reading(answer, outcome, self._shared, begun).run(until)
        except TimeoutError:
            outcome.ended = "late"
        except _TooLarge as error:
            outcome.ended, outcome.text = "large", str(error)
        except (Broken, WireError) as error:
            outcome.ended, outcome.text = "broken", str(error)
        finally:
            if answer is not None:
                answer.close()
                self._open.discard(answer)
        outcome.seconds = loop.time() - begun
        if outcome.status == _TOO_MANY:
            raise TooManyRequests(
                "the server limits the number of requests (429): allow the check more of them"
            )
        return outcome

    async def send_alone(self, method: str, headers: Mapping[str, str], body: bytes) -> SeenResponse:
        """Send a request as `send` does, on a new connection, which is closed afterwards."""
        other = Peer(self.url, self._headers, self.patience)
        try:
            return await other.send(method, headers, body)
        finally:
            await other.aclose()

    async def open(self, method: str, headers: Mapping[str, str], body: bytes | None = None) -> HttpAnswer:
        """Send a request and return its response unread. It is closed at the end of the probe at the latest.

        If the connection breaks before the response, the request is sent once more: a server may close a connection
        that was used before at any time.
        """
        sent = {**self._headers, **headers}
        try:
            answer = await self._shared.http.open(method, self.url, sent, body)
        except Broken:
            answer = await self._shared.http.open(method, self.url, sent, body)
        self._open.add(answer)
        return answer

    def release(self) -> None:
        """Close every response that a probe left open."""
        for answer in self._open:
            answer.close()
        self._open.clear()

    async def aclose(self) -> None:
        """Close every connection, also those of the branches."""
        await self._shared.http.aclose()


class _Reading:
    """Reads one response into its outcome, within the limits of bytes."""

    def __init__(self, answer: HttpAnswer, outcome: SeenResponse, shared: _Shared, begun: float) -> None:
        self._answer = answer
        self._outcome = outcome
        self._shared = shared
        self._begun = begun
        self._bytes = 0

    async def run(self, until: Until | None) -> None:
        try:
            if self._outcome.kind == EVENT_STREAM:
                await self._events(until)
            else:
                await self._body()
        finally:
            self._shared.held -= self._bytes

    async def _body(self) -> None:
        outcome = self._outcome
        parts: list[bytes] = []
        while part := await self._chunk():
            parts.append(part)
        body = b"".join(parts)
        try:
            found = msgspec.json.decode(body) if body else []
        except _UNREADABLE:
            outcome.text = body[:1_000].decode(errors="replace")
        else:
            outcome.events += [
                SeenEvent(one, at=self._passed()) for one in (found if isinstance(found, list) else [found])
            ]
        outcome.ended = "end"

    async def _events(self, until: Until | None) -> None:
        outcome, parser = self._outcome, EventParser(BODY_BYTES)
        deadline: float | None = None
        while True:
            chunk = await self._next(deadline)
            if not chunk:
                # None: the answer is there, and the stream stays open.
                outcome.ended = "left" if chunk is None else "end"
                return
            for received in parser.feed(chunk):
                event = SeenEvent(_message(received.data), received.id, received.retry, self._passed())
                outcome.events.append(event)
                if len(outcome.events) > EVENTS:
                    raise _TooLarge(f"more than {EVENTS} events, the most that the check reads")
                if until is not None and until(outcome):
                    outcome.ended = "left"
                    return
                if event.is_answer and deadline is None:
                    deadline = asyncio.get_running_loop().time() + _AFTERWARDS

    async def _next(self, deadline: float | None) -> bytes | None:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._chunk()
        except TimeoutError:
            if deadline is None:
                raise
            return None

    async def _chunk(self) -> bytes:
        chunk = await self._answer.chunk()
        self._bytes += len(chunk)
        self._shared.held += len(chunk)
        if self._bytes > BODY_BYTES:
            raise _TooLarge(f"more than {BODY_BYTES >> 20} MiB, the most that the check reads")
        if self._shared.held > TOGETHER_BYTES:
            raise _TooLarge(f"more than {TOGETHER_BYTES >> 20} MiB together with other responses")
        if chunk and not self._outcome.first_byte:
            self._outcome.first_byte = self._passed()
        return chunk

    def _passed(self) -> float:
        return asyncio.get_running_loop().time() - self._begun


def _message(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data) if data else None
    except _UNREADABLE:
        return data.decode(errors="replace")
