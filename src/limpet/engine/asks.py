"""Asks: requests to the client. Many are open at once, up to a limit, and each has its own answer.

Answers may arrive on any connection and in any order. An ask that waits holds nothing that an answer needs, so asks
block neither each other nor the receive path (law 10).

An ask ends with its call, also if another task waits for it than the handler: one that the handler has started, or the
task for a question of a server behind us. `Session.end_asks` ends it while it waits for a place in this process, for a
place in the store, or for its answer, as soon as the handler is over. Its places are free again, and the client has
received the cancellation of each ask that was sent before the terminal message of the call.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from limpet.core.admission import Admission
from limpet.core.empty_table import EMPTY
from limpet.engine.outages import retried
from limpet.engine.session import OpenAsk, Session
from limpet.errors import (
    AskRefused,
    AskTimeout,
    BackPressureError,
    CallEnded,
    Fenced,
    LimpetError,
    NoBackChannel,
    SessionGone,
    StoreUnavailable,
)
from limpet.ports import Random
from limpet.stores.base import Store
from limpet.wire.jsonrpc import notification_message, request_message

Send = Callable[[bytes], Awaitable[None]]
_PLACE_SECONDS: Final = 0.05
_NAME_BYTES: Final = 6
_CANCEL_SECONDS: Final = 1.0
"""How long an ask that has ended waits for a client that reads slowly, to send the cancellation."""


async def ask(
    store: Store,
    random: Random,
    session: Session,
    stream: str,
    send: Send,
    method: str,
    params: object,
    timeout: float | None,
) -> Any:
    """Send one ask on `stream` and wait for its result."""
    if not session.lasting:
        raise NoBackChannel(
            f"{method} cannot reach the client: without sessions the server cannot receive the answer"
        )
    seconds = session.limits.ask_seconds if timeout is None else timeout
    # Random, not a number: another replica may ask on the same stream, or have asked on it before it died.
    name = f"{stream}.{random.token(_NAME_BYTES)}"
    bound = asyncio.timeout(seconds)
    asked = OpenAsk(stream, bound)
    try:
        async with bound:
            payload = await _ask_when_placed(store, session, name, asked, send, method, params)
    except asyncio.CancelledError:
        # The handler does not wait any more, and the client may show the question for as long as its user likes. The
        # end of a call cancels its asks itself.
        if asked.is_sent and not asked.has_ended:
            await _cancel(send, name, "no longer needed")
        raise
    except TimeoutError:
        if asked.has_ended:
            raise CallEnded(method) from None
        # Only a request that was sent can be cancelled.
        if asked.is_sent:
            await _cancel(send, name, "timed out")
        raise AskTimeout(f"the client did not answer {method} within {seconds:g} s") from None
    if payload is None:
        raise await _why_forgotten(store, session, method)
    return _result(method, payload)


async def _why_forgotten(store: Store, session: Session, method: str) -> LimpetError:
    """Return why the store has forgotten an ask: its session is closed, or another replica has ended its exchange."""
    # A session on a connection ends with it, and no other replica has its calls.
    if session.duplex is not None or await retried(lambda: store.look(session.record.key)) is None:
        return SessionGone(f"the session ended before the client answered {method}")
    return Fenced(f"another replica ended the call before the client answered {method}")


async def _enter(session: Session, method: str) -> None:
    ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    verdict = session.asking.enter(ticket)
    if verdict is Admission.REFUSE:
        limits = session.limits
        raise BackPressureError(
            f"{method} refused: {limits.asks} asks are outstanding and {limits.asks_queued} wait in this session"
        )
    if verdict is Admission.WAIT:
        try:
            await ticket
        except asyncio.CancelledError:
            # It was let in and cancelled before it noticed: give the place back.
            if not session.asking.abandon(ticket):
                _leave(session)
            raise


async def _register(store: Store, session: Session, name: str, stream: str) -> bool:
    """Register the ask. False: asks of other replicas have all places, or the store is unavailable."""
    try:
        return await store.ask(session.record.key, name, stream)
    except StoreUnavailable:
        return False


def _leave(session: Session) -> None:
    following = session.asking.leave()
    # A ticket that was cancelled meanwhile has the place too, and gives it back itself.
    if following is not None and not following.done():
        following.set_result(None)


async def _ask_when_placed(
    store: Store, session: Session, name: str, asked: OpenAsk, send: Send, method: str, params: object
) -> bytes | None:
    """Wait for a place, send the ask, and return its answer; None: it can no longer come."""
    if session.pending is EMPTY:
        session.pending = {}
    session.pending[name] = asked
    try:
        await _enter(session, method)
        try:
            return await _send_and_wait(
                store, session, name, asked, send, request_message(name, method, params)
            )
        finally:
            try:
                # Also for an ask that was on its way to the store, and after the answer was taken: it may be as long as
                # a message, and its exchange may continue for long. Its digest stays for a repeat. If the store is
                # unavailable, the ask ends with its exchange.
                with contextlib.suppress(StoreUnavailable):
                    await store.withdraw(session.record.key, name)
            finally:
                _leave(session)
    finally:
        session.pending.pop(name, None)


async def _send_and_wait(
    store: Store, session: Session, name: str, asked: OpenAsk, send: Send, message: bytes
) -> bytes | None:
    try:
        while not await _register(store, session, name, asked.stream):  # noqa: ASYNC110 - no wake-up says when a place is free
            await asyncio.sleep(_PLACE_SECONDS)
        asked.is_sent = True
        await send(message)
        # The deadline of the ask limits the wait for an unavailable store, and for an answer that a failover of the
        # store has lost: its client has sent it, and the ask waits in the store as before.
        answer: bytes | None = b""
        while answer == b"" and not asked.is_cut_off:
            await asked.wait()
            answer = await retried(lambda: store.take_answer(session.record.key, name))
        if answer is None and asked.has_ended:
            # The store has forgotten the ask with its call, whose handler is being stopped: its cancellation or end
            # ends this.
            await asyncio.get_running_loop().create_future()
        return answer or None
    finally:
        # It waits for nothing more: the end of its call must not interrupt the withdrawal.
        del session.pending[name]


def _result(method: str, payload: bytes) -> Any:
    answer = msgspec.json.decode(payload)
    error = answer.get("error")
    if error is not None:
        raise AskRefused(method, error["code"], error["message"], error.get("data"))
    return answer["result"]


async def _cancel(send: Send, name: str, reason: str) -> None:
    """Tell the client that the answer is no longer needed.

    Its exchange may have ended, and then it needs no message.
    """
    with contextlib.suppress(LimpetError, OSError, TimeoutError):
        async with asyncio.timeout(_CANCEL_SECONDS):
            await send(cancellation(name, reason))


def cancellation(name: str, reason: str = "the call that asked has ended") -> bytes:
    """Return the message that cancels an ask."""
    return notification_message("notifications/cancelled", {"requestId": name, "reason": reason})
