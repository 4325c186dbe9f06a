"""One exchange and the request by which the server behind us answers it.

    client's exchange            Call                              server
    ─────────────────            ────────────────────────────      ─────────────────────────────────
    request            ────────▶ own id, own progress token ─────▶ request
    progress           ◀──────── the client's token         ◀───── progress
    log message        ◀──────── the client's level         ◀───── log message
    ask                ◀──────── exchange.ask               ◀───── request of the server   (2025)
    answer             ────────▶                            ─────▶ response
    ask                ◀──────── exchange.ask, each one     ◀───── input_required result   (2026-07-28)
    answer             ────────▶ the request once more      ─────▶ retry with the answers
    result             ◀──────── after every message        ◀───── result

`exchange.ask` serves clients of both eras: it sends a request on the stream of a session, and it parks the call of a
2026-07-28 client. So the two rows above, one for each era of the server, are enough for all four combinations of eras.

The client's ids and tokens never reach the server, so a client that uses one id twice cannot confuse it.

The deadline limits the time without a message of the server. Progress starts it again. It does not count while the
client is asked: the engine limits the time of an ask. It does not count either while the server waits for a client that
reads slowly.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Coroutine, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from limpet.backs.proxy.headers import CallHeaders
from limpet.backs.proxy.outbox import Outbox, Space
from limpet.backs.proxy.silence import Silence, Wait
from limpet.backs.proxy.translation import InputRequired, input_required, request_params
from limpet.core.exchange import ExchangeState
from limpet.core.ledger import Charge
from limpet.engine.back import Outside
from limpet.engine.exchange import Exchange
from limpet.engine.handling import COPIES
from limpet.engine.inner import InnerExchange
from limpet.engine.load import LARGE
from limpet.errors import (
    ANSWER_DROPPED,
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    AskError,
    AskRefused,
    BadAnswer,
    CallEnded,
    ClientError,
    HeaderMismatch,
    HttpRefused,
    LimpetError,
    McpError,
    MethodNotFound,
    NotSent,
    OutcomeUnknown,
    SignInRequired,
    UpstreamFailed,
    UpstreamUnavailable,
    UrlElicitationRequired,
)
from limpet.ports import Observer
from limpet.protocol.hand_over import COLLECT_PAUSE, TICKET_MARK, ticket_of
from limpet.protocol.methods import METHODS, REPEATABLE
from limpet.protocol.params import LOGGING_LEVELS, ProgressToken, progress_token
from limpet.protocol.sessionless import SUSPENDABLE
from limpet.protocol.versions import SESSIONLESS
from limpet.upstream.connection import Connection
from limpet.upstream.pending import NO_HEADERS
from limpet.wire.jsonrpc import Request

ROUNDS: Final = 10
"""How often a 2026-07-28 server may ask for input within one call."""
ASKS: Final = frozenset({"sampling/createMessage", "elicitation/create", "roots/list"})
"""The requests of a server to a client that revisions define. One that an extension defines passes, if there is a
way."""
NEVER_ASK: Final = frozenset(METHODS) - SUSPENDABLE
"""Requests during which a server does not ask. One that an extension defines may."""


class Call:
    """A client's request on its way to the server and back."""

    __slots__ = ("_charge", "_collects", "_headers", "_observer", "_outbox", "_outside", "_progress", "_silence", "_space", "_wait", "exchange", "is_over", "questions")  # fmt: skip

    def __init__(
        self,
        exchange: Exchange,
        *,
        silence: Silence,
        space: Space,
        observer: Observer,
        outside: Outside,
        headers: CallHeaders | None = None,
    ) -> None:
        self.exchange: Exchange = exchange
        self._collects = False
        """True if the server has handed the call over, and we collect its result."""
        self._headers = headers
        self._silence = silence
        self._wait: Wait | None = None
        """While the server has the request."""
        self._progress: float | None = None
        self._space = space
        self._observer = observer
        self._outside = outside
        self._charge: Charge | None = None
        """For an answer that is being read: most arrive as a whole."""
        self._outbox: Outbox | None = None
        """Exists from the first message on: most calls have none."""
        self.is_over: bool = False
        """True if the server has answered, or its answer is no longer awaited."""
        self.questions: int = 0
        """How many questions wait for an answer on its stream."""
        if isinstance(exchange, InnerExchange):
            exchange.on_handed_over = self._handed_over

    @property
    def may_ask(self) -> bool:
        """True if the server may ask the client during this call: lists never do."""
        return self.exchange.request.method not in NEVER_ASK

    @property
    def is_connected(self) -> bool:
        """False if no connection reads its answer at present."""
        return self.exchange.is_connected

    def _handed_over(self) -> None:
        """Do not limit the silence of the server any more: the task has its own time."""
        if self._wait is not None:
            self._wait.pause()

    async def run(self, connection: Connection, *, sessionless: bool) -> bytes:
        """Return the server's result as JSON text.

        Raises:
            McpError: the server's own error, or ours if it cannot be reached, is silent, or breaks off.
        """
        request = self.exchange.inner
        method, params = request.method, request_params(request.method, request.params)
        # Some servers return `input_required` in sessions too. A client of 2026-07-28 is asked for it.
        is_sessionless = sessionless or self.exchange.session.revision is SESSIONLESS
        send = self._send if self._headers is None else partial(self._with_headers, self._headers)
        retry: dict[str, Any] = {}
        try:
            for _ in range(ROUNDS):
                wait = self._wait = Wait(self._silence)
                if self.exchange.state is ExchangeState.TASK:
                    wait.pause()
                result = bytes(await send(connection, method, {**params, **retry} if retry else params))
                self._wait = None
                wait.end()
                asked = input_required(result) if is_sessionless else None
                if asked is None:
                    if self._outbox is None and type(self.exchange) is not InnerExchange:
                        return result
                    return await self._last(connection, result, sessionless=sessionless)
                retry = await self._answered(asked)
        except asyncio.CancelledError:
            if not self._end_wait():
                raise
            raise silent(method, self._silence.seconds) from None
        except (NotSent, ClientError) as error:
            raise _failed(method, error) from error
        finally:
            self._end_wait()
            if self._outbox is not None:
                self._outbox.close()
            if self._charge is not None:
                self._charge.free()
                self._charge = None
        raise McpError(
            INTERNAL_ERROR, f"the server behind this one asked for input in more than {ROUNDS} rounds"
        )

    async def _last(self, connection: Connection, result: bytes, *, sessionless: bool) -> bytes:
        """Return the last result after every message, and collect it if it is a ticket."""
        if self._outbox is not None:
            await self._outbox.flush()
        if TICKET_MARK in result and type(self.exchange) is InnerExchange and not self._collects:
            return await self._collected(connection, result, sessionless=sessionless)
        return result

    async def _collected(self, connection: Connection, result: bytes, *, sessionless: bool) -> bytes:
        """Return the result of a call that the server itself has handed over, if the result is a ticket.

        The ticket is of no use to our client, which knows our own tool that collects. We hand over the call too, if it
        takes long.
        """
        own, params = self.exchange.inner, dict[str, Any]()
        self._collects = True
        try:
            while (ticket := ticket_of(msgspec.json.decode(result))) is not None:
                if params:
                    await asyncio.sleep(COLLECT_PAUSE)
                params = {"name": ticket.collect, "arguments": {"ticket": ticket.ticket}}
                self.exchange.inner, self._outbox = Request(own.id, own.method, params), None
                result = await self.run(connection, sessionless=sessionless)
        except asyncio.CancelledError:
            # The end of our request does not stop the call there.
            stopping = {**params, "arguments": {**params["arguments"], "cancel": True}}
            with contextlib.suppress(LimpetError, TimeoutError):
                async with asyncio.timeout(self._silence.seconds):
                    await self._send(connection, own.method, stopping)
            raise
        finally:
            self.exchange.inner = own
        return result

    async def _with_headers(
        self, headers: CallHeaders, connection: Connection, method: str, params: dict[str, Any]
    ) -> Any:
        try:
            return await self._send(connection, method, params, await headers.of(self.exchange))
        except McpError as error:
            if error.code != HEADER_MISMATCH or isinstance(error, HeaderMismatch):
                raise
        # The server refused the call because of its headers, before it executed anything.
        return await self._send(connection, method, params, await headers.of(self.exchange, is_refused=True))

    def _send(
        self,
        connection: Connection,
        method: str,
        params: dict[str, Any],
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> Coroutine[Any, Any, Any]:
        # An answer that hands the call over may have to say how far it is.
        wants_progress = self._token() is not None or isinstance(self.exchange, InnerExchange)
        return connection.request(
            method,
            params,
            on_progress=self._on_progress if wants_progress else None,
            headers=headers,
            may_repeat=self._collects or method in REPEATABLE,
            owner=self,
        )

    def _end_wait(self) -> bool:
        """Stop limiting the silence of the server. True if it was silent for too long."""
        wait, self._wait = self._wait, None
        return wait is not None and wait.end()

    # From the server

    def _token(self) -> ProgressToken | None:
        """Return the progress token of the client's request, which may be a retry by now."""
        meta = self.exchange.request.params.get("_meta")
        return progress_token(meta) if type(meta) is dict else None

    def _on_progress(self, params: dict[str, Any]) -> None:
        """Forward progress under the client's own token. Values that do not increase are dropped."""
        if self._wait is not None:
            self._wait.restart()
        progress, token, exchange = params.get("progress"), self._token(), self.exchange
        if isinstance(progress, bool) or not isinstance(progress, int | float):
            return
        if self._progress is not None and progress <= self._progress:
            return
        self._progress = progress
        if token is not None or exchange.state is ExchangeState.TASK:
            self._put("notifications/progress", {**params, "progressToken": 0 if token is None else token})
        else:
            total, message = params.get("total"), params.get("message")
            is_number = isinstance(total, int | float) and not isinstance(total, bool)
            exchange.note_progress(
                progress, total if is_number else None, message if isinstance(message, str) else None
            )

    def send(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification of the server to the client, within its exchange. Never waits."""
        if method != "notifications/message" or self._wants(params.get("level")):
            self._put(method, params)

    def _put(self, method: str, params: dict[str, Any]) -> None:
        if self._outbox is None:
            self._outbox = Outbox(self.exchange.notify, self._space, self._observer)
        self._outbox.put(method, params)

    def _wants(self, level: object) -> bool:
        client = self.exchange.session
        wanted = client.record.level
        if not wanted:
            # A session that set no level gets all messages of the server; in 2026-07-28 such a client gets no messages.
            return client.revision is not SESSIONLESS
        ranks: dict[Any, int] = {**LOGGING_LEVELS}
        return ranks.get(level, len(ranks)) >= ranks.get(wanted, 0)

    async def ask(self, method: str, params: dict[str, Any], key: str | None = None) -> Any:
        """Ask the client within its exchange and return its result. `key` is the name that a 2026-07-28 server gave.

        Raises:
            McpError: for the server: the client's own error, or why the client could not be asked.
            CallEnded: the exchange has ended.
        """
        self.questions += 1
        with self.paused():
            try:
                return await self.exchange.ask(method, params, key=key)
            except CallEnded:
                raise
            except AskError as error:
                raise unasked(error) from error
            finally:
                self.questions -= 1

    def received(self, size: int) -> None:
        """Charge bytes that have arrived and are not taken: a part of a long message, or messages before a slow client.

        0: all are taken. The engine charges a whole answer (`handling.py`).

        Raises:
            OutcomeUnknown: there is no memory for it.
        """
        if size < LARGE:
            if self._charge is not None:
                self._charge.free()
            return
        if self._charge is None:
            self._charge = self._outside.charge(self.exchange.caller, 0, urgent=True)
        if self._charge is None or not self._charge.grow(size * COPIES, urgent=True):
            raise OutcomeUnknown(ANSWER_DROPPED)

    def room(self) -> Awaitable[None] | None:
        """Return an awaitable if many messages wait for a slow client: the next one of this call is read after it."""
        outbox = self._outbox
        return self._flush(outbox) if outbox is not None and outbox.is_crowded else None

    async def _flush(self, outbox: Outbox) -> None:
        with self.paused():
            await outbox.flush()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the time: the server waits for the client."""
        wait = self._wait
        if wait is not None:
            wait.pause()
        try:
            yield
        finally:
            if wait is not None:
                wait.resume()

    async def _answered(self, asked: InputRequired) -> dict[str, Any]:
        """Ask the client for everything that a result asks for, at once; return the members of the retry."""
        questions = {key: _question(request) for key, request in asked.requests.items()}
        tasks: dict[str, asyncio.Task[Any]] = {}
        async with asyncio.TaskGroup() as group:
            for key, question in questions.items():
                tasks[key] = group.create_task(self._one_answer(key, *question))
        answers = {key: task.result() for key, task in tasks.items()}
        for answer in answers.values():
            if isinstance(answer, McpError):
                raise answer
        retry: dict[str, Any] = {"inputResponses": answers} if answers else {}
        return retry if asked.state is None else {**retry, "requestState": asked.state}

    async def _one_answer(self, key: str, method: str, params: dict[str, Any]) -> Any:
        try:
            return await self.ask(method, params, key)
        except McpError as error:
            return error


@contextlib.contextmanager
def paused(calls: Iterable[Call]) -> Iterator[None]:
    """Do not count the time of any of these calls."""
    with contextlib.ExitStack() as pauses:
        for call in calls:
            pauses.enter_context(call.paused())
        yield


def _question(request: Any) -> tuple[str, dict[str, Any]]:
    method = request.get("method") if isinstance(request, dict) else None
    params = request.get("params") if isinstance(request, dict) else None
    if type(method) is not str:
        raise McpError(INTERNAL_ERROR, "the server behind this one asks, and does not say for what")
    return method, params if isinstance(params, dict) else {}


def unasked(error: AskError) -> McpError:
    """Return the server's error for a question without an answer: the client's own, or why it was not asked."""
    if isinstance(error, AskRefused):
        return McpError(error.code, error.message, error.data)
    return McpError(INVALID_REQUEST, str(error))


def unreachable(error: NotSent) -> UpstreamUnavailable:
    """Return the client's error for a server that cannot be reached: nothing was executed."""
    return UpstreamUnavailable(
        f"Busy: the server behind this one cannot be reached, and nothing was executed: {error}"
    )


def unusable(error: ClientError) -> McpError:
    """Return the client's error for a response that is not usable, or for a refused or missing sign-in."""
    if isinstance(error, SignInRequired):
        name = hashlib.sha256(error.url.encode()).hexdigest()[:16]
        page = {
            "mode": "url",
            "message": "Sign in to the server behind this one",
            "url": error.url,
            "elicitationId": name,
        }
        return UrlElicitationRequired(page, message=str(error))
    reason = "its response is not usable" if isinstance(error, BadAnswer) else "it refused the request"
    return UpstreamFailed(f"the server behind this one failed: {reason}: {error}")


def _failed(method: str, error: NotSent | ClientError) -> McpError:
    """Return the client's error for a call that the server has not answered."""
    if isinstance(error, NotSent):
        return unreachable(error)
    if type(error) is HttpRefused and method not in METHODS:
        # Some servers refuse a method that they do not know without a JSON-RPC error.
        return MethodNotFound(f"{method[:100]}: {error}")
    return unusable(error)


def silent(method: str, seconds: float) -> OutcomeUnknown:
    """Return the client's error for a server that did not answer in time."""
    return OutcomeUnknown(
        f"the server behind this one was silent for {seconds:g} s during {method}: whether it was executed is unknown"
    )
