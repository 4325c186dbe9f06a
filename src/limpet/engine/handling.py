"""Running a handler: it has exactly one outcome, and the exchange is settled with it."""

import asyncio
from collections.abc import Awaitable
from typing import Final, Protocol, TypeVar

from limpet.core.exchange import ExchangeInput
from limpet.core.ledger import Charge
from limpet.engine.author_errors import ends_the_task
from limpet.engine.exchange import Exchange
from limpet.engine.failure_log import hide_cause, masked_words, note_failure
from limpet.engine.load import LARGE
from limpet.engine.outcome import Outcome
from limpet.engine.runtime import Runtime
from limpet.engine.session import Session
from limpet.errors import (
    ANSWER_DROPPED,
    INTERNAL_ERROR,
    Cancelled,
    Fenced,
    McpError,
    OutcomeUnknown,
    SessionGone,
    StoreBusy,
    StoreError,
    StoreUnavailable,
    StreamClosed,
    UpstreamFailed,
    UpstreamUnavailable,
    joined,
)
from limpet.protocol.methods import REPEATABLE
from limpet.wire.jsonrpc import encode

_CLOSED: Final = "the session was closed"
COPIES: Final = 2
"""How often a result is in memory while its answer is made of it."""
E = TypeVar("E", bound=Exchange)
E_contra = TypeVar("E_contra", bound=Exchange, contravariant=True)


class Ends(Protocol[E_contra]):
    """Ends an exchange with an outcome, unless it has ended."""

    def settle_nowait(self, exchange: E_contra, outcome: Outcome) -> bool:
        """End it without waiting; False, with nothing done: use `settle`."""

    async def settle(self, exchange: E_contra, outcome: Outcome) -> None:
        """End it."""


async def run(runtime: Runtime, exchange: E, ends: Ends[E], answer: Awaitable[bytes] | None = None) -> None:
    """Let the back answer an exchange, then settle it. An exchange's task runs this and nothing else.

    `answer`: the back is at it already.

    Raises:
        CancelledError: the exchange was ended from outside, and its handler was stopped.
    """
    charge, watch = None, runtime.watch
    if watch is not None and answer is None:
        exchange.began = watch.now()
    try:
        handle = runtime.handle
        outcome = Outcome(await (handle(exchange) if answer is None else answer))
        if watch is not None:
            watch.ended(exchange, outcome.result)
        if len(outcome.result) >= LARGE:
            charge = _charged(runtime, exchange, len(outcome.result))
    except BaseException as error:  # noqa: BLE001 - raised again by `_outcome_of` if it ends the task
        if watch is not None:
            watch.ended(exchange, error=error)
        outcome = await _outcome_of(runtime, exchange, error)
    finally:
        if charge is not None or exchange.caller.charge is not None:
            exchange.drop_request(charge)
    task = exchange.task
    if task is not None and task.cancelling():
        # The handler has cancelled its own task: the cancellation may be raised at the next await here.
        runtime.spawn(ends.settle(exchange, outcome))
    elif not ends.settle_nowait(exchange, outcome):
        await ends.settle(exchange, outcome)


def _charged(runtime: Runtime, exchange: Exchange, size: int) -> Charge:
    """Charge a long result until its client has it.

    Raises:
        OutcomeUnknown: there is no memory for it.
    """
    charge = runtime.load.account_of(exchange.caller).take(size * COPIES, urgent=True)
    if charge is None:
        raise OutcomeUnknown(ANSWER_DROPPED)
    return charge


async def _outcome_of(runtime: Runtime, exchange: Exchange, failure: BaseException) -> Outcome:
    """Return the outcome of a handler that has raised.

    Raises:
        BaseException: the failure itself, if it ends the task.
    """
    match failure:
        case McpError():
            return _outcome_of_refusal(runtime, exchange, failure)
        case asyncio.CancelledError():
            if exchange.has_ended:
                raise failure
            # Until the process ends we cancel only handlers whose exchange has ended.
            return Outcome(error=Cancelled("" if runtime.is_over else await _canceller(runtime, exchange)))
        case Fenced() | StreamClosed():
            # The handler is not at fault: no traceback.
            return Outcome(
                error=_noted(runtime, exchange, "handler.fenced", OutcomeUnknown(), failure),
                happened=_lost(exchange),
            )
        case SessionGone() if await _check_closed(runtime, exchange):
            return Outcome(error=Cancelled(_CLOSED))
        case StoreUnavailable() if exchange.request.method in REPEATABLE:
            return Outcome(error=_noted(runtime, exchange, "call.unserved", StoreBusy(), failure))
        case _:
            if ends_the_task(failure):
                raise failure
            return _masked(runtime, exchange, failure)


async def _canceller(runtime: Runtime, exchange: Exchange) -> str:
    """Return the reason of a cancellation in the handler of an exchange that has not ended.

    A message for a closed session raises it (`writer.py`), and the wake-up that ends the exchange may be late.
    """
    task = exchange.task
    # A task that was cancelled in fact may not await here: the cancellation may be raised again.
    is_cancelled = task is not None and task.cancelling() > 0
    return (
        _CLOSED if not is_cancelled and await _check_closed(runtime, exchange) else "by the function itself"
    )


def _lost(exchange: Exchange) -> ExchangeInput:
    """Return the input for a refused write.

    An exchange without a log cannot read another replica's end: RETURNED, an error.
    """
    session = exchange.session
    has_log = isinstance(session, Session) and session.duplex is None
    return ExchangeInput.LOST if has_log else ExchangeInput.RETURNED


async def _check_closed(runtime: Runtime, exchange: Exchange) -> bool:
    """Ask the store whether the exchange's session is closed. A deleted area of state raises the same error."""
    if not isinstance(exchange.session, Session):
        return False
    try:
        return await runtime.store.look(exchange.session.record.key) is None
    except StoreError:
        return False


def _outcome_of_refusal(runtime: Runtime, exchange: Exchange, error: McpError) -> Outcome:
    """Answer with the error. If it cannot be encoded, answer with another one; checked while that is still possible."""
    try:
        encode((error.message, error.data))
    except Exception as failed:  # noqa: BLE001 - an author's code
        return _masked(runtime, exchange, failed)
    event = next((event for kind, event in _OURS.items() if isinstance(error, kind)), None)
    if event is not None:
        _noted(runtime, exchange, event, error, error)
        hide_cause(runtime, error)
    # The frames of its traceback refer to the call, which refers to its outcome: without them no such cycle waits for
    # the collector.
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return Outcome(error=error)


_OURS: Final[dict[type[McpError], str]] = {
    OutcomeUnknown: "call.unknown",
    StoreBusy: "call.unserved",
    UpstreamUnavailable: "call.unserved",
    UpstreamFailed: "call.unserved",
}
"""Errors that are not the handler's own answer: a client may ask its operator about them."""


def _noted(
    runtime: Runtime, exchange: Exchange, event: str, error: McpError, cause: BaseException
) -> McpError:
    """Log why a call has no answer; return the error with the correlation id of the line."""
    return joined(error, note_failure(runtime, exchange, cause, event))


def _masked(runtime: Runtime, exchange: Exchange, error: BaseException) -> Outcome:
    """Log the failure, and answer with a correlation id only."""
    correlation = note_failure(runtime, exchange, error)
    return Outcome(error=joined(McpError(INTERNAL_ERROR, masked_words(correlation)), correlation))
