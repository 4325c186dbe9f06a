"""Asks: requests to the client. Many are open at once, up to a limit, and each has its own answer.

Answers may arrive on any connection and in any order. An ask that waits holds nothing that an answer needs, so asks
block neither each other nor the receive path (law 10).
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from holdfast.core.admission import Admission
from holdfast.engine.outages import retried
from holdfast.engine.session import Session
from holdfast.errors import (
    AskRefused,
    AskTimeout,
    BackPressureError,
    Fenced,
    HoldfastError,
    NoBackChannel,
    SessionGone,
    StoreUnavailable,
)
from holdfast.ports import Random
from holdfast.stores.base import Store
from holdfast.wire.jsonrpc import notification_message, request_message

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
    limits = session.limits
    seconds = limits.ask_seconds if timeout is None else timeout
    # Random, not a number: another replica may ask on the same stream, or have asked on it before it died.
    name = f"{stream}.{random.token(_NAME_BYTES)}"
    entered = False
    try:
        async with asyncio.timeout(seconds):
            await _enter(session, method)
            try:
                while not await _has_place(store, session, name, stream):  # noqa: ASYNC110 - no wake-up says when a place is free
                    await asyncio.sleep(_PLACE_SECONDS)
                entered = True
                payload = await _asked(store, session, name, send, method, params)
            except BaseException:
                # Also for an ask that was on its way to the store. If the store is unavailable, the ask ends with its exchange.
                with contextlib.suppress(StoreUnavailable):
                    await store.withdraw(session.record.key, name)
                raise
            finally:
                _leave(session)
    except asyncio.CancelledError:
        # The handler does not wait any more, and the client may show the question for as long as its user likes.
        if entered:
            await _cancel(send, name, "no longer needed")
        raise
    except TimeoutError:
        # Only a request that was sent can be cancelled.
        if entered:
            await _cancel(send, name, "timed out")
        raise AskTimeout(f"the client did not answer {method} within {seconds:g} s") from None
    if payload is None:
        raise await _forgotten(store, session, method)
    return _result(method, payload)


async def _forgotten(store: Store, session: Session, method: str) -> HoldfastError:
    """Return why the store has forgotten an ask that waits: its session is closed, or another replica has ended its exchange."""
    if await retried(lambda: store.look(session.record.key)) is None:
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


async def _has_place(store: Store, session: Session, name: str, stream: str) -> bool:
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


async def _asked(
    store: Store, session: Session, name: str, send: Send, method: str, params: object
) -> bytes | None:
    arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    session.pending[name] = arrived
    try:
        await send(request_message(name, method, params))
        await arrived
        # The deadline of the ask limits the wait for an unavailable store.
        payload = await retried(lambda: store.take_answer(session.record.key, name))
    finally:
        del session.pending[name]
    # An answer may be as long as a message, and its exchange may continue for long. Its digest stays for a repeat. If the
    # store is unavailable now, the answer goes with its exchange.
    with contextlib.suppress(StoreUnavailable):
        await store.withdraw(session.record.key, name)
    return payload


def _result(method: str, payload: bytes) -> Any:
    answer = msgspec.json.decode(payload)
    error = answer.get("error")
    if error is not None:
        raise AskRefused(method, error["code"], error["message"], error.get("data"))
    return answer["result"]


async def _cancel(send: Send, name: str, reason: str) -> None:
    """Tell the client that the answer is no longer needed. Its exchange may have ended, and then it needs no message."""
    message = notification_message("notifications/cancelled", {"requestId": name, "reason": reason})
    with contextlib.suppress(HoldfastError, OSError, TimeoutError):
        async with asyncio.timeout(_CANCEL_SECONDS):
            await send(message)
