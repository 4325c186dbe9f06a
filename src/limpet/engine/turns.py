"""`in_order`: a session's calls run one after another, in all processes together.

The store decides. Claims are numbered by their fences, so a call may start when no call of its session with a
smaller fence is in flight. Each process asks the store for its own calls (`turn`): when the call arrives, when
a wake-up says that a turn was passed on, and several times a second, because wake-ups get lost.

The turn of a call may end later than its id. A cancelled call is answered at once and its id is free, but its handler
may still clean up, and the thread of a plain function cannot be stopped at all. So its turn is held in the store
(`hold_turn`) before the call is settled, and passed on (`pass_turn`) when the handler and its threads have
really ended. If the process dies, the turns that it held end with its lease, like its calls.

Why no two calls run at once: a call starts only after the store has said that nothing before it is in flight or held,
and a call that is claimed later has a greater fence. Why no call waits forever: every call before it ends, is refused
after `queue_seconds`, or is reaped with its process; and the wait of the call itself has that limit too.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, Final

from limpet.core.admission import Admission
from limpet.core.empty_table import EMPTY
from limpet.core.exchange import ExchangeInput
from limpet.engine.exchange import QueuedStart, SessionExchange
from limpet.engine.outages import retried
from limpet.engine.outcome import Outcome
from limpet.engine.runtime import Runtime
from limpet.engine.session import Session
from limpet.engine.turn import TURN, Turn
from limpet.engine.wake import Wake
from limpet.errors import Busy, Fenced, OutcomeUnknown, SessionGone, StoreError, StreamClosed

_LOOK_SECONDS: Final = 0.25
"""How often a call that waits asks for its turn without a wake-up."""


Start = Callable[[SessionExchange], Coroutine[Any, Any, None]]
"""Starts a call, unless no connection waits for it any more."""
Settle = Callable[[SessionExchange, Outcome], Coroutine[Any, Any, None]]


def too_late(seconds: float) -> Outcome:
    """Return the end of a call that has waited too long for its slot or its turn."""
    return Outcome(error=Busy(f"Busy: no slot became free within {seconds:g} s"), happened=ExchangeInput.LATE)


class Turns:
    """Lets the calls of each session begin one after another."""

    def __init__(self, runtime: Runtime, start: Start, settle: Settle) -> None:
        self._runtime = runtime
        self._start = start
        self._settle = settle

    def admit(self, session: Session) -> Admission:
        """Let one more call wait, or refuse it.

        A call that could start at once also waits, until the store has said so.
        """
        # One of those that wait is about to start.
        has_room = len(session.waiting) <= self._runtime.settings.limits.queued
        return Admission.WAIT if has_room else Admission.REFUSE

    def wait(self, exchange: SessionExchange) -> None:
        """Start a call when its turn has come."""
        session = exchange.session
        if session.waiting is EMPTY:
            session.waiting = {}
        session.waiting[exchange.claim.stream] = Wake()
        exchange.waiting = QueuedStart(copy_context())
        self._runtime.spawn(self._wait(exchange))

    async def _wait(self, exchange: SessionExchange) -> None:
        waiting, stream = exchange.session.waiting, exchange.claim.stream
        wake = waiting[stream]
        now, seconds = asyncio.get_running_loop().time, self._runtime.settings.limits.queue_seconds
        deadline = now() + seconds
        try:
            while True:
                wake.clear()
                try:
                    may_start = await self._take_turn(exchange)
                except (Fenced, StreamClosed, SessionGone):
                    await self._settle(exchange, Outcome(error=OutcomeUnknown(), happened=ExchangeInput.LOST))
                    return
                if exchange.has_ended:
                    return
                if may_start:
                    await self._begin(exchange)
                    return
                if now() >= deadline:
                    await self._settle(exchange, too_late(seconds))
                    return
                await wake.wait(min(_LOOK_SECONDS, deadline - now()))
        finally:
            del waiting[stream]

    async def _take_turn(self, exchange: SessionExchange) -> bool:
        key, stream = exchange.session.record.key, exchange.claim.stream
        try:
            return await self._runtime.store.turn(key, stream, exchange.fence)
        except (Fenced, StreamClosed):
            raise
        except StoreError:
            return False

    async def _begin(self, exchange: SessionExchange) -> None:
        loop = asyncio.get_running_loop()

        def over() -> None:
            # A thread may outlive the loop; then its process is ending, and its turns end with its lease.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._pass, exchange)

        turn = exchange.turn = Turn(over)
        if exchange.waiting is not None:
            exchange.waiting.context.run(TURN.set, turn)
        await self._start(exchange)
        if exchange.task is not None:
            exchange.task.add_done_callback(lambda _: turn.leave())
        else:
            # It has ended without a start: the turn passes on.
            turn.leave()

    async def hold(self, exchange: SessionExchange) -> None:
        """Hold the turn of a call that is about to be settled until its task and its threads have ended."""
        turn, task = exchange.turn, exchange.task
        if turn is None or task is None:
            return
        is_running = task is not asyncio.current_task() and not task.done()
        if is_running or turn.has_threads:
            store, key = self._runtime.store, exchange.session.record.key
            try:
                await retried(lambda: store.hold_turn(key, exchange.claim.stream, exchange.fence))
            except (StoreError, SessionGone):
                # The call is no longer ours, or its session is gone: its turn has ended too.
                return
            if turn.is_over:
                # It ended meanwhile, and its turn was passed on before the store held it.
                self._pass(exchange)

    def _pass(self, exchange: SessionExchange) -> None:
        self._runtime.spawn(self._pass_turn(exchange))

    async def _pass_turn(self, exchange: SessionExchange) -> None:
        store, key, stream = self._runtime.store, exchange.session.record.key, exchange.claim.stream
        await retried(lambda: store.pass_turn(key, stream, exchange.fence))
