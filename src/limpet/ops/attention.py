"""Warns operators of urgent problems: a call that hangs, a tool that fails, a full queue, a dead replica.

A loop checks the live objects once a second, so a call pays nothing for it. A call that has not ended after
`Times.report_after` seconds gets one line with the reason why it waits; one more if it later waits as long for
another reason. Its `call` is its name on the dashboard.

A full queue is reported when it becomes full, once until it has room again. A tool is reported when it begins to fail,
once until it no longer does (`trouble_of`, which also decides for the dashboard).

A replica that stops gives its lease back, and a replica that dies does not: the lease of a dead replica runs out.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final, Literal

from limpet.engine.engine import Engine
from limpet.engine.exchange import Exchange, SessionExchange
from limpet.engine.failure_log import NAMED
from limpet.engine.inner import answering
from limpet.errors import StoreError
from limpet.ops.call_log import CallWatch
from limpet.ops.call_names import call_name, subject
from limpet.ops.recent import Recent, Subject
from limpet.ops.waits import live_state, waits_for
from limpet.ports import Clock, Observer
from limpet.protocol.versions import SESSIONLESS
from limpet.supervision import supervise

SECONDS: Final = 1.0
_EVENTS: Final = {"ask": "ask.unanswered", "reader": "reader.slow"}
"""By the reason why a call waits: the event. All others are `call.slow`."""
_LEAST: Final = 5
"""Errors below which nothing is reported: a single wrong call is no trouble of a tool."""
_RISING: Final = 0.1
_FAILING: Final = 0.25
"""Shares of calls that fail."""
_TIMES: Final = 2.0
Trouble = Literal["", "rising", "failing"]


def trouble_of(recent: Recent) -> Trouble:
    """Return whether a tool fails, and more than before: the one rule, for the log and the dashboard."""
    calls, errors = recent.last.calls, recent.last.errors
    share, earlier = _share(errors, calls), _share(recent.earlier_errors, recent.earlier_calls)
    if errors >= _LEAST and share >= _RISING and recent.earlier_calls and share >= _TIMES * earlier:
        return "rising"
    errors, calls = errors + recent.earlier_errors, calls + recent.earlier_calls
    return "failing" if errors >= _LEAST and _share(errors, calls) >= _FAILING else ""


def _share(errors: int, calls: int) -> float:
    return errors / calls if calls else 0.0


class Attention:
    """Checks one engine."""

    def __init__(self, engine: Engine, watch: CallWatch, clock: Clock, observer: Observer) -> None:
        self._engine = engine
        self._watch = watch
        self._now = clock.now
        self._note = observer.note
        self._observer = observer
        self._seen: dict[Exchange, tuple[str, float]] = {}
        """By call: the reason why it waits, and since when."""
        self._full: set[str] = set()
        """Names of the sessions whose queues are full; empty: that of sessionless calls."""
        self._failing: set[Subject] = set()
        """The tools that fail."""
        self._leases: dict[str, float] = {}
        """By replica: the remaining time of its lease at the last check."""
        self._looked_at = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Check once a second until stopped, on the running loop."""
        self.stop()
        self._task = supervise("attention", self._run, self._observer)

    def stop(self) -> None:
        """Stop checking."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(SECONDS)
            self.look()
            await self._look_at_replicas()

    def look(self) -> None:
        """Report problems that were not reported yet."""
        exchanges = self._engine.live_exchanges()
        self._look_at_calls(exchanges)
        self._look_at_queues(exchanges)
        if self._watch.look(self._now()):
            self._look_at_tools()

    # Calls

    def _look_at_calls(self, exchanges: Iterable[Exchange]) -> None:
        before, self._seen = self._seen, {}
        now, patience = self._now(), self._engine.settings.times.report_after
        for exchange in exchanges:
            waits, since = before.get(exchange) or ("", exchange.began or now)
            if now - since >= patience and (found := waits_for(exchange)) != waits:
                if not _may_take_long(exchange, found):
                    self._report(exchange, found, now - (exchange.began or since))
                waits, since = found, now
            self._seen[exchange] = waits, since

    def _report(self, exchange: Exchange, waits: str, seconds: float) -> None:
        request, client = exchange.request, exchange.session
        facts: dict[str, Any] = {
            **subject(request),
            "call": call_name(exchange),
            "waits_for": waits,
            "seconds": round(seconds),
            "client": client.client_name,
            "era": "sessionless" if client.revision is SESSIONLESS else "session",
        }
        if exchange.session_key:
            facts["session"] = client.name
        if exchange.store.is_shared:
            facts["replica"] = exchange.store.replica
        self._note(_EVENTS.get(waits, "call.slow"), **facts)

    # Queues

    def _look_at_queues(self, exchanges: Iterable[Exchange]) -> None:
        full: set[str] = set()
        for session in self._engine.live_sessions():
            if session.gate.refuses():
                full.add(session.name)
                if session.name not in self._full:
                    self._note(
                        "queue.full",
                        session=session.name,
                        client=session.client_name,
                        running=session.gate.inside,
                        queued=session.gate.waiting,
                    )
        running = sum(not isinstance(answering(exchange), SessionExchange) for exchange in exchanges)
        # One client alone gets seven eighths of the places.
        if 8 * running >= 7 * self._engine.settings.limits.sessionless_calls:
            full.add("")
            if "" not in self._full:
                self._note("queue.full", era="sessionless", running=running)
        self._full = full

    # Tools

    def _look_at_tools(self) -> None:
        recent = self._watch.recent_calls()
        failing = {tool for tool, calls in recent.items() if trouble_of(calls)}
        for tool in failing - self._failing:
            (method, name), calls = tool, recent[tool]
            facts: dict[str, Any] = {NAMED[method]: name} if name else {"method": method}
            facts |= {"errors": calls.last.errors, "calls": calls.last.calls, "seconds": round(calls.seconds)}
            facts |= {"earlier_errors": calls.earlier_errors, "earlier_calls": calls.earlier_calls}
            self._note("tool.failing", **facts)
        self._failing = failing

    # Replicas

    async def _look_at_replicas(self) -> None:
        engine, now = self._engine, self._now()
        times = engine.settings.times
        if not engine.store.is_shared or now - self._looked_at < times.lease_renewal:
            return
        before, self._looked_at = self._looked_at, now
        try:
            leases = await engine.store.replicas()
        except StoreError:
            # After an outage every lease may have ended.
            self._leases = {}
            return
        passed = self._now() - before
        for name, left in self._leases.items():
            # This replica is alive. Its own lease may have ended while the process was stopped; `replica.lease_lost`
            # reports that. Others that stop give their lease back before its end.
            if name not in leases and name != engine.store.replica:
                has_ended = left - passed < times.lease_renewal / 2
                self._note("replica.gone" if has_ended else "replica.left", name=name)
        self._leases = dict(leases)


def _may_take_long(exchange: Exchange, waits: str) -> bool:
    """True for the work of a call that was handed over: its client does not wait for it.

    A question of it still needs an answer.
    """
    return waits not in _EVENTS and live_state(exchange) == "handed over"
