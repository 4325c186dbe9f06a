"""A conversation over Streamable HTTP, in either era: every message a POST of its own.

A call reads its own answer in its own task: nothing it does or suffers reaches another call. In the
session era a stream that breaks is resumed after the last event that came with an id; in 2026-07-28
it is not, and closing it is how a call is cancelled.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from holdfast.auth.authorizer import Authorizer, Challenge
from holdfast.client.backoff import Backoff
from holdfast.client.calls import Call
from holdfast.client.http_status import MARK, MOVED, UNAUTHORIZED, moved_to, refused, seconds_to_wait
from holdfast.client.link import Receiver, SessionLost
from holdfast.client.settings import ClientLimits, ClientTimes
from holdfast.errors import PARSE_ERROR, BadAnswer, Broken, HoldfastError, HttpRefused, LinkError, WireError
from holdfast.ports import Clock, Observer, Random
from holdfast.protocol.mirror import encode_value
from holdfast.protocol.sessionless import NAMED, VERSION
from holdfast.wire.jsonrpc import Response, decode, notification_message, request_message
from holdfast.wire.sse import EventParser

if TYPE_CHECKING:
    from holdfast.transports.http import HttpAnswer, HttpTransport

SESSION: Final = "mcp-session-id"
EVENTS: Final = "text/event-stream"
ACCEPTED: Final = 202
OK: Final = 200
NO_STREAM: Final = 405
REFUSED: Final = 400
MOST_MOVES: Final = 3
MOST_CHALLENGES: Final = 4
"""A step-up may need several; a server that is never satisfied is no server of ours."""
POST_HEADERS: Final = {"accept": f"application/json, {EVENTS}", "content-type": "application/json"}
GET_HEADERS: Final = {"accept": EVENTS}


class Surroundings:
    """What every link of one client is given."""

    __slots__ = ("authorizer", "clock", "headers", "http", "limits", "observer", "random", "times", "url")

    def __init__(
        self,
        url: str,
        http: "HttpTransport",
        authorizer: Authorizer | None,
        headers: Mapping[str, str],
        limits: ClientLimits,
        times: ClientTimes,
        ports: tuple[Clock, Random, Observer],
    ) -> None:
        self.url: str = url
        self.http: HttpTransport = http
        self.authorizer: Authorizer | None = authorizer
        self.headers: Mapping[str, str] = headers
        self.limits: ClientLimits = limits
        self.times: ClientTimes = times
        self.clock: Clock
        self.random: Random
        self.observer: Observer
        self.clock, self.random, self.observer = ports

    def backoff(self) -> Backoff:
        return Backoff(self.random, self.times.backoff)


class HttpLink:
    """One session of the handshake era, or the sessionless conversation of 2026-07-28."""

    def __init__(self, around: Surroundings, receiver: Receiver) -> None:
        self.version = VERSION
        self.is_modern = True
        self.lost: bool = False
        self._around = around
        self._receiver = receiver
        self._session = ""
        self._initialized = False
        self._standalone: asyncio.Task[None] | None = None
        self._heard = asyncio.Event()
        self._farewells: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<HttpLink {self.version}{' lost' if self.lost else ''}, {self._receiver.calls}>"

    # Calls

    async def request(self, call: Call, headers: Mapping[str, str]) -> Any:
        """Send a call and return its result; see `Link`. Cancelled, it tells the server so."""
        message = request_message(call.id, call.method, call.params)
        self._receiver.calls.add(call)
        answer: HttpAnswer | None = None
        try:
            answer = await self._head(call, self._mirrored(call, headers), message)
            if answer is None:
                return call.answer.result()
            if call.method == "initialize":
                self._session, self._initialized = answer.header(SESSION), True
            if answer.header("content-type").partition(";")[0].strip().lower() == EVENTS:
                return await self._follow(answer, call)
            return await self._read(answer, call)
        except asyncio.CancelledError:
            self._tell_cancelled(call)
            raise
        except SessionLost:
            self._lose()
            raise
        finally:
            self._receiver.calls.remove(call)
            if answer is not None:
                answer.close()

    async def _head(self, call: Call, headers: Mapping[str, str], message: bytes) -> "HttpAnswer | None":
        """Send a call and wait for its answer's head; None if the call ended before that by other means."""
        task = asyncio.current_task()
        is_waiting = True

        def wake(_done: object) -> None:
            if is_waiting and task is not None:
                task.cancel()

        call.answer.add_done_callback(wake)
        try:
            return await self._open("POST", headers, message)
        except asyncio.CancelledError:
            if task is not None and call.answer.done() and not task.uncancel():
                return None
            raise
        finally:
            is_waiting = False
            call.answer.remove_done_callback(wake)

    async def _read(self, answer: "HttpAnswer", call: Call) -> Any:
        """Read an answer that is one JSON body."""
        try:
            body = await answer.body(self._around.limits.message)
            if answer.status == ACCEPTED or not body:
                raise BadAnswer(f"the server answered {call.method} with HTTP {answer.status} and no content")
            message = decode(body, max_depth=self._around.limits.depth)
        except WireError as error:
            # Garbage may come from anybody on the way; an answer over the limit would come again.
            kind = Broken if error.code == PARSE_ERROR else BadAnswer
            raise kind(f"the answer to {call.method} cannot be read: {error}") from None
        for one in message if isinstance(message, list) else (message,):
            if isinstance(one, Response) and one.id == call.id:
                call.settle(one)
            else:
                self._receiver.take_message(self, one)
        if not call.answer.done():
            raise BadAnswer(f"the server answered {call.method} with another message than its answer")
        return call.answer.result()

    async def _follow(self, answer: "HttpAnswer", call: Call) -> Any:
        """Read a stream until the call's answer is there, coming back for the rest where that is possible."""
        stream = _Stream(self._around)
        resumed: HttpAnswer | None = answer
        while resumed is not None:
            # The answer may come by another stream; then nobody needs to read this one.
            _close_with(call, resumed)
            await self._drink(resumed, stream, call)
            if call.answer.done():
                break
            if self.is_modern or not stream.last_id:
                raise Broken(f"the stream ended before the answer to {call.method}")
            resumed = await self._resume(stream, call)
        return call.answer.result()

    async def _drink(self, answer: "HttpAnswer", stream: "_Stream", call: Call | None) -> None:
        """Read a stream to its end, or to the call's answer; how it ends does not matter."""
        parser = EventParser(self._around.limits.line, self._around.limits.message)
        try:
            while call is None or not call.answer.done():
                chunk = await stream.next(answer)
                if not chunk:
                    return
                for event in parser.feed(chunk):
                    stream.saw(event.id, event.retry)
                    if event.data:
                        self._receiver.take(self, event.data)
        except (Broken, WireError, TimeoutError) as error:
            if call is None or not call.answer.done():
                self._around.observer.note("client.stream_broke", error=error)
        finally:
            answer.close()

    async def _resume(self, stream: "_Stream", call: Call) -> "HttpAnswer | None":
        """Come back for the rest of a call's stream; None if its answer came by another meanwhile.

        Raises:
            Broken: the rest cannot be had; nobody knows what became of the call.
        """
        deadline = self._around.clock.now() + self._around.times.patience
        while True:
            pause = stream.backoff.pause()
            if self._around.clock.now() + pause > deadline and stream.backoff_failed:
                raise Broken(f"the stream of {call.method} broke and could not be resumed in time")
            await self._pause(pause, call)
            if call.answer.done():
                return None
            try:
                answer = await self._open("GET", GET_HEADERS | {"last-event-id": stream.last_id})
            except SessionLost:
                self._lose()
                raise Broken(f"the session was lost while {call.method} was under way") from None
            except (LinkError, HttpRefused) as error:
                if isinstance(error, HttpRefused):
                    raise Broken(f"the stream of {call.method} cannot be resumed: {error}") from None
                stream.backoff_failed = True
                continue
            stream.backoff_failed = False
            return answer

    @staticmethod
    async def _pause(seconds: float, call: Call) -> None:
        await asyncio.wait({call.answer}, timeout=seconds)

    def _tell_cancelled(self, call: Call) -> None:
        # In 2026-07-28 closing the stream says it.
        if self.is_modern or self.lost or call.method == "initialize":
            return
        params = {"requestId": call.id, "reason": "cancelled by the caller"}
        self._farewell(self.notify(notification_message("notifications/cancelled", params)))

    # Other messages

    async def notify(self, message: bytes) -> None:
        """Send a notification; see `Link`."""
        answer = await self._open("POST", POST_HEADERS, message)
        await _discard(answer, self._around.limits.refusal)

    async def answer(self, message: bytes) -> None:
        """Send an answer, again and again while the server cannot be reached: it takes only the first."""
        backoff = self._around.backoff()
        deadline = self._around.clock.now() + self._around.times.patience
        while True:
            try:
                await self.notify(message)
            except SessionLost:
                self._lose()
                return
            except LinkError as error:
                pause = backoff.pause(getattr(error, "retry_after", None))
                if self.lost or self._around.clock.now() + pause > deadline:
                    raise
                await asyncio.sleep(pause)
            except HoldfastError as error:
                self._around.observer.note("client.answer_lost", error=error)
                return
            else:
                return

    # The stream that belongs to no call

    async def settled(self) -> None:
        """Listen to what the server says by itself (session era).

        Waits a moment for the stream: some servers drop what they say while there is none.
        """
        if not self.is_modern and self._standalone is None:
            self._standalone = asyncio.get_running_loop().create_task(self._listen())
            heard = asyncio.get_running_loop().create_task(self._heard.wait())
            await asyncio.wait(
                {self._standalone, heard},
                timeout=self._around.times.standalone,
                return_when=asyncio.FIRST_COMPLETED,
            )
            heard.cancel()

    async def _listen(self) -> None:
        stream = _Stream(self._around)
        while not self.lost:
            headers = GET_HEADERS | ({"last-event-id": stream.last_id} if stream.last_id else {})
            try:
                answer = await self._open("GET", headers)
            except SessionLost:
                self._lose()
                return
            except LinkError:
                self._heard.set()
                await asyncio.sleep(stream.backoff.pause())
                continue
            except HoldfastError as error:
                if not stream.last_id:
                    # 405: the server has no such stream. Anything else is not going to change either.
                    self._around.observer.note("client.no_standalone_stream", error=error)
                    return
                stream.last_id = ""
                continue
            self._heard.set()
            await self._drink(answer, stream, None)
            await asyncio.sleep(stream.backoff.pause())

    # Ending

    def _lose(self) -> None:
        """The server does not know the session: nothing new goes this way, and what is under way gets a moment."""
        if self.lost:
            return
        self.lost = True
        self._receiver.forget(self)
        loop = asyncio.get_running_loop()
        lost = Broken("the session was lost while the call was under way")
        loop.call_later(self._around.times.settle, self._receiver.calls.fail_all, lambda _call: lost)

    async def aclose(self, *, goodbye: bool = True) -> None:
        """End the conversation; the server is told if it knows us."""
        was_lost, self.lost = self.lost, True
        self._receiver.forget(self)
        if self._standalone is not None:
            self._standalone.cancel()
            await asyncio.wait({self._standalone})
        await self._say_farewells()
        if goodbye and self._session and not was_lost:
            self._farewell(self._delete())
            await self._say_farewells()

    async def _say_farewells(self) -> None:
        """Wait a little for what is still being said."""
        if self._farewells:
            await asyncio.wait(self._farewells, timeout=self._around.times.close)
        for task in self._farewells:
            task.cancel()

    async def _delete(self) -> None:
        answer = await self._open("DELETE", {})
        await _discard(answer, self._around.limits.refusal)

    def _farewell(self, work: Any) -> None:
        async def quietly() -> None:
            try:
                await work
            except HoldfastError as error:
                self._around.observer.note("client.farewell_failed", error=error)

        task = asyncio.get_running_loop().create_task(quietly())
        self._farewells.add(task)
        task.add_done_callback(self._farewells.discard)

    # Requests

    def _mirrored(self, call: Call, headers: Mapping[str, str]) -> dict[str, str]:
        """Return a call's headers; in 2026-07-28 they repeat what the body says."""
        made = {**POST_HEADERS, **headers}
        if self.is_modern:
            made["mcp-method"] = call.method
            name = call.params.get(NAMED.get(call.method, ""))
            if isinstance(name, str):
                made["mcp-name"] = encode_value(name)
        return made

    async def _open(self, method: str, headers: Mapping[str, str], body: bytes | None = None) -> "HttpAnswer":
        """Send a request and return its answer, if it is one.

        Raises:
            HoldfastError: what the answer stands for; see `http_status`.
        """
        around = self._around
        url, moves, challenges = around.url, 0, 0
        while True:
            credentials = await around.authorizer.headers(method, url) if around.authorizer else {}
            answer = await around.http.open(method, url, {**self._standing(), **headers, **credentials}, body)
            if answer.status < 300:  # noqa: PLR2004 - every 2xx
                return _streaming(answer) if method == "GET" else answer
            if answer.status in MOVED and moves < MOST_MOVES:
                answer.close()
                has_credentials = bool(credentials) or "authorization" in around.headers
                url = moved_to(answer.status, url, answer.header("location"), has_credentials=has_credentials)
                moves += 1
                continue
            challenges += 1
            if not await self._is_satisfied(answer, method, url, credentials, challenges):
                raise await self._refusal(answer)

    async def _is_satisfied(
        self, answer: "HttpAnswer", method: str, url: str, credentials: Mapping[str, str], attempt: int
    ) -> bool:
        """Ask the authorizer whether it has something better to offer."""
        authorizer = self._around.authorizer
        if authorizer is None or answer.status not in UNAUTHORIZED or attempt > MOST_CHALLENGES:
            return False
        challenge = Challenge(
            method=method,
            url=url,
            status=answer.status,
            headers=answer.headers(),
            sent=credentials,
            attempt=attempt,
        )
        try:
            is_satisfied = await authorizer.challenged(challenge)
        except BaseException:
            answer.close()
            raise
        if is_satisfied:
            answer.close()
        return is_satisfied

    async def _refusal(self, answer: "HttpAnswer") -> HoldfastError:
        try:
            body = await answer.body(self._around.limits.refusal)
        except (Broken, WireError):
            body = b""
        wait = seconds_to_wait(answer.header("retry-after"), self._around.clock.wall())
        mark = answer.header(MARK)
        return refused(answer.status, body, wait, in_session=bool(self._session), mark=mark)

    def _standing(self) -> dict[str, str]:
        """Return the headers of every request in this conversation."""
        standing = dict(self._around.headers)
        if self.is_modern or self._initialized:
            standing["mcp-protocol-version"] = self.version
        if self._session:
            standing[SESSION] = self._session
        return standing


class _Stream:
    """What is remembered of a stream from one connection to the next."""

    __slots__ = ("_silence", "backoff", "backoff_failed", "last_id")

    def __init__(self, around: Surroundings) -> None:
        self._silence = around.times.silence
        self.backoff = around.backoff()
        self.backoff_failed = False
        self.last_id = ""

    def saw(self, event_id: str | None, retry: int | None) -> None:
        self.backoff.worked()
        if event_id is not None:
            self.last_id = event_id
        if retry is not None:
            self.backoff.hint = retry / 1_000

    async def next(self, answer: "HttpAnswer") -> bytes:
        """Return the next bytes. A stream that could be resumed may not be silent for ever."""
        if not self.last_id:
            return await answer.chunk()
        async with asyncio.timeout(self._silence):
            return await answer.chunk()


def _close_with(call: Call, answer: "HttpAnswer") -> None:
    """Close a stream when its call's answer is there."""
    call.answer.add_done_callback(lambda _done: answer.close())


def _streaming(answer: "HttpAnswer") -> "HttpAnswer":
    if answer.header("content-type").partition(";")[0].strip().lower() == EVENTS:
        return answer
    answer.close()
    raise HttpRefused(answer.status, "the server answered GET with something else than a stream of events")


async def _discard(answer: "HttpAnswer", limit: int) -> None:
    """Read a short answer to its end, so that its connection can be used again."""
    try:
        await answer.body(limit)
    except (Broken, WireError):
        answer.close()
