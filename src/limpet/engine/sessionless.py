"""Sessionless calls: requests of protocol 2026-07-28. No session, no claim, and no store for a plain call.

A call is one exchange. Each HTTP request that belongs to it is one *round*: the first request starts the handler, and
each retry brings answers for the questions of the round before.

    client                     this module                                 handler
    ───────────────────────    ────────────────────────────────────────    ─────────────────────────────
    tools/call            ──▶  start: round 0, one task             ──▶    runs
                               quiet window, then `_park`            ◀──   asks; suspends on a future
    ◀── input_required         outcome of round 0: the questions
        + requestState         the call is kept in `Parking`
    (no connection is open)
    retry: answers        ──▶  go_on: opens the state, finds the     ──▶    the future gets its answer;
        + requestState         call, `take`s the answers                   the same handler continues
    ◀── result                 outcome of round 1               ◀──   returns

Why the body of a handler runs once
    The handler is one task from `start` to its end. It does not return between rounds: it waits for a future, and a
    retry sets that future's result. A retry never starts a handler; it finds the exchange by the key that is sealed in
    the `requestState`, or gets −31003. The key is random and sealed, so a client cannot reach another call with it. (An
    author can choose to keep no handler between rounds: `InputRequired` with a state `by_hand`. Then the retry is a
    call from the start by design, and the author's own state says how far it was.)

Why a repeated retry gets the same result
    A client whose response was lost sends its retry again. `RoundWriter.outcomes` keeps the outcome of each round by
    its number, and the number is in the `requestState`. The repeat therefore waits for, or receives, the outcome of the
    same round; it changes nothing, because the answers of a round are taken once. The same state with other answers is
    refused: the server cannot know which of the two answers the client means (`core/rounds.py`).

Why nothing is lost between rounds
    - An ask that is made while the call is parked is in no response. It waits and goes out with the next round.
    - A handler that ends while the call is parked settles the newest round. The retry finds the outcome there.
    - A retry that arrives before the outcome of its round waits for it as a `ResponseWaiter`, like the first request.
    - A notification has no place while no response is open: it is not sent. The protocol has no way to send it later.

Who may continue a call
    The sealed `requestState` names the principal, the request (a digest of its method and of the params that retries
    may not change), one round of one call, the replica that has the call, and an expiry date. If any of them does not
    match, the retry gets the error −31003, which does not tell the reason. For a state of another replica,
    `ParkedElsewhere` is raised, and the front forwards the retry (`forwarding.py`). From a retry on, the request's id,
    `_meta`, headers and caller are the retry's.

How a call ends
    Its handler returns or raises; its client closes the response of a call that is not parked, which is the
    cancellation in this revision (with an idempotency key `Times.repeat` later, if no repeat comes: `idempotency.py`);
    its token has expired too long ago (`sweep`); its time in `Parking` is over; or the server stops. Each of these goes
    through `settle`, and the first one counts.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from limpet.auth.seal import MAX_SEALED
from limpet.config import KIB
from limpet.core.admission import Admission, SharedGate
from limpet.core.exchange import Action, Actions, ExchangeInput, ExchangeState, step
from limpet.core.rounds import NOTHING_GIVEN, Asked, Given
from limpet.engine.caller import Caller
from limpet.engine.exchange import Exchange
from limpet.engine.handling import COPIES, run
from limpet.engine.keys import Keys
from limpet.engine.load import LARGE
from limpet.engine.outcome import Outcome
from limpet.engine.parking import Parking
from limpet.engine.rounds import ResponseWaiter, RoundWriter
from limpet.engine.runtime import Runtime
from limpet.engine.sessionless_client import SessionlessClient
from limpet.engine.tasks import TaskWriter
from limpet.errors import (
    Busy,
    Cancelled,
    InvalidParams,
    McpError,
    OutcomeUnknown,
    ParkedElsewhere,
    ParkedGone,
)
from limpet.ports import Spans
from limpet.protocol.sessionless import SUSPENDABLE, RequestMeta, typed_result
from limpet.wire.jsonrpc import Request, encode

_CUT_SHORT: Final = "The server stopped while this task was running; it may have had part of its effect"
_CALL_BYTES: Final = 4 * KIB
"""About the memory that a finished call takes in addition to its answers."""
_RETRY_MEMBERS: Final = frozenset({"_meta", "inputResponses", "requestState"})
"""Members of `params` that may differ between a request and its retries."""


_TASK_NAME: Final = "sessionless call"
"""The name of the tasks of handlers. A call has no key before it is parked."""
_FREE_SLOT: Final = Action.FREE_SLOT
_TASK: Final = ExchangeState.TASK
_CLOSED: Final = ExchangeInput.CLOSED
_CANCELLED: Final = ExchangeInput.CANCELLED
_ANSWERED: Final = ExchangeInput.ANSWERED
"""Short names for every call: Python 3.11 looks up a member of an enumeration slowly."""

NO_RESPONSES: Final[dict[str, Any]] = {}


class _State(Struct, frozen=True, array_like=True):
    """The content of a sealed `requestState`."""

    key: str
    number: int
    principal: str
    request: bytes
    expires: float
    replica: str
    """The replica where the call is parked."""
    by_hand: str | None = None
    """The author's own state. If there is one, nothing is parked and the retry is a call from the start."""
    ticket: str = ""
    """The task of a call that was handed over. Nothing is parked: any replica answers the retry."""
    origin: str = ""
    """The mark of the request's span, so that a retry with the author's state links to it; empty without traces."""


class HeldCall(Struct, eq=False):
    """A call that runs on for a while after its connection has broken."""

    name: tuple[str, str] | None
    """The hidden session and the id of the call (`idempotency.py`); None: of a retry."""
    timer: asyncio.TimerHandle | None = None
    """Cancels the call; None while a connection waits for it."""


BeginCall = Callable[[RequestMeta, Caller, Request], ResponseWaiter]


class SessionlessCalls:
    """Starts sessionless calls, parks them, and continues them."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._running: set[Exchange] = set()
        self._owners: dict[Exchange, str] = {}
        self._held: dict[Exchange, HeldCall] = {}
        """The calls that a broken connection does not cancel at once: their requests have an idempotency key."""
        self._places: SharedGate[Exchange] | None = None
        """Counts the calls by their owners, only while many run: a plain call does not pay for it."""
        times, limits = runtime.settings.times, runtime.settings.limits
        # Below seven eighths every owner gets a place.
        self._many = limits.sessionless_calls * 3 // 4
        self.keys: Keys = Keys(runtime)
        self.parking: Parking = Parking(limits, runtime.load.ledger.total, times.parked, self._expire)

    def start(
        self, meta: RequestMeta, caller: Caller, request: Request, given: Given | None = None
    ) -> ResponseWaiter:
        """Start the call of a request that has no `requestState`.

        The request may have `inputResponses` although it has no state: a client whose state has expired sends its call
        again with all answers. An ask with the key of such an answer gets it at once.

        Raises:
            InvalidParams: inputResponses is not an object.
            InsufficientScope: the caller lacks a scope.
            Stopping: this process is stopping.
            Busy: too many run already.
        """
        runtime = self._runtime
        if runtime.spans is not None and caller.span is None:
            return self._within_span(partial(self.start, given=given), meta, caller, request, runtime.spans)
        if runtime.is_draining and not (given and given.ticket) and runtime.refuses(request, caller):
            raise runtime.stopping()
        limits = runtime.settings.limits
        if runtime.access.rules is not None:
            runtime.access.judge(request, caller)
        if given is None:
            given = Given(None, _responses(request)) if "inputResponses" in request.params else NOTHING_GIVEN
        client = SessionlessClient(meta, caller.key, limits)
        exchange: Exchange
        writer = RoundWriter(
            lambda writer, number, asked: self._park(exchange, writer, number, asked),
            runtime.settings.times.quiet,
            limits.asks,
            request.method in SUSPENDABLE,
            given.answers,
        )
        # It gets its key when it is parked: before that no retry can name it.
        exchange = Exchange("", client, request, request, caller, writer, runtime.store)
        exchange.given = given
        is_crowded = len(self._running) >= self._many and not runtime.access.collects(request)
        if is_crowded and not self._take_place(exchange):
            raise Busy("Busy: too many calls are running; try again shortly")
        self._running.add(exchange)
        waiter = writer.add_waiter(exchange, 0, request.id)
        exchange.task = runtime.new_task(run(runtime, exchange, self), name=_TASK_NAME)
        return waiter

    def _take_place(self, exchange: Exchange) -> bool:
        """Give a call a place of its owner, if it gets one more."""
        if self._places is None:
            self._places = SharedGate(self._runtime.settings.limits.sessionless_calls, 0)
            for one in self._running:
                self._take_place(one)
        owner = exchange.caller.owner
        if self._places.enter(owner, exchange) is not Admission.START:
            return False
        self._owners[exchange] = owner
        return True

    def settle_nowait(self, exchange: Exchange, outcome: Outcome) -> bool:
        """End an exchange that is no task, unless it has ended. False, with nothing done: use `settle`."""
        if exchange.state is _TASK:
            return False
        happened = _CLOSED if outcome.happened is _CANCELLED else _ANSWERED
        exchange.state, actions = step(exchange.state, happened)
        if actions:
            writer = exchange.writer
            try:
                if isinstance(writer, RoundWriter):
                    writer.settle(outcome)
            finally:
                self._leave(exchange, actions)
                if exchange.caller.span is not None:
                    exchange.caller.span.end(outcome.error, outcome.result)
        return True

    async def settle(self, exchange: Exchange, outcome: Outcome) -> None:
        """End the exchange, unless it has ended. Only the end of a task is stored."""
        if self.settle_nowait(exchange, outcome):
            return
        exchange.state, actions = step(exchange.state, outcome.happened)
        try:
            if isinstance(exchange.writer, TaskWriter):
                await exchange.writer.settle(outcome)
                exchange.state, _ = step(exchange.state, ExchangeInput.STORED)
        finally:
            # Not before a task's end is stored: a stop waits for the calls that run.
            self._leave(exchange, actions)
            if exchange.caller.span is not None:
                exchange.caller.span.end(outcome.error, outcome.result)

    def _leave(self, exchange: Exchange, actions: Actions) -> None:
        """Free the place of a call whose handler is over.

        Else cancel the handler, which keeps the place until it is over.
        """
        if _FREE_SLOT in actions:
            self._forget(exchange)
        elif exchange.task is not None:
            exchange.task.add_done_callback(lambda _: self._over(exchange))
            exchange.task.cancel()

    def _over(self, exchange: Exchange) -> None:
        """Free the place of a call that has ended: its handler is over now too."""
        exchange.state, _ = step(exchange.state, ExchangeInput.OVER)
        self._forget(exchange)

    def _forget(self, exchange: Exchange) -> None:
        self._running.discard(exchange)
        if self._held:
            self._let_go(exchange)
        if self._places is not None:
            owner = self._owners.pop(exchange, None)
            if owner is not None:
                self._places.leave(owner)
            if 2 * len(self._running) < self._many:
                self._places = None
                self._owners.clear()
        exchange.writer.end_asks()

    # Parking and going on

    def _park(self, exchange: Exchange, writer: RoundWriter, number: int, asked: dict[str, Asked]) -> bytes:
        exchange.key = exchange.key or self._runtime.random.token(12)
        result: dict[str, Any] = {"requestState": self._seal(exchange, exchange.key, number)}
        if asked:
            result["inputRequests"] = asked
        encoded = encode(typed_result("input_required", self._runtime.back.server_info, result))
        # A long one matters twice: it is copied into the response.
        self._charge(exchange, writer, len(encoded) * (COPIES if len(encoded) >= LARGE else 1))
        try:
            self.parking.keep(exchange)
        except Busy:
            _free(exchange)
            raise
        exchange.state, _ = step(exchange.state, ExchangeInput.PARKED)
        writer.on_settled = partial(self._keep_outcomes, exchange, writer)
        if exchange.caller.span is not None:
            exchange.caller.span.end()
        return encoded

    def _keep_outcomes(self, exchange: Exchange, writer: RoundWriter) -> None:
        """Keep the outcomes of a call that has ended, for repeats. They have their own limit."""
        if exchange.has_ended:
            # A call that has become a task still runs and needs its request.
            exchange.drop_request()
        size = _CALL_BYTES + sum(outcome.size for outcome in writer.outcomes.values())
        if writer.charge is not None:
            writer.charge.set(size)
        for dropped in self.parking.finish(exchange, size):
            _free(dropped)

    def _charge(self, exchange: Exchange, writer: RoundWriter, size: int) -> None:
        """Charge a call for the memory of its questions, which repeats need, and of its client's later messages.

        These are its arguments at first, then the answers of each retry: its handler may keep all of them.

        Raises:
            Busy: there is no room.
        """
        load, params = self._runtime.load, exchange.request.params
        if writer.charge is None:
            writer.charge = load.account_of(exchange.caller).open()
        if writer.charge.size:
            size += load.cost(encode({name: params[name] for name in _RETRY_MEMBERS & params.keys()}))
        elif exchange.caller.charge is None:
            size += load.cost(encode(params))
        if not writer.charge.grow(writer.charge.size + size, urgent=True):
            raise Busy(
                "Busy: calls that wait for input take too much memory; try again later", retry_after=30
            )

    def seal(self, exchange: Exchange, state: str) -> str:
        """Seal an author's own state for the client, with the same bindings as the state of a parked call.

        Raises:
            ValueError: it is longer than a client should have to send.
        """
        sealed = self._seal(exchange, "", 0, state)
        if len(sealed) > MAX_SEALED:
            raise ValueError(f"a request's state is limited to about {MAX_SEALED * 2 // 3} bytes")
        return sealed

    def _seal(
        self, exchange: Exchange, key: str, number: int, by_hand: str | None = None, *, ticket: str = ""
    ) -> str:
        runtime = self._runtime
        expires = runtime.clock.wall() + runtime.settings.times.parked
        principal, span = exchange.session.record.principal, exchange.caller.span
        state = _State(
            key,
            number,
            principal,
            request_digest(exchange.request),
            expires,
            runtime.store.replica,
            by_hand,
            ticket,
            "" if by_hand is None or span is None else span.mark,
        )
        return self.keys.sealer.seal(encode(state))

    def seal_ticket(self, exchange: Exchange, ticket: str, number: int) -> str:
        """Seal the ticket of a call that was handed over, with the same bindings: a retry asks for the rest."""
        return self._seal(exchange, "", number, ticket=ticket)

    def count_task(self, exchange: Exchange, outer: Exchange) -> None:
        """Count a call that was handed over: it has become a task, and takes the place of its request."""
        self._running.add(exchange)
        owner = self._owners.pop(outer, None)
        if owner is not None:
            self._owners[exchange] = owner

    def go_on(self, meta: RequestMeta, caller: Caller, request: Request) -> ResponseWaiter:
        """Continue the call of a retry. From now on the request's id, `_meta` and headers are the retry's.

        Raises:
            ParkedGone: the state is invalid, has expired, or belongs to another request. One error for all reasons.
            InvalidParams: inputResponses is not an object.
            InsufficientScope: the caller of the retry lacks a scope.
            Busy: too many run already.
            ParkedElsewhere: the state is valid, and the call is parked at another replica.
        """
        if (spans := self._runtime.spans) is not None and caller.span is None:
            return self._within_span(self.go_on, meta, caller, request, spans)
        if self._runtime.access.judge(request, caller) is None:
            raise ParkedGone
        responses = _responses(request)
        state = self._open(request, caller)
        if state.by_hand is not None:
            if caller.span is not None:
                caller.span.link(state.origin)
            return self.start(meta, caller, request, Given(state.by_hand, responses))
        if state.ticket:
            return self.start(meta, caller, request, Given(ticket=state.ticket, number=state.number))
        if state.replica != self._runtime.store.replica:
            raise ParkedElsewhere(state.replica)
        exchange = self.parking.find(state.key)
        writer = _rounds_of(exchange)
        if exchange is None or writer is None:
            raise ParkedGone
        if not writer.take(state.number, responses, sha256(canonical(responses)).digest()):
            raise ParkedGone
        if state.number == writer.rounds.number and state.number not in writer.outcomes:
            exchange.state, _ = step(exchange.state, ExchangeInput.RETRIED)
            self.adopt(exchange, meta, caller, request)
        return writer.add_waiter(exchange, state.number, request.id)

    def adopt(self, exchange: Exchange, meta: RequestMeta, caller: Caller, request: Request) -> None:
        """Let a call continue for another request: a retry, or a repeat with its idempotency key."""
        # Its arguments are equal to those of the first request: keep one copy.
        exchange.request = _with_arguments_of(exchange.request, request)
        exchange.caller = replace(caller, charge=exchange.caller.charge, span=exchange.caller.span)
        exchange.session = SessionlessClient(meta, caller.key, self._runtime.settings.limits)
        if (writer := _rounds_of(exchange)) is not None and writer.on_retried is not None:
            writer.on_retried()
        held = self._held.get(exchange)
        if held is not None and held.timer is not None:
            held.timer.cancel()
            held.timer = None

    def _within_span(
        self, begin: BeginCall, meta: RequestMeta, caller: Caller, request: Request, spans: Spans
    ) -> ResponseWaiter:
        """Start or continue a call within the span of its request."""
        with spans.request(request, caller.headers, meta.version) as span:
            awaited = begin(meta, replace(caller, span=span), request)
            first = awaited.exchange.caller.span
            if first is span:
                awaited.exchange.bind(span)
            elif first is not None:
                span.link(first.mark)
                if awaited.outcome is None:
                    first.join(span)
            return awaited

    def starts_again(self, request: Request, caller: Caller) -> bool:
        """True if a request has a state that an author made by hand: it does not continue a call, but starts one."""
        if "requestState" not in request.params:
            return False
        try:
            return self._open(request, caller).by_hand is not None
        except ParkedGone:
            return False

    def _open(self, request: Request, caller: Caller) -> _State:
        sealed = request.params.get("requestState")
        opened = self.keys.sealer.open(sealed) if isinstance(sealed, str) else None
        if opened is None:
            raise ParkedGone
        try:
            state = msgspec.json.decode(opened, type=_State)
        except msgspec.DecodeError:
            # A later release has sealed it, with the same key.
            raise ParkedGone from None
        # The time of a parked call is measured where it waits (`parking.py`): the dates of two hosts differ, and a date
        # may jump.
        is_over = state.by_hand is not None and state.expires < self._runtime.clock.wall()
        if is_over or state.principal != caller.key or state.request != request_digest(request):
            raise ParkedGone
        return state

    # Ending

    async def abandon(self, exchange: Exchange) -> None:
        """End a call whose response was closed: in this revision that is its cancellation.

        Not at once if it is held.
        """
        held = self._held.get(exchange)
        if held is not None:
            if held.timer is not None:
                held.timer.cancel()
            seconds = self._runtime.settings.times.repeat
            held.timer = asyncio.get_running_loop().call_later(seconds, self._give_up, exchange)
            return
        await self.end(exchange, Cancelled("its response was closed"))

    def hold(self, exchange: Exchange, name: tuple[str, str] | None = None) -> None:
        """Let a call run on for `Times.repeat` after its connection has broken, so that a repeat can attach."""
        if exchange in self._running and exchange not in self._held:
            self._held[exchange] = HeldCall(name)

    def held_by(self, name: tuple[str, str]) -> Exchange | None:
        """Return the call that is held under this name."""
        return next((exchange for exchange, held in self._held.items() if held.name == name), None)

    def _give_up(self, exchange: Exchange) -> None:
        """Cancel a call whose connection broke, and which no repeat has attached to.

        A task, or a parked call, has its own lifetime.
        """
        writer = exchange.writer
        if isinstance(writer, RoundWriter) and writer.is_left:
            self._runtime.spawn(self.end(exchange, Cancelled("its response was closed")))

    def _let_go(self, exchange: Exchange) -> None:
        held = self._held.pop(exchange, None)
        if held is not None and held.timer is not None:
            held.timer.cancel()

    async def end(self, exchange: Exchange, error: McpError) -> None:
        """End a call with an error and cancel its handler. A result that it still returns is dropped."""
        await self.settle(exchange, Outcome(error=error, happened=ExchangeInput.CANCELLED))

    async def sweep(self) -> None:
        """End the calls that still run long after the token of their request has expired.

        A parked call waits for a retry with its own token, and a task has its own lifetime: they continue.
        """
        long_ago = self._runtime.clock.wall() - self._runtime.settings.times.after_expiry
        for exchange in list(self._running):
            principal = exchange.caller.principal
            is_late = principal is not None and principal.is_over(long_ago)
            if is_late and exchange.state is not _TASK and not _waits(exchange):
                await self.end(exchange, Cancelled("its token has expired"))

    def _expire(self, exchange: Exchange) -> None:
        _free(exchange)
        # A call that has become a task has its own lifetime.
        if exchange.state is not _TASK:
            self._runtime.spawn(self.end(exchange, ParkedGone()))

    def live(self) -> list[Exchange]:
        """Return the exchanges that have not ended, also those that are parked."""
        return list(self._running)

    def asks(self) -> int:
        """Return how many asks wait for an answer."""
        writers = (exchange.writer for exchange in self._running)
        return sum(writer.asks for writer in writers if isinstance(writer, RoundWriter | TaskWriter))

    def working(self) -> list[Exchange]:
        """Return the exchanges whose handlers do not wait for their client."""
        return [exchange for exchange in self._running if not _waits(exchange)]

    async def end_work(self, reason: str) -> None:
        """End all calls that run or are parked. A retry of a parked call gets −31003."""
        waiting = self.parking.clear()
        if waiting:
            self._runtime.observer.note("parked.dropped", count=len(waiting))
        for exchange in list(self._running):
            is_task = exchange.state is _TASK
            await self.end(exchange, OutcomeUnknown(_CUT_SHORT) if is_task else Cancelled(reason))


def _waits(exchange: Exchange) -> bool:
    """True if a handler continues only after its client has answered."""
    writer = exchange.writer
    if isinstance(writer, TaskWriter):
        return writer.is_waiting
    return isinstance(writer, RoundWriter) and writer.is_parked


def _free(exchange: Exchange) -> None:
    """Free the memory charge of a call's rounds: no retry can reach them any more."""
    writer = _rounds_of(exchange)
    if writer is not None and writer.charge is not None:
        writer.charge.free()


def _rounds_of(exchange: Exchange | None) -> RoundWriter | None:
    """Return the writer of a call's rounds, also if the call has become a task since."""
    writer = exchange.writer if exchange is not None else None
    if isinstance(writer, TaskWriter):
        return writer.former
    return writer if isinstance(writer, RoundWriter) else None


def _responses(request: Request) -> dict[str, Any]:
    responses = request.params.get("inputResponses", NO_RESPONSES)
    if type(responses) is not dict:
        raise InvalidParams("Invalid params: inputResponses must be an object")
    return responses


def _with_arguments_of(first: Request, retry: Request) -> Request:
    """Return a retry that shares the arguments of the first request: their digests are equal."""
    kept = {name: value for name, value in first.params.items() if name not in _RETRY_MEMBERS}
    return Request(retry.id, retry.method, {**retry.params, **kept})


def canonical(value: object) -> bytes:
    """Return the one JSON form of a value."""
    return msgspec.json.encode(value, order="deterministic")


def request_digest(request: Request) -> bytes:
    """Return a digest of a request without the members that its retries may change."""
    salient = {name: value for name, value in request.params.items() if name not in _RETRY_MEMBERS}
    return sha256(canonical([request.method, salient])).digest()
