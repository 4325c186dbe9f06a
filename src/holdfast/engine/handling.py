"""Running a handler: whatever it does, one outcome comes of it, and the exchange is settled with that."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from holdfast.engine.exchange import Exchange
from holdfast.engine.failures import masked_words, note_failure
from holdfast.engine.faults import ends_the_task
from holdfast.engine.outcome import Outcome
from holdfast.engine.runtime import Runtime
from holdfast.engine.session import Session
from holdfast.errors import (
    INTERNAL_ERROR,
    Cancelled,
    Fenced,
    McpError,
    OutcomeUnknown,
    SessionGone,
    StoreError,
    StreamClosed,
)
from holdfast.wire.jsonrpc import encode

E = TypeVar("E", bound=Exchange)
Settle = Callable[[E, Outcome], Coroutine[Any, Any, None]]
"""Ends an exchange with an outcome, unless it has ended."""


async def run(runtime: Runtime, exchange: E, settle: Settle[E]) -> None:
    """Let the back answer an exchange, then settle it. This is the whole of an exchange's task."""
    outcome = await handle(runtime, exchange)
    task = exchange.task
    if task is None or not task.cancelling():
        await settle(exchange, outcome)
    else:
        # The handler has cancelled its own task: the cancellation may still come, at the next await here.
        runtime.spawn(settle(exchange, outcome))


async def handle(runtime: Runtime, exchange: Exchange) -> Outcome:
    """Let the back answer an exchange.

    Raises:
        CancelledError: the exchange has been settled by somebody else, who stopped the handler.
    """
    try:
        return Outcome(await runtime.back.handle(exchange))
    except McpError as error:
        return _refused(runtime, exchange, error)
    except asyncio.CancelledError:
        if exchange.settled:
            raise
        return Outcome(error=Cancelled())
    except (Fenced, StreamClosed) as error:
        # No fault of the handler, and nothing to look into.
        runtime.observer.note("handler.fenced", session=exchange.session.name, error=error)
        return Outcome(error=OutcomeUnknown(), fenced=True)
    except SessionGone as error:
        if await _is_closed(runtime, exchange):
            return Outcome(error=Cancelled("the session was closed"))
        return _masked(runtime, exchange, error)
    except BaseException as error:
        if ends_the_task(error):
            raise
        return _masked(runtime, exchange, error)
    finally:
        if exchange.caller.charge is not None:
            exchange.let_go()


async def _is_closed(runtime: Runtime, exchange: Exchange) -> bool:
    """Return True if the exchange's session is closed. A scope of state that is forgotten raises the same error."""
    if not isinstance(exchange.session, Session):
        return False
    try:
        return await runtime.store.holder(exchange.session.record.key) is None
    except StoreError:
        return False


def _refused(runtime: Runtime, exchange: Exchange, error: McpError) -> Outcome:
    """Answer with the error, unless it cannot be encoded: that must be found out while it can still be answered."""
    try:
        encode((error.message, error.data))
    except Exception as failed:  # noqa: BLE001 - whatever an author put into it
        return _masked(runtime, exchange, failed)
    return Outcome(error=error)


def _masked(runtime: Runtime, exchange: Exchange, error: BaseException) -> Outcome:
    """Hide what happened from the client, tell the log, join the two by a correlation id."""
    correlation = note_failure(runtime, exchange, error)
    return Outcome(error=McpError(INTERNAL_ERROR, masked_words(correlation)))
