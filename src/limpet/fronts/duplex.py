"""One connection that carries messages both ways: the common part of stdio and `Client(server)`.

It serves both eras at the same time: an `initialize` begins its one session, and a request with its own metadata
(2026-07-28) is sessionless, whether or not there is a session.

Messages arrive in `take` and are written with the function that it was given. The receiving side waits for no handler
(law 10) and for no write of a handler. It stops only while too many of its own replies (refusals, pongs) are unwritten,
so that a peer that writes and never reads costs bounded memory.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from msgspec.structs import replace

from limpet.core.eras import has_sessions
from limpet.core.ledger import Charge
from limpet.core.lifecycle import SessionInput
from limpet.engine.audit import Reason, reason_of
from limpet.engine.caller import Caller
from limpet.engine.claims import Repeat
from limpet.engine.engine import Engine
from limpet.engine.exchange import SessionExchange
from limpet.engine.rates import unrefused
from limpet.engine.session import Session
from limpet.engine.sessions import ANONYMOUS
from limpet.engine.wake import after_few
from limpet.errors import (
    BUSY,
    INVALID_REQUEST,
    DuplicateId,
    LimpetError,
    McpError,
    RateLimited,
    StoreBusy,
    StoreError,
    TooManySessions,
    TooMuchWork,
    WireError,
    joined,
)
from limpet.fronts.sessionless import SessionlessRequests
from limpet.protocol.methods import CONTROL, NOT_IN_SESSIONS
from limpet.protocol.params import cancellation_reason
from limpet.protocol.sessionless import declared_version
from limpet.wire.jsonrpc import (
    BATCH,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    decode,
    error_message,
    result_message,
)

Write = Callable[[bytes], Awaitable[None]]
"""Writes one message. Waits while the peer does not read; raises ConnectionError when the peer is gone."""

OWED: Final = 64
"""Unwritten replies after which the receiving side waits for one to be written."""

_TURN_SECONDS: Final = 0.01
_COPIES: Final = 2
"""How often an answer of a batch is in memory while the array is made of all."""


class Gathering:
    """Waits for as many terminal messages as a batch (2025-03-26) has requests: its answers are sent as one array.

    They are charged until it is written: a result of a call that is in no batch is charged until then too.
    """

    def __init__(self, expected: int, send: Callable[[bytes], Awaitable[None]], charge: Charge) -> None:
        self._expected = expected
        self._send = send
        self._charge = charge
        self._messages: list[bytes] = []

    async def add(self, terminal: bytes) -> None:
        """Take one terminal message; the last one sends them all."""
        self._messages.append(terminal)
        self._charge.set(self._charge.size + _COPIES * len(terminal))
        if len(self._messages) == self._expected:
            whole = b"[" + b",".join(self._messages) + b"]"
            self._messages.clear()
            try:
                await self._send(whole)
            finally:
                self._charge.free()


class Duplex:
    """The server's end of a connection. It is the session's duplex."""

    def __init__(self, engine: Engine, write: Write, caller: Caller = Caller(ANONYMOUS)) -> None:  # noqa: B008
        self._engine = engine
        self._write = write
        self._account = engine.load.account(caller.key, id(self))
        self._caller = replace(caller, account=self._account)
        self._owed = asyncio.Semaphore(OWED)
        self._replies: set[asyncio.Task[None]] = set()
        self._deaf = False
        self.gone: asyncio.Event = asyncio.Event()
        """The peer no longer reads."""
        self._sessionless = SessionlessRequests(engine, self.send, self._refusal, self.gone)
        self.session: Session | None = None

    @property
    def is_gone(self) -> bool:
        """True if the peer no longer reads: no request starts any more."""
        return self.gone.is_set()

    # Out

    async def send(self, message: bytes) -> None:
        """Write a message; does nothing if the peer is gone."""
        if self.gone.is_set():
            return
        try:
            await self._write(message)
        except ConnectionError:
            self.gone.set()
        if self._deaf:
            # An ask that was just sent can get no answer.
            asyncio.get_running_loop().call_soon(self._fail_asks)

    async def _reply(self, message: bytes) -> None:
        await self._owed.acquire()
        self._keep(self.send(message))

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._replies.add(task)
        task.add_done_callback(self._paid)

    def _paid(self, task: asyncio.Task[None]) -> None:
        self._replies.discard(task)
        self._owed.release()

    # In

    async def take(self, line: bytes) -> None:
        """Take one message, or an array of messages, of the peer."""
        limits, caller = self._engine.settings.limits, self._caller
        intake = self._engine.load.intake(self._account)
        try:
            caller = replace(caller, charge=intake.charge(line))
            message = decode(line, max_depth=limits.depth, max_values=limits.values, max_batch=BATCH)
        except WireError as error:
            await self.refuse(error)
            return
        except TooMuchWork as busy:
            self._audited("busy")
            await self._reply(error_message(None, busy.code, busy.message))
            return
        if caller.principal is not None and caller.principal.is_over(self._engine.clock.wall()):
            self._audited("token")
            await self._refuse_all(message, McpError(INVALID_REQUEST, "Unauthorized: the token has expired"))
        elif not intake.may_pass(message):
            await self._refuse_all(message, TooMuchWork())
        else:
            await self._take_rated(message, caller)

    async def _take_rated(self, message: Message | list[Message], caller: Caller) -> None:
        """Take a message, or refuse its requests if a rate is reached. One that is never refused slows the reading."""
        seconds = 0.0
        if self._engine.rates.is_on:
            try:
                seconds = self._engine.rates.check(message, caller, "local")
            except RateLimited as over:
                await self._refuse_all(message, over)
                message = unrefused(message)
        if isinstance(message, list):
            if message:
                await self._take_batch(message, caller)
        else:
            await self._take_one(message, caller)
        if seconds:
            await asyncio.sleep(seconds)

    async def _refuse_all(self, message: Message | list[Message], error: LimpetError) -> None:
        """Refuse the requests of a message and drop its other parts."""
        if isinstance(message, list):
            refused = [self._refusal(one.id, error) for one in message if isinstance(one, Request)]
            await self._reply(b"[" + b",".join(refused) + b"]")
        elif isinstance(message, Request):
            await self._reply(self._refusal(message.id, error))

    async def refuse(self, error: WireError) -> None:
        """Answer bytes that are not a message."""
        self._audited("malformed")
        await self._reply(error_message(error.request_id, error.code, error.message))

    async def _take_one(self, message: Message, caller: Caller) -> None:
        if not isinstance(message, Request):
            await self._control(message, caller)
        elif message.id in self._sessionless:
            await self._reply(self._refusal(message.id, DuplicateId()))
        elif message.method == "initialize":
            await self._initialize(message)
        elif self._is_modern(message):
            await self._take_sessionless(message, caller)
        elif self.session is not None:
            await self._request(self.session, message, caller)
        elif message.method == "ping":
            await self._reply(result_message(message.id, b"{}"))
        else:
            await self._reply(_invalid(message.id, "initialize first; before it only ping is answered"))

    def _is_modern(self, request: Request) -> bool:
        """Choose the era of a request: by its metadata, and without a session also by methods that only one era has."""
        if declared_version(request.params) is not None:
            return True
        only_modern = request.method in NOT_IN_SESSIONS or not has_sessions(self._engine.settings)
        return self.session is None and only_modern

    async def _take_sessionless(self, request: Request, caller: Caller) -> None:
        running = () if self.session is None else self.session.exchanges.values()
        try:
            if any(exchange.request.id == request.id for exchange in running):
                raise DuplicateId
            await self._engine.ensure_started()
            self._sessionless.take(request, caller)
        except LimpetError as error:
            await self._reply(self._refusal(request.id, error))

    async def _initialize(self, request: Request) -> None:
        if self.session is not None:
            await self._reply(
                _invalid(request.id, "this connection is initialized; its first parameters stay")
            )
            return
        try:
            await self._engine.ensure_started()
            if self._engine.refuses(request, self._caller):
                raise self._engine.stopping()
            opened = await self._engine.sessions.open(self._caller, request.params, duplex=self)
        except LimpetError as error:
            await self._reply(self._refusal(request.id, error))
            return
        self.session = opened.session
        # Wait until it is written: no message of the session may come before it.
        await self.send(result_message(request.id, opened.result))

    async def _request(self, session: Session, request: Request, caller: Caller) -> None:
        if request.method not in CONTROL:
            try:
                await self._engine.exchanges.submit(session.record.key, caller, request)
            except LimpetError as error:
                await self._reply(self._refusal(request.id, error))
            return
        # Control traffic needs no slot; the number of unwritten replies bounds it.
        await self._owed.acquire()
        try:
            exchange = await self._engine.exchanges.submit(session.record.key, caller, request)
        except LimpetError as error:
            self._keep(self.send(self._refusal(request.id, error)))
            return
        self._keep(_wait_for_end(exchange))

    async def _control(self, message: Notification | Response, caller: Caller) -> None:
        """Take a message that gets no answer. A message that belongs to nothing is dropped: it cannot be refused."""
        if self._cancels_sessionless(message) or self.session is None:
            return
        key, sessions = self.session.record.key, self._engine.sessions
        try:
            if isinstance(message, Notification):
                await sessions.notify(key, caller.key, message.method, message.params, held=caller)
            else:
                await sessions.answer(key, caller.key, message)
        except LimpetError as error:
            self._engine.observer.note("message.dropped", session=self.session.name, error=error)

    def _cancels_sessionless(self, message: Notification | Response) -> bool:
        if not isinstance(message, Notification) or message.method != "notifications/cancelled":
            return False
        was_running = self._sessionless.cancel(message.params.get("requestId"))
        if was_running and (reason := cancellation_reason(message.params)):
            self._engine.observer.note("call.cancelled", reason=reason)
        return was_running

    async def _take_batch(self, messages: list[Message], caller: Caller) -> None:
        session = self.session
        if session is None or not session.revision.batches:
            reason = "initialize first" if session is None else "batches exist in protocol 2025-03-26 only"
            await self._reply(_invalid(None, reason))
            return
        requests = [message for message in messages if isinstance(message, Request)]
        gathering = Gathering(len(requests), self.send, self._account.open())
        for number, message in enumerate(messages):
            await after_few(number)
            if isinstance(message, Request):
                await self._gather(session, message, caller, gathering)
            else:
                await self._control(message, caller)

    async def _gather(self, session: Session, request: Request, caller: Caller, gathering: Gathering) -> None:
        try:
            if request.id in self._sessionless:
                raise DuplicateId
            if request.method == "initialize":
                raise McpError(INVALID_REQUEST, "Invalid request: initialize may not be part of a batch")
            exchange = await self._engine.exchanges.submit(session.record.key, caller, request)
            if not isinstance(exchange, SessionExchange):
                raise DuplicateId
        except LimpetError as error:
            await gathering.add(self._refusal(request.id, error))
            return
        # Its task was just made and has not run yet.
        exchange.writer.redirect_end(gathering.add)

    def _refusal(self, request_id: RequestId, error: LimpetError) -> bytes:
        """Return the refusal of a request, and report it."""
        reason = reason_of(error)
        # The only session of this connection cannot belong to another principal.
        correlation = self._audited(reason) if reason is not None and reason != "session" else ""
        return _refusal(request_id, joined(error, correlation) if isinstance(error, McpError) else error)

    def _audited(self, reason: Reason) -> str:
        return self._engine.audit.refused(reason, "local", self._caller.key)

    # Ending

    async def hang_up(self, reason: SessionInput, seconds: float | None = None) -> None:
        """Take no more messages, end the listeners, let calls finish, then close the session.

        Calls may take so many seconds; by default, the drain time.
        """
        self._deaf = True
        self._fail_asks()
        seconds = self._engine.settings.times.drain if seconds is None else seconds
        await asyncio.gather(self._sessionless.hang_up(seconds), self._close(reason, seconds))
        if self._replies and not self.gone.is_set():
            await asyncio.wait(self._replies, timeout=self._engine.settings.times.write_stall)

    async def _close(self, reason: SessionInput, seconds: float) -> None:
        session = self.session
        if session is not None:
            await self._finish(session, seconds)
            await self._engine.sessions.close(session, reason)
            await session.listeners_called()

    async def _finish(self, session: Session, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        gone = loop.create_task(self.gone.wait())
        try:
            # Calls that wait for a slot get one when others end.
            while not gone.done() and loop.time() < deadline:
                running = {e.task for e in session.exchanges.values() if e.task is not None}
                if not running:
                    if not session.waiting:
                        break
                    # A call that waits for its turn is about to start.
                    await asyncio.sleep(_TURN_SECONDS)
                    continue
                await asyncio.wait(
                    {*running, gone}, timeout=deadline - loop.time(), return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            gone.cancel()

    def _fail_asks(self) -> None:
        """End all asks: no answer can arrive any more."""
        if self.session is not None:
            for ask in self.session.pending.values():
                ask.cut_off()


async def _wait_for_end(exchange: SessionExchange | Repeat) -> None:
    if isinstance(exchange, SessionExchange) and exchange.task is not None:
        await asyncio.wait({exchange.task})


def _invalid(request_id: RequestId | None, what: str) -> bytes:
    return error_message(request_id, INVALID_REQUEST, f"Invalid request: {what}")


def _refusal(request_id: RequestId, error: LimpetError) -> bytes:
    match error:
        case McpError():
            return error_message(request_id, error.code, error.message, error.data)
        case TooManySessions():
            return error_message(request_id, BUSY, "Busy: too many sessions")
        case StoreError():
            return _refusal(request_id, StoreBusy())
        case _:
            return _invalid(request_id, "the session is closed")
