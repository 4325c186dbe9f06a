"""Exchanges from claim to terminal message.

Claim before work (law 2), run in the engine's task, settle exactly once (law 3): whoever
settles first — the handler, a cancellation, the end of the session — is the only one.
"""

import asyncio
import contextlib
from contextvars import copy_context
from functools import partial
from typing import Final

from msgspec import Struct

from holdfast.core.admission import Admission
from holdfast.engine.exchange import Caller, SessionExchange
from holdfast.engine.forwarded import ForwardedRequest, encode_forwarded
from holdfast.engine.handling import run
from holdfast.engine.outcome import Outcome
from holdfast.engine.repeats import Repeats
from holdfast.engine.runtime import Runtime
from holdfast.engine.session import Session
from holdfast.engine.turns import Turns
from holdfast.engine.writer import ConnectionWriter, LogWriter, SessionWriter
from holdfast.errors import (
    Busy,
    DuplicateId,
    Fenced,
    McpError,
    OutcomeUnknown,
    SessionGone,
    StoreError,
    StreamClosed,
)
from holdfast.protocol.methods import CONTROL
from holdfast.stores.base import Adopted, Claim, Claimed, Duplicate, Refusal
from holdfast.wire.jsonrpc import Request, RequestId

_STORE_SECONDS: Final = 0.5
"""How often an end that could not be written is tried again."""


class Repeat(Struct, frozen=True):
    """A word-for-word repeat of a POST that was cut: attach to the exchange it repeats."""

    session: Session
    stream: str
    id: RequestId


class Exchanges:
    """Starts, runs and settles exchanges."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.repeats: Repeats = Repeats(runtime)
        self._keeps = (
            runtime.settings.reruns > 0 and runtime.store.is_shared and not runtime.settings.stateless
        )
        """What may be run again is kept: others could, and somebody can come back for the answer."""
        self._turns = (
            Turns(runtime, self._started, self.settle)
            if runtime.settings.in_order and not runtime.settings.stateless
            else None
        )
        self.ending: int = 0
        """Ends on their way to the store: a stop waits for them, though nothing runs any more."""
        self.claiming: int = 0
        """Claims on their way to the store: what they win is work, though nothing runs yet."""
        self._undoing: dict[str, asyncio.Task[None]] = {}
        """Claims that are being given back, by their streams."""

    async def submit(
        self,
        key: str,
        caller: Caller,
        request: Request,
        digest: bytes = b"",
        *,
        streams: bool = True,
    ) -> SessionExchange | Repeat:
        """Claim the exchange and start it, or queue it.

        Raises:
            SessionGone: no such session for this principal.
            DuplicateId: the id is in flight.
            Busy: the session is at its limits.
        """
        runtime = self._runtime
        control = request.method in CONTROL
        stream = runtime.random.token(12)
        payload = self._payload(key, stream, caller, request, streams=streams) if self._keeps else b""
        claim = Claim(request.id, stream, digest, control, payload)
        self.claiming += 1
        try:
            claimed = await runtime.store.claim(key, caller.key, claim)
        except BaseException:
            self._undo(key, caller.key, claim)
            raise
        finally:
            self.claiming -= 1
        if not isinstance(claimed, Claimed):
            if isinstance(claimed, Duplicate) and claimed.stream in self._undoing:
                await asyncio.wait([self._undoing[claimed.stream]])
                return await self.submit(key, caller, request, digest, streams=streams)
            return await self._refused(key, caller, request.id, claimed)
        session = runtime.local_session(claimed.record)
        if claimed.returned:
            runtime.returned(session)
        writer: SessionWriter
        if session.channel is None:
            writer = LogWriter(runtime.store, runtime.random, session, claim, claimed.fence, streams=streams)
        else:
            writer = ConnectionWriter(
                runtime.store, runtime.random, session, session.channel, claim, claimed.fence
            )
        exchange = SessionExchange(runtime.store, session, request, claim, claimed.fence, writer, caller)
        await self._begin(exchange)
        return exchange

    def _undo(self, key: str, principal: str, claim: Claim) -> None:
        """Give back a claim whose fate is not known: its request was cancelled, or the store did not answer in time."""
        undoing = self._runtime.begin(self._undone(key, principal, claim))
        self._undoing[claim.stream] = undoing
        undoing.add_done_callback(lambda _: self._undoing.pop(claim.stream))

    async def _undone(self, key: str, principal: str, claim: Claim) -> None:
        """Claim the same exchange again, to learn its fence, and free it. Nothing has run for it."""
        store, insist = self._runtime.store, self._runtime.insist
        claimed = await insist(lambda: store.claim(key, principal, claim))
        if isinstance(claimed, Claimed):
            fence = claimed.fence
            # Others may have freed it.
            with contextlib.suppress(StoreError, SessionGone):
                await insist(lambda: store.settle(key, claim.stream, fence, None))

    def _payload(self, key: str, stream: str, caller: Caller, request: Request, *, streams: bool) -> bytes:
        """Return what is kept of a request; nothing of one that must not run twice, or whose connection is its session."""
        session = self._runtime.sessions.get(key)
        if session is not None and session.channel is not None:
            return b""
        if not self._runtime.back.is_idempotent(request):
            return b""
        return encode_forwarded(key, stream, caller, request, streams=streams)

    async def rerun(self, session: Session, adopted: Adopted, forwarded: ForwardedRequest) -> None:
        """Start an exchange that has begun before, at a replica that died."""
        await self._begin(
            self._adopted(session, adopted, forwarded.request, forwarded.caller, streams=forwarded.streams)
        )

    async def give_up(self, session: Session, adopted: Adopted) -> None:
        """End an exchange that has begun before and cannot run here: its outcome is not known."""
        request = Request(adopted.claim.id, "", {})
        exchange = self._adopted(session, adopted, request, Caller(session.record.principal), streams=True)
        session.exchanges[adopted.claim.stream] = exchange
        await self.settle(exchange, Outcome(error=OutcomeUnknown()))

    def _adopted(
        self, session: Session, adopted: Adopted, request: Request, caller: Caller, *, streams: bool
    ) -> SessionExchange:
        runtime, claim, fence = self._runtime, adopted.claim, adopted.fence
        writer = LogWriter(runtime.store, runtime.random, session, claim, fence, streams=streams)
        writer.start = writer.position = adopted.position
        writer.has_reader = False
        exchange = SessionExchange(runtime.store, session, request, claim, fence, writer, caller)
        exchange.is_rerun = True
        return exchange

    async def _refused(
        self, key: str, caller: Caller, request_id: RequestId, refused: Duplicate | Refusal
    ) -> Repeat:
        if refused is Refusal.NO_SESSION:
            raise SessionGone
        if not isinstance(refused, Duplicate):
            raise Busy("Busy: the session has too many calls in flight; try again shortly")
        found = await self._runtime.store.find(key, caller.key) if refused.same else None
        session = self._runtime.local_session(found.record) if found is not None else None
        if session is not None and (refused.finished or await self.repeats.is_lost(session, refused)):
            self._runtime.observer.note("exchange.repeated", session=session.name)
            return Repeat(session, refused.stream, request_id)
        if session is not None:
            self._runtime.release(session)
        self._runtime.observer.note("exchange.duplicate", session=key[:8])
        raise DuplicateId

    # Running

    async def _begin(self, exchange: SessionExchange) -> None:
        """Start what is claimed, or queue it."""
        session = exchange.session
        session.exchanges[exchange.claim.stream] = exchange
        if self._turns is not None and not exchange.claim.control:
            await self._await_turn(exchange, self._turns)
            return
        verdict = Admission.START if exchange.claim.control else session.gate.enter(exchange)
        if verdict is Admission.START:
            exchange.task = asyncio.get_running_loop().create_task(run(self._runtime, exchange, self.settle))
        elif verdict is Admission.REFUSE and exchange.is_rerun:
            await self.settle(exchange, Outcome(error=OutcomeUnknown()))
        else:
            await self._queue(exchange, verdict)

    async def _await_turn(self, exchange: SessionExchange, turns: Turns) -> None:
        try:
            turns.wait(exchange)
        except Busy:
            if exchange.is_rerun:
                await self.settle(exchange, Outcome(error=OutcomeUnknown()))
            else:
                await self._refuse(exchange)

    async def _queue(self, exchange: SessionExchange, verdict: Admission) -> None:
        """Leave it waiting for a slot, with a deadline; or refuse it before it has begun."""
        if verdict is Admission.REFUSE:
            await self._refuse(exchange)
        exchange.context = copy_context()
        seconds = self._runtime.settings.limits.queue_seconds
        exchange.deadline = asyncio.get_running_loop().call_later(seconds, self._give_up, exchange)

    async def _refuse(self, exchange: SessionExchange) -> None:
        exchange.settled = True
        session, claim = exchange.session, exchange.claim
        del session.exchanges[claim.stream]
        settle = self._runtime.store.settle
        await self._runtime.surely(lambda: settle(session.record.key, claim.stream, exchange.fence, None))
        raise Busy("Busy: too many calls are waiting in this session; try again shortly")

    def _give_up(self, exchange: SessionExchange) -> None:
        if exchange.session.gate.abandon(exchange):
            exchange.busy = True
            seconds = self._runtime.settings.limits.queue_seconds
            busy = Busy(f"Busy: no slot became free within {seconds:g} s")
            error = OutcomeUnknown() if exchange.is_rerun else busy
            self._runtime.spawn(self.settle(exchange, Outcome(error=error)))

    # Ending

    async def settle(self, exchange: SessionExchange, outcome: Outcome) -> None:
        """End the exchange with this outcome, unless it has ended."""
        if exchange.settled:
            return
        exchange.settled = True
        session = exchange.session
        del session.exchanges[exchange.claim.stream]
        self.ending += 1
        try:
            if self._turns is not None:
                session.look_for_turn(exchange.claim.stream)
                await self._turns.hold(exchange)
            elif exchange.task is not None and not exchange.claim.control:
                self._free_slot(exchange, exchange.task)
            if exchange.deadline is not None:
                exchange.deadline.cancel()
            if outcome.fenced and isinstance(exchange.writer, LogWriter):
                exchange.writer.fence_off()
                self._runtime.observer.note("exchange.fenced", session=session.name)
            elif not await self._is_written(
                exchange, outcome.message(exchange.request.id), closed=outcome.closed
            ):
                self._runtime.spawn(self._write_later(exchange, outcome.message(exchange.request.id)))
            if self._runtime.store.is_shared:
                self._runtime.release(session)
        finally:
            self.ending -= 1

    async def _is_written(self, exchange: SessionExchange, terminal: bytes, *, closed: bool = False) -> bool:
        """Write the end of an exchange. False: the store is away, and has to be told when it is back."""
        writer = exchange.writer
        try:
            await (writer.close(terminal) if closed else writer.settle(terminal))
        except asyncio.CancelledError:
            self._runtime.spawn(self._write_later(exchange, terminal))
            raise
        except SessionGone:
            # Closed by another replica, whose bell is late or was lost.
            self._runtime.on_gone(exchange.session)
        except (Fenced, StreamClosed, OSError) as error:
            # The connection is gone, or somebody else ended this exchange: nothing is left to write to.
            self._runtime.observer.note("exchange.fenced", session=exchange.session.name, error=error)
        except StoreError as error:
            # Whatever the store's trouble is, it is no sign that somebody else has ended this exchange.
            self._runtime.observer.note("exchange.unsettled", session=exchange.session.name, error=error)
            return False
        return True

    async def _write_later(self, exchange: SessionExchange, terminal: bytes) -> None:
        """Write the end once the store is back: an owner that lives is reaped by nobody."""
        while True:
            await asyncio.sleep(_STORE_SECONDS)
            if await self._is_written(exchange, terminal):
                return

    def _free_slot(self, exchange: SessionExchange, task: asyncio.Task[None]) -> None:
        """Give the slot to the next call once the handler has really ended, cancelled ones included."""
        if task is not asyncio.current_task():
            task.add_done_callback(partial(self._next, exchange.session))
        elif (following := exchange.session.gate.leave()) is not None:
            self._go(following)

    def _next(self, session: Session, _ended: object) -> None:
        following = session.gate.leave()
        if following is not None:
            self._go(following)
        else:
            self._runtime.release(session)

    def _go(self, following: SessionExchange) -> None:
        """Start a call whose turn has come."""
        if following.deadline is not None:
            following.deadline.cancel()
        following.task = self._started(following)

    def _started(self, exchange: SessionExchange) -> asyncio.Task[None]:
        work = run(self._runtime, exchange, self.settle)
        return asyncio.get_running_loop().create_task(work, context=exchange.context)

    async def end(self, exchange: SessionExchange, error: McpError, *, closed: bool = False) -> None:
        """Stop the handler and settle with an error; what the handler still returns is dropped.

        `closed`: the store has ended the exchange already, with its session.
        """
        if exchange.settled:
            return
        exchange.session.gate.abandon(exchange)
        # The handler wakes up after `settle` has marked the exchange, and need not wait for a slow peer to be told.
        # One that closes its own session must live to finish closing it.
        if exchange.task is not None and exchange.task is not asyncio.current_task():
            exchange.task.cancel()
        await self.settle(exchange, Outcome(error=error, closed=closed))
