"""The server that is checked: single HTTP requests, right or wrong on purpose, and a full account of each response.

An `Outcome` says everything that a probe judges: the status, the messages, their event ids, and how the response ended. A
response that does not come, or does not end, within the time limit is an outcome too.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from holdfast.errors import Broken, WireError
from holdfast.transports.http import HttpAnswer, HttpOptions, HttpTransport
from holdfast.wire.sse import EventParser

EVENT_STREAM: Final = "text/event-stream"
POST_HEADERS: Final = {"accept": f"application/json, {EVENT_STREAM}", "content-type": "application/json"}
GET_HEADERS: Final = {"accept": EVENT_STREAM}
NO_ANSWER: Final = 0
"""The status of a request without a response."""
_BODY_BYTES: Final = 16 * 1024 * 1024
_AFTERWARDS: Final = 0.3
"""How long a stream is read after its answer. A second answer would come within this time."""
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What JSON of a server can raise."""
_SHOWN: Final = 120
_OK: Final = range(200, 300)
_REFUSALS: Final = range(400, 500)


class Event(Struct, frozen=True):
    """One event of a stream, or the JSON body of a response."""

    message: Any
    """None: an event without a message."""
    id: str | None = None


class Outcome(Struct, kw_only=True):
    """A response, as far as it was read."""

    status: int = NO_ANSWER
    kind: str = ""
    """The media type."""
    headers: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    events: list[Event] = msgspec.field(default_factory=list)
    text: str = ""
    """A body that is not JSON, or the reason of a missing response."""
    ended: str = "late"
    """`end`; `late`: not within the time limit; `broken`: by the connection; `left`: by us."""
    first_byte: float = 0.0
    """Seconds until the first byte of the body."""
    seconds: float = 0.0

    @property
    def answers(self) -> list[dict[str, Any]]:
        """The JSON-RPC responses."""
        messages = [event.message for event in self.events]
        return [one for one in messages if isinstance(one, dict) and ("result" in one or "error" in one)]

    @property
    def result(self) -> Any:
        """The result of the only answer; None if there is another number of answers, or an error."""
        answers = self.answers
        return answers[0].get("result") if len(answers) == 1 else None

    @property
    def code(self) -> int | None:
        """The code of the first error; None if there is no error."""
        for answer in self.answers:
            error = answer.get("error")
            if isinstance(error, dict) and isinstance(error.get("code"), int):
                return int(error["code"])
        return None

    @property
    def is_ok(self) -> bool:
        """True for a status of 200 to 299."""
        return self.status in _OK

    @property
    def is_refusal(self) -> bool:
        """True for a status of 400 to 499, or a JSON-RPC error with another status than 500 to 599."""
        return self.status in _REFUSALS or (self.is_ok and self.code is not None)

    def __str__(self) -> str:
        """Describe it in a few words."""
        if self.status == NO_ANSWER:
            return f"no response within {self.seconds:.1f} s" if self.ended == "late" else self.text[:_SHOWN]
        said = f"status {self.status}"
        if self.code is not None:
            said += f" with the error {self.code}"
        elif self.answers:
            said += " with a result"
        elif self.text:
            said += f" ({self.text[:_SHOWN].strip()})"
        elif self.is_ok:
            said += " and no answer" + (f" within {self.seconds:.1f} s" if self.ended == "late" else "")
        return said


Until = Callable[[Outcome], bool]
"""Says after each event whether enough was read. Then the connection is cut."""


class Peer:
    """Sends requests to one URL."""

    def __init__(self, url: str, headers: Mapping[str, str], patience: float) -> None:
        self.url: str = url
        self.patience: float = patience
        """How long an answer may take, in seconds."""
        self._headers = {name.lower(): value for name, value in headers.items()}
        self._http = HttpTransport(HttpOptions(connect_seconds=min(patience, 5.0)))
        self._open: set[HttpAnswer] = set()

    async def send(
        self,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        until: Until | None = None,
        seconds: float | None = None,
    ) -> Outcome:
        """Send a request and read its response until its end, its answer, `until`, or the time limit.

        Raises:
            NotSent: no connection could be opened.
        """
        loop = asyncio.get_running_loop()
        begun, outcome = loop.time(), Outcome()
        answer: HttpAnswer | None = None
        try:
            async with asyncio.timeout(self.patience if seconds is None else seconds):
                answer = await self.open(method, headers, body)
                outcome.status, outcome.headers = answer.status, answer.headers()
                outcome.kind = answer.header("content-type").partition(";")[0].strip().lower()
                await _read(answer, outcome, until, begun)
        except TimeoutError:
            outcome.ended = "late"
        except (Broken, WireError) as error:
            outcome.ended, outcome.text = "broken", str(error)
        finally:
            if answer is not None:
                answer.close()
                self._open.discard(answer)
        outcome.seconds = loop.time() - begun
        return outcome

    async def open(self, method: str, headers: Mapping[str, str], body: bytes | None = None) -> HttpAnswer:
        """Send a request and return its response unread. It is closed at the end of the probe at the latest.

        If the connection breaks before the response, the request is sent once more: a server may close a connection
        that was used before at any time.
        """
        sent = {**self._headers, **headers}
        try:
            answer = await self._http.open(method, self.url, sent, body)
        except Broken:
            answer = await self._http.open(method, self.url, sent, body)
        self._open.add(answer)
        return answer

    def release(self) -> None:
        """Close every response that a probe left open."""
        for answer in self._open:
            answer.close()
        self._open.clear()

    async def aclose(self) -> None:
        """Close every connection."""
        await self._http.aclose()


async def _read(answer: HttpAnswer, outcome: Outcome, until: Until | None, begun: float) -> None:
    loop = asyncio.get_running_loop()
    if outcome.kind != EVENT_STREAM:
        body = await answer.body(_BODY_BYTES)
        outcome.first_byte = loop.time() - begun
        try:
            found = msgspec.json.decode(body) if body else []
        except _UNREADABLE:
            outcome.text = body[:1_000].decode(errors="replace")
        else:
            outcome.events += [Event(one) for one in (found if isinstance(found, list) else [found])]
        outcome.ended = "end"
        return
    parser = EventParser(_BODY_BYTES)
    deadline: float | None = None
    while True:
        chunk = await _next(answer, deadline)
        if chunk is None:
            # The answer is there; the stream stays open.
            outcome.ended = "left"
            return
        if not chunk:
            outcome.ended = "end"
            return
        outcome.first_byte = outcome.first_byte or loop.time() - begun
        for received in parser.feed(chunk):
            outcome.events.append(Event(_message(received.data), received.id))
            if until is not None and until(outcome):
                outcome.ended = "left"
                return
        if outcome.answers and deadline is None:
            deadline = loop.time() + _AFTERWARDS


async def _next(answer: HttpAnswer, deadline: float | None) -> bytes | None:
    try:
        async with asyncio.timeout_at(deadline):
            return await answer.chunk()
    except TimeoutError:
        if deadline is None:
            raise
        return None


def _message(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data) if data else None
    except _UNREADABLE:
        return data.decode(errors="replace")
