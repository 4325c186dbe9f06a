"""Watches the calls of one server: one log line for each call, the figures, and which calls run now.

The engine reports each request that the back has answered (`engine/handling.py`); a server without a watch pays
nothing. A request that is refused before that is an event of the audit log, and `served_process.py` shows a call
that waits for its slot.

At most 100 lines a second are written for calls that succeed, and 1,000 in ten seconds for calls that do not: an
operator sees the failures also while the successes are left out. A line says how many were left out before it.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from limpet.core.lifecycle import SessionInput
from limpet.engine.back import Back, Outside
from limpet.engine.exchange import Exchange
from limpet.engine.session import Session
from limpet.errors import McpError
from limpet.ops.call_names import component_name, subject
from limpet.ops.figures import BOUNDS, CallOutcome, Era, Figures
from limpet.ops.health import Health, answered_calls
from limpet.ops.log import FAILURES, LINES, REPEAT_SECONDS, LineLimit, note_left_out
from limpet.ops.recent import Recent, RecentCalls, Subject
from limpet.ports import Clock, Observer
from limpet.protocol.quirks import SHOWN_NAME
from limpet.protocol.results import is_tool_error
from limpet.protocol.versions import SESSIONLESS
from limpet.stores.base import Store


class _Named(Struct):
    name: str


class _ListedNames(Struct):
    tools: list[_Named] = []
    prompts: list[_Named] = []


_decode_page: Final = msgspec.json.Decoder(_ListedNames).decode
_FIRST: Final = BOUNDS[0]
"""Most calls are shorter, and need no bisection."""
_RAN: Final = frozenset({"tool_error", "failed"})
"""The failures of a function. In our own servers, an unknown name is an error of the protocol instead."""
_LISTS: Final = frozenset({"tools/list", "prompts/list"})


class CallWatch:
    """The calls of one server."""

    def __init__(
        self, clock: Clock, observer: Observer, store: Store | None = None, figures: Figures | None = None
    ) -> None:
        self.now: Callable[[], float] = clock.now
        self._wall = clock.wall
        self._note = observer.note
        self._store = store
        # Without figures for an operator the calls are counted nevertheless: one path through the code, and it costs
        # little.
        self._figures = Figures() if figures is None else figures
        self.recent: RecentCalls = RecentCalls(self._figures, clock.now())
        """The calls of the last minutes by tool. The loop of `attention.py` makes its copies."""
        self._successes = LineLimit(LINES, 1.0, partial(note_left_out, observer, "call.ended"))
        self._failures = LineLimit(FAILURES, REPEAT_SECONDS, partial(note_left_out, observer, "call.failed"))
        self._in_sessions = self._figures.successes["session"]
        self._sessionless = self._figures.successes["sessionless"]
        self.health: Health | None = None
        """The health of the server behind, for operators."""
        self.parts: list[tuple[Health, Callable[[], int]]] = []
        """The health of each of several servers behind, and a function that returns how many calls it has answered."""
        self._has_functions = False
        """True if functions of this process answer: a tool that fails exists. A server behind may report an unknown
        name so."""
        self.on_start: Callable[[], None] | None = None
        self.on_stop: Callable[[], None] | None = None
        """Called when the engine has started its back, and before it stops it."""

    def over(self, back: Back) -> Back:
        """Return a back with the same answers, whose calls are watched."""
        # Not by its class: a server without one behind it does not import that module.
        self._has_functions = not hasattr(back, "upstreams")
        return cast("Back", _WatchedBack(back, self))

    def age(self, exchange: Exchange) -> float | None:
        """Return for how long the handler of a request has run; None: it does not run."""
        return None if exchange.began is None else self.now() - exchange.began

    def recent_calls(self) -> dict[Subject, Recent]:
        """Return the tools that were called in the last five minutes."""
        return self.recent.by_subject(self.now())

    def look(self, now: float) -> bool:
        """Make a copy of the figures, if it is time for one; False: it is not."""
        is_time = self.recent.look(now)
        if is_time and self.health is not None and not self._has_functions:
            self.health.look(self._wall(), answered_calls(self._figures))
        for health, answered in self.parts if is_time else ():
            health.look(self._wall(), answered())
        return is_time

    def ended(self, exchange: Exchange, result: bytes = b"", error: BaseException | None = None) -> None:
        """Record a handler that has ended. Does nothing if it is not watched.

        It runs for each call. So a success of a known tool whose line is left out is counted here, and no text is made:
        7,500 instructions of a call, and 8,700 with a coroutine around the back and a dictionary of the running calls.
        """
        began, exchange.began = exchange.began, None
        if began is None:
            return
        now, request = self.now(), exchange.request
        seconds = now - began
        is_sessionless, successes = exchange.session.revision is SESSIONLESS, self._successes
        # Only a result that may be an error is looked at.
        is_ok = error is None and (result.find(b'"isError"') < 0 or not is_tool_error(result))
        if is_ok and now < successes.full_until and request.method == "tools/call":
            name = request.params.get("name")
            rows = self._sessionless if is_sessionless else self._in_sessions
            if type(name) is str and (row := rows.get(name)) is not None:
                successes.left_out += 1
                row.counts[0 if seconds <= _FIRST else bisect_left(BOUNDS, seconds)] += 1
                row.seconds += seconds
                return
        outcome: CallOutcome = "ok" if is_ok else "tool_error" if error is None else _outcome_of(error)
        era: Era = "sessionless" if is_sessionless else "session"
        name = component_name(request)
        if self._has_functions and outcome in _RAN:
            self._figures.know(name)
        self._figures.call(request.method, name, era, outcome, seconds)
        left_out = (successes if is_ok else self._failures).admit(now)
        if left_out is not None:
            self._log(exchange, era, outcome, seconds, left_out)
        if is_ok and request.method in _LISTS:
            self._learn_names(result)

    def _log(self, exchange: Exchange, era: Era, outcome: CallOutcome, seconds: float, left_out: int) -> None:
        """Write the line of a call."""
        client = exchange.session
        facts: dict[str, Any] = {
            **subject(exchange.request),
            "client": client.client_name,
            "era": era,
            "outcome": outcome,
            "ms": round(seconds * 1000, 1),
        }
        if era == "session":
            facts["session"] = client.name
        if self._store is not None and self._store.is_shared:
            facts["replica"] = self._store.replica
        if left_out:
            facts["left_out"] = left_out
        self._note("call.ended" if outcome == "ok" else "call.failed", **facts)

    def _learn_names(self, page: bytes) -> None:
        """Take the names of tools or prompts from a page of a list. Their calls are counted by name from now on."""
        try:
            found = _decode_page(page)
        except msgspec.MsgspecError:
            # A server behind this one may list anything.
            return
        for listed in (*found.tools, *found.prompts):
            self._figures.know(listed.name[:SHOWN_NAME])

    def closed(self, session: Session) -> None:
        """Record a session that was closed."""
        if session.record.opened:
            self._figures.session(max(0.0, self._wall() - session.record.opened))


class _WatchedBack:
    """A back whose handlers are watched. Everything else is the back's own."""

    def __init__(self, back: Back, watch: CallWatch) -> None:
        self._back = back
        self.watch: CallWatch = watch
        """Read by the engine, which reports the calls to it."""
        # Read for each call or new session: `__getattr__` takes 3,000 instructions each time.
        self.handle, self.initialize, self.has_home = back.handle, back.initialize, back.has_home

    @property
    def hears_opened(self) -> bool:
        """As the back, whose listeners may change."""
        return self._back.hears_opened

    def __getattr__(self, name: str) -> Any:
        return getattr(self._back, name)

    async def start(self, outside: Outside) -> None:
        await self._back.start(outside)
        if self.watch.on_start is not None:
            self.watch.on_start()

    async def stop(self) -> None:
        if self.watch.on_stop is not None:
            self.watch.on_stop()
        await self._back.stop()

    async def closed(self, session: Session, reason: SessionInput) -> None:
        self.watch.closed(session)
        await self._back.closed(session, reason)


def _outcome_of(error: BaseException) -> CallOutcome:
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return "error" if isinstance(error, McpError) else "failed"
