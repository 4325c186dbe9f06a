"""Exchanges of sessions, from the claim to the terminal message.

The life of an exchange is a table (`core/exchange.py`). This module reports inputs to it and carries out the actions:

    submit ──▶ store.claim ──▶ begin ──START──▶ handler's task ──RETURNED──┐
                  │  ▲            ├──WAIT───▶ gate's queue, or a turn ──▶ _start ──START, or WITHDRAWN
                  │  │            └──REFUSE, or WITHDRAWN────────────────┐  │
                  ▼  │ ask again                                         ▼  ▼
             Duplicate: refused, or a Repeat                end ──────▶ settle ──▶ writer.settle ──▶ store
                                                     (cancel, close)      │
                                                                          └──▶ the next call in the queue starts

Claim before work (law 2): `claims.py`.

A request starts only while a connection waits for its answer (law 12; the table has the rule). Otherwise one request
could run twice: a copy of it waits here for its claim or its slot, its client disconnects, another copy is answered
elsewhere, the id is free, and then this copy starts. `Caller.waiter` is its connection, and `SessionWriter.is_left`
says whether a connection waits for an exchange. After a pause of this process, the end of a connection may be in a
socket that was not read yet: then `look` reads it first. A forwarded request has its connection at another replica,
which tells the store when that ends (`home.py`): a claim finds it there, and after a wait for a slot or a turn the
claim is made once more.

The handler runs in a task of the engine, not in the task of its connection: a connection that breaks costs a reader
and nothing else (law 6).

Why an exchange is settled once (law 3). `settle` is the only way to an end. It moves the state before its first
await: any later caller finds an ended state, gets no actions and returns. With the state, the exchange leaves
`session.exchanges`, so no later wake-up finds it.

If the end cannot be stored, the exchange stays in ENDING, and the store is asked again every half second.
The client need not wait for that: a POST without a stream takes the answer from the writer at once. The lease holds
meanwhile, so no other replica declares the outcome unknown; if this process dies before the end is stored, another
replica does. If the store says that the exchange is no longer ours (Fenced), the end decided here is dropped: another
replica has written an end, and the client reads that one.

Why the queue does not lose a slot. A slot is passed on in `free_slot` only: to the first exchange in the gate's queue,
which starts in the same step. An exchange that ends while it waits leaves the queue in the same step, so a slot is
never given to an exchange that has ended. (For an exchange that has ended while its handler still runs, see the table.)
"""

import asyncio
import contextlib
from contextvars import copy_context
from typing import Final, Protocol

from msgspec.structs import replace

from limpet.core.admission import Admission
from limpet.core.empty_table import EMPTY
from limpet.core.exchange import Action, Actions, ExchangeInput, ExchangeState, step
from limpet.core.fate import Fate, FateInput
from limpet.engine.asks import cancellation
from limpet.engine.caller import Caller
from limpet.engine.claims import Claims, Repeat
from limpet.engine.exchange import QueuedStart, SessionExchange, exchange_of
from limpet.engine.handling import run
from limpet.engine.outages import RETRY_SECONDS
from limpet.engine.outcome import Outcome
from limpet.engine.runtime import Runtime
from limpet.engine.session import Session
from limpet.engine.turns import Turns, too_late
from limpet.engine.writer import ConnectionWriter, LogWriter, SessionWriter
from limpet.errors import (
    Busy,
    Fenced,
    LimpetError,
    McpError,
    OutcomeUnknown,
    SessionGone,
    Stopping,
    StoreError,
    StreamClosed,
    Withdrawn,
    joined,
)
from limpet.ports import Spans
from limpet.protocol.methods import CONTROL
from limpet.stores.base import Claim, Claimed, Duplicate, Refusal, SessionRecord
from limpet.wire.jsonrpc import Request

# Short names for a plain call: Python 3.11 looks up a member of an enumeration slowly.
_END: Final = Action.END
_FREE_SLOT: Final = Action.FREE_SLOT
_RUNNING: Final = ExchangeState.RUNNING
_START: Final = ExchangeInput.START
_RETURNED: Final = ExchangeInput.RETURNED
_STORED: Final = ExchangeInput.STORED
_SETTLED: Final = step(step(_RUNNING, _RETURNED)[0], _STORED)[0]
"""The state of a plain call after its end."""
_ENTERED: Final = Admission.START
_REFUSED: Final = Outcome(happened=ExchangeInput.REFUSE)
_WITHDRAWN: Final = Outcome(happened=ExchangeInput.WITHDRAWN)
_UNWANTED: Final = {
    ExchangeInput.WITHDRAWN: _WITHDRAWN,
    ExchangeInput.LOST: Outcome(error=OutcomeUnknown(), happened=ExchangeInput.LOST),
}
"""The ends of calls that have waited and do not start."""


class NotHome(LimpetError):
    """This replica is not the home of the session: nothing was started."""

    def __init__(self, record: SessionRecord) -> None:
        super().__init__("this replica is not the home of the session")
        self.record = record


class SubmitRequest(Protocol):
    """Starts a request of a session."""

    async def __call__(
        self, key: str, caller: Caller, request: Request, digest: bytes = b"", *, streams: bool = True
    ) -> SessionExchange | Repeat:
        """Start the request, as `Exchanges.submit_here` does."""


def within_spans(submit: SubmitRequest, spans: Spans) -> SubmitRequest:
    """Return a function that starts requests in the same way, each within its span."""

    async def submit_within_span(
        key: str, caller: Caller, request: Request, digest: bytes = b"", *, streams: bool = True
    ) -> SessionExchange | Repeat:
        with spans.request(request, caller.headers) as span:
            submitted = await submit(key, replace(caller, span=span), request, digest, streams=streams)
            if isinstance(submitted, Repeat):
                span.link(submitted.stream)
            return submitted

    return submit_within_span


class Exchanges:
    """Starts, runs and settles exchanges."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.submit: SubmitRequest = self.submit_here
        """The function that fronts call. Where sessions have homes, `home.py` replaces it."""
        self.claims: Claims = Claims(runtime)
        self._turns = (
            Turns(runtime, self._start_if_wanted, self.settle)
            if runtime.settings.in_order and not runtime.settings.stateless
            else None
        )
        # A request with a span always takes the long way.
        self._at_once = runtime.at_once if self._turns is None and runtime.spans is None else None
        self.ending: int = 0
        """How many ends are on their way to the store: a stop waits for them, although no handler runs any more."""

    async def submit_here(
        self, key: str, caller: Caller, request: Request, digest: bytes = b"", *,
        streams: bool = True, stream: str = "", home: str = "",
    ) -> SessionExchange | Repeat:  # fmt: skip
        """Claim the exchange and start it, or queue it.

        `stream` is its name, if it has one already. `home` is the name of this replica, if only the home of the session
        may start the exchange.

        Raises:
            SessionGone: no such session for this principal.
            DuplicateId: the id is in flight.
            Busy: the session is at its limits.
            Withdrawn: no connection waits for it any more.
            Stopping: this process is stopping, and the request is not a repeat of one that has started.
            InsufficientScope: the caller lacks a scope.
            NotHome: another replica is the home of the session.
        """
        runtime = self._runtime
        control = self.is_control(request)
        if not stream:
            stream = self.stream_name(caller)
            if runtime.access.rules is not None:
                stream, digest = runtime.access.named(stream, digest, request, caller, key)
        claim = Claim(request.id, stream, digest, control)
        claimed = await self.claims.make(key, caller, claim)
        if isinstance(claimed, Repeat):
            return claimed
        session = runtime.local_session(claimed.record)
        if claimed.returned:
            runtime.returned(session)
        if (reason := self._why_not(claimed, request, caller, home)) is not None:
            await self.claims.free(key, stream, claimed.fence)
            runtime.release(session)
            raise reason
        exchange = self._claimed(session, claim, claimed.fence, caller, request, streams=streams)
        await self.begin(exchange)
        return exchange

    def _why_not(
        self, claimed: Claimed, request: Request, caller: Caller, home: str
    ) -> Stopping | NotHome | None:
        """Return the reason why a request does not start here although its claim was made: so it is no repeat."""
        if self._runtime.refuses(request, caller):
            return self._runtime.stopping()
        return NotHome(claimed.record) if home and claimed.record.home != home else None

    def is_control(self, request: Request) -> bool:
        """True if a request passes even when every slot is taken (law 10)."""
        return request.method in CONTROL or self._runtime.access.collects(request)

    def stream_name(self, caller: Caller) -> str:
        """Return a new name for the stream of an exchange. Later requests that name it find the span of this one."""
        name = self._runtime.random.token(12)
        return name if caller.span is None else f"{name}-{caller.span.mark}"

    def submit_nowait(
        self, key: str, caller: Caller, request: Request, digest: bytes, *, streams: bool
    ) -> SessionExchange | Duplicate | Refusal | None:
        """Claim an exchange and start it, or queue it, without waiting; None, with nothing done: use `submit`.

        None if the store has to be awaited, if scopes are to be checked, if this process is stopping, if the queue of
        the session is full, or if the call has to wait for the answer of a call with the same id, which is not written
        yet. A refused claim is answered with `submit_refused`.
        """
        runtime = self._runtime
        session = runtime.sessions.get(key)
        if (
            self._at_once is None
            or runtime.access.rules is not None
            or runtime.is_draining
            or session is None
            or session.duplex is not None
            or session.gate.refuses()
            or (session.answering and request.id in session.answering)
        ):
            return None
        access = runtime.access
        control = request.method in CONTROL or (access.collect_tool != "" and access.collects(request))
        claim = Claim(request.id, runtime.random.token(12), digest, control)
        claimed = self._at_once.claim_nowait(key, caller.key, claim)
        if not isinstance(claimed, Claimed):
            return claimed
        if claimed.returned:
            runtime.returned(session)
        writer = LogWriter(runtime.store, runtime.random, session, claim, claimed.fence, streams)
        exchange = exchange_of(writer, request, caller)
        if self._enter(exchange) is not _ENTERED:
            self._wait(exchange)
        return exchange

    async def submit_refused(
        self,
        key: str,
        caller: Caller,
        request: Request,
        digest: bytes,
        refused: Duplicate | Refusal,
        *,
        streams: bool,
    ) -> SessionExchange | Repeat:
        """Do the same as `submit` after a claim that `submit_nowait` has made was refused.

        The call that had the id ran in this process, and was not answered. So it is a duplicate also if it has ended
        meanwhile.
        """
        repeat = await self.claims.refused(key, caller, request.id, refused)
        return repeat or await self.submit(key, caller, request, digest, streams=streams)

    def _claimed(
        self, session: Session, claim: Claim, fence: int, caller: Caller, request: Request, *, streams: bool
    ) -> SessionExchange:
        """Return the exchange of a claim."""
        runtime = self._runtime
        writer: SessionWriter
        if session.duplex is None:
            writer = LogWriter(runtime.store, runtime.random, session, claim, fence, streams)
        else:
            writer = ConnectionWriter(
                runtime.store, runtime.random, session, claim, fence, duplex=session.duplex
            )
        return exchange_of(writer, request, caller)

    # Running

    async def begin(self, exchange: SessionExchange) -> None:
        """Start a claimed exchange, let it wait, or refuse it.

        Raises:
            Busy: there is no room for it.
            Withdrawn: no connection waits for it.
        """
        waiter = exchange.caller.waiter
        if waiter is not None and waiter.gone:
            exchange.writer.report(FateInput.LEFT)
        if exchange.writer.is_left:
            exchange.session.exchanges = {**exchange.session.exchanges, exchange.key: exchange}
            await self.settle(exchange, _WITHDRAWN)
        if (spans := self._runtime.spans) is not None:
            span, caller = exchange.caller.span, exchange.caller
            if span is None:
                # Another replica has forwarded the request.
                span = spans.forwarded(exchange.request, caller.headers, exchange.claim.stream)
                exchange.caller = replace(caller, span=span)
            exchange.bind(span, session=exchange.session.name)
        admission = self._enter(exchange)
        if admission is Admission.WAIT:
            self._wait(exchange)
        elif admission is not _ENTERED:
            await self.settle(exchange, _REFUSED)

    def _enter(self, exchange: SessionExchange, *, has_slot: bool = False) -> Admission:
        """Start an exchange if it has a slot or its turn; return whether it has started, waits or is refused.

        This is the only place where a handler starts. One that has waited (`has_slot`) starts in the context of its
        request.
        """
        session, context = exchange.session, None
        if has_slot:
            admission = _ENTERED
            waiting, exchange.waiting = exchange.waiting, None
            if waiting is not None:
                context = waiting.context
                if waiting.deadline is not None:
                    waiting.deadline.cancel()
        else:
            if session.exchanges is EMPTY:
                session.exchanges = {}
            session.exchanges[exchange.key] = exchange
            if exchange.claim.control:
                admission = _ENTERED
            elif self._turns is not None:
                admission = self._turns.admit(session)
            else:
                admission = session.gate.enter(exchange)
        if admission is _ENTERED:
            exchange.state, _ = step(exchange.state, _START)
            new_task, work = self._runtime.new_task, run(self._runtime, exchange, self)
            exchange.task = new_task(work, name=exchange.key, context=context)
        return admission

    def _wait(self, exchange: SessionExchange) -> None:
        """Let it wait for its slot, or for its turn."""
        exchange.state, _ = step(exchange.state, ExchangeInput.WAIT)
        if self._turns is not None:
            self._turns.wait(exchange)
        else:
            self._queue(exchange)

    def _queue(self, exchange: SessionExchange) -> None:
        """Let it wait for a slot, with a deadline."""
        seconds = self._runtime.settings.limits.queue_seconds
        deadline = asyncio.get_running_loop().call_later(seconds, self._late, exchange, seconds)
        exchange.waiting = QueuedStart(copy_context(), deadline)

    def _late(self, exchange: SessionExchange, seconds: float) -> None:
        self._runtime.spawn(self.settle(exchange, too_late(seconds)))

    def _start(self, exchange: SessionExchange) -> None:
        """Start a call that has waited and now has its slot, if a connection waits for it."""
        is_doubtful = exchange.caller.waiter is not None and self._runtime.pulse.is_waking()
        if exchange.writer.is_left is False and not is_doubtful:
            self._enter(exchange, has_slot=True)
        else:
            self._runtime.spawn(self._start_if_wanted(exchange))

    async def _start_if_wanted(self, exchange: SessionExchange) -> None:
        """Start a call that has its slot or turn, unless no connection waits for it or others have ended it."""
        self.claims.running += 1
        try:
            happened = await self._why_unwanted(exchange)
            if happened is not None:
                with contextlib.suppress(Withdrawn):
                    await self.settle(exchange, _UNWANTED[happened])
            if not exchange.has_ended:
                self._enter(exchange, has_slot=True)
        finally:
            self.claims.running -= 1

    async def _why_unwanted(self, exchange: SessionExchange) -> ExchangeInput | None:
        """Return the reason why a call that has waited does not start; None if it starts."""
        writer, waiter = exchange.writer, exchange.caller.waiter
        is_waking = self._runtime.pulse.is_waking()
        if waiter is not None and is_waking:
            await waiter.look()
            if waiter.gone and writer.fate is Fate.WAITING:
                writer.report(FateInput.LEFT)
        if writer.is_left:
            return ExchangeInput.WITHDRAWN
        if writer.is_left is None or (is_waking and self._runtime.store.is_shared):
            # After a pause other replicas may have ended it.
            return await self.claims.claim_again(exchange)
        return None

    # Ending

    async def end(self, exchange: SessionExchange, error: McpError, *, closed: bool = False) -> None:
        """Stop the handler and settle with an error; a later result of the handler is dropped.

        `closed`: the store has ended the exchange already, with its session.
        """
        happened = ExchangeInput.CLOSED if closed else ExchangeInput.CANCELLED
        await self.settle(exchange, Outcome(error=error, happened=happened))

    def settle_nowait(self, exchange: SessionExchange, outcome: Outcome) -> bool:
        """End an exchange whose handler has returned, without waiting. False, with nothing done: use `settle`.

        This is `settle` for the most frequent end: the handler of a call in RUNNING has returned, and the POST that
        waits takes the message from the writer. Its actions are FREE_SLOT and END, as in `settle`, and its two steps
        of the table were taken once, when this module was loaded (`_SETTLED`). The store is asked first: if it
        refuses, nothing has changed here, and `settle` acts on the reason.
        """
        writer = exchange.writer
        if (
            self._at_once is None
            or exchange.state is not _RUNNING
            or outcome.happened is not _RETURNED
            or not writer.is_plain()
        ):
            return False
        try:
            self._at_once.settle_nowait(exchange.session.record.key, exchange.key, exchange.fence)
        except (StoreError, SessionGone):
            return False
        session = exchange.session
        exchange.state = _SETTLED
        del session.exchanges[exchange.key]
        if not session.exchanges:
            session.exchanges = EMPTY
        if not exchange.claim.control and (following := session.gate.leave()) is not None:
            self._start(following)
        if session.pending:
            # Without a stream none of them was sent.
            writer.end_asks()
        writer.terminal = outcome.message(exchange.request.id)
        writer.changed()
        return True

    async def settle(self, exchange: SessionExchange, outcome: Outcome) -> None:
        """End the exchange with this outcome, unless it has ended.

        Raises:
            Busy: it was refused before it could start.
        """
        if (span := exchange.caller.span) is not None and not exchange.has_ended:
            # The span ends with the exchange, and nothing needs it any more.
            exchange.caller = replace(exchange.caller, span=None)
            with span.settling(outcome.error, outcome.result):
                await self.settle(exchange, outcome)
            return
        actions = self._leave(exchange, outcome)
        if not actions:
            return
        session = exchange.session
        if session.pending:
            asks = session.end_asks(exchange.key, is_over=Action.STOP not in actions)
            exchange.writer.before_end([cancellation(name) for name in asks])
        self.ending += 1
        try:
            if self._turns is not None:
                session.look_for_turn(exchange.claim.stream)
                await self._turns.hold(exchange)
            if _END not in actions:
                await self._end_otherwise(exchange, actions[-1], outcome)
            else:
                exchange.writer.end_with(outcome.message(exchange.request.id))
                if not await self._store_end(exchange):
                    self.claims.follow(exchange.claim.stream, self._store_later(exchange))
        finally:
            self.ending -= 1
            if self._runtime.store.is_shared:
                self._runtime.release(session)

    def _leave(self, exchange: SessionExchange, outcome: Outcome) -> Actions:
        """Move an exchange to its end, remove it from its session and free its slot.

        Return all actions of the table.
        """
        exchange.state, actions = step(exchange.state, outcome.happened)
        if actions:
            session = exchange.session
            del session.exchanges[exchange.key]
            if not session.exchanges:
                session.exchanges = EMPTY
            if _FREE_SLOT in actions:
                self.free_slot(exchange)
            else:
                self._leave_or_stop(exchange, actions)
        return actions

    def _leave_or_stop(self, exchange: SessionExchange, actions: Actions) -> None:
        """Take an exchange out of the queue, or stop its handler."""
        if Action.LEAVE_QUEUE in actions:
            if not exchange.session.gate.abandon(exchange):
                # It has its slot, and was about to start.
                self.free_slot(exchange)
            if exchange.waiting is not None and exchange.waiting.deadline is not None:
                exchange.waiting.deadline.cancel()
        task = exchange.task
        if Action.STOP in actions and task is not None:
            task.add_done_callback(lambda _: self._over(exchange))
            # A handler that closes its own session must live to finish closing it.
            if task is not asyncio.current_task():
                task.cancel()

    async def _end_otherwise(self, exchange: SessionExchange, action: Action, outcome: Outcome) -> None:
        """End an exchange in one of the other ways: the outcome of its handler is not stored."""
        writer = exchange.writer
        if action is Action.REFUSE or action is Action.GIVE_BACK:
            key, stream, fence = exchange.session.record.key, exchange.claim.stream, exchange.fence
            await self._runtime.write_eventually(lambda: self._runtime.store.give_back(key, stream, fence))
            if action is Action.REFUSE:
                raise Busy("Busy: too many calls are waiting in this session; try again shortly")
            exchange.refusal = self.claims.withdrawn(key)
            writer.changed()
            raise exchange.refusal
        if action is Action.END_BUSY and isinstance(outcome.error, Busy):
            record = exchange.session.record
            joined(outcome.error, self._runtime.audit.refused("busy", "", record.principal, record.key))
            exchange.refusal = outcome.error
        writer.end_with(outcome.message(exchange.request.id))
        if action is Action.SHOW_END:
            await writer.show()
        elif action is Action.DISOWN:
            self._runtime.observer.note("exchange.fenced", session=exchange.session.name)
            await writer.disown()
        elif not await self._store_end(exchange):
            self.claims.follow(exchange.claim.stream, self._store_later(exchange))

    async def _store_end(self, exchange: SessionExchange) -> bool:
        """Store the end of an exchange. False: the store is unavailable, and the end must be stored later."""
        try:
            await exchange.writer.settle()
            happened = _STORED
        except asyncio.CancelledError:
            exchange.state, _ = step(exchange.state, ExchangeInput.AWAY)
            self.claims.follow(exchange.claim.stream, self._store_later(exchange))
            raise
        except SessionGone:
            # Another replica has closed the session, and its wake-up is late or was lost.
            happened = ExchangeInput.STORED
            self._runtime.on_gone(exchange.session)
        except (Fenced, StreamClosed) as error:
            # Another replica has ended this exchange.
            happened = ExchangeInput.LOST
            self._runtime.observer.note("exchange.fenced", session=exchange.session.name, error=error)
        except StoreError as error:
            # A failure of the store does not mean that another replica has ended this exchange.
            happened = ExchangeInput.AWAY
            self._runtime.observer.note("exchange.unsettled", session=exchange.session.name, error=error)
        exchange.state, actions = step(exchange.state, happened)
        if not actions:
            return True
        if Action.DISOWN in actions:
            await exchange.writer.disown()
        return Action.TRY_AGAIN not in actions

    async def _store_later(self, exchange: SessionExchange) -> None:
        """Store the end once the store is back: no other replica ends the exchange of one that lives."""
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            if await self._store_end(exchange):
                return

    def _over(self, exchange: SessionExchange) -> None:
        """Record that the handler of an exchange that has ended is over too, and free its slot."""
        exchange.state, _ = step(exchange.state, ExchangeInput.OVER)
        exchange.writer.end_asks()
        self.free_slot(exchange)
        self._runtime.release(exchange.session)

    def free_slot(self, exchange: SessionExchange) -> None:
        """Give the slot to the next call. Control traffic has no slot, and calls in order have turns instead."""
        if exchange.claim.control or self._turns is not None:
            return
        following = exchange.session.gate.leave()
        if following is not None:
            self._start(following)
