"""Watches the calls of one server: one log line for each call, the figures, and which calls run now.

A watch is between the engine and its back, so that a server without one pays nothing. It sees each request whose
handler runs. A request that is refused before that is an event of the audit log, and `served_process.py` shows a call
that waits for its slot.

At most 100 lines a second are written for calls that succeed, and 1,000 in ten seconds for calls that do not: an
operator sees the failures also while the successes are left out. A line says how many were left out before it.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator
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
Handle = Callable[[Exchange], Awaitable[bytes]]
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
        self._now = clock.now
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
        self._running: dict[Exchange, float] = {}
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

    def running(self) -> Iterator[tuple[Exchange, float]]:
        """Yield the requests whose handlers run, each with the seconds since it began."""
        now = self._now()
        return ((exchange, now - began) for exchange, began in list(self._running.items()))

    def recent_calls(self) -> dict[Subject, Recent]:
        """Return the tools that were called in the last five minutes."""
        return self.recent.by_subject(self._now())

    def look(self, now: float) -> bool:
        """Make a copy of the figures, if it is time for one; False: it is not."""
        is_time = self.recent.look(now)
        if is_time and self.health is not None and not self._has_functions:
            self.health.look(self._wall(), answered_calls(self._figures))
        for health, answered in self.parts if is_time else ():
            health.look(self._wall(), answered())
        return is_time

    def began_at(self, exchange: Exchange) -> float | None:
        """Return when the handler of a request began; None: it does not run."""
        return self._running.get(exchange)

    def handler(self, handle: Handle) -> Handle:
        """Return a function that calls a back's `handle` and watches it.

        It runs for each call, so all its data is in local variables, and a successful call of a known tool whose line
        is left out calls nothing more.
        """
        running, now, ended, successes = self._running, self._now, self.ended, self._successes
        in_sessions, sessionless = self._figures.successes["session"], self._figures.successes["sessionless"]

        async def watched(exchange: Exchange) -> bytes:
            running[exchange] = began = now()
            try:
                result = await handle(exchange)
            except BaseException as error:
                ended(exchange, _outcome_of(error))
                raise
            if is_tool_error(result):
                ended(exchange, "tool_error")
                return result
            request, end = exchange.request, now()
            if end < successes.full_until and request.method == "tools/call":
                rows = sessionless if exchange.session.revision is SESSIONLESS else in_sessions
                if (row := rows.get(str(request.params.get("name")))) is not None:
                    del running[exchange]
                    successes.left_out += 1
                    seconds = end - began
                    row.counts[0 if seconds <= _FIRST else bisect_left(BOUNDS, seconds)] += 1
                    row.seconds += seconds
                    return result
            ended(exchange, "ok")
            if request.method in _LISTS:
                self._learn_names(result)
            return result

        return watched

    def ended(self, exchange: Exchange, outcome: CallOutcome) -> None:
        """Record a handler that has ended."""
        now = self._now()
        seconds = now - self._running.pop(exchange)
        request = exchange.request
        era: Era = "sessionless" if exchange.session.revision is SESSIONLESS else "session"
        name = component_name(request)
        if self._has_functions and outcome in _RAN:
            self._figures.know(name)
        self._figures.call(request.method, name, era, outcome, seconds)
        left_out = (self._successes if outcome == "ok" else self._failures).admit(now)
        if left_out is not None:
            self._log(exchange, era, outcome, seconds, left_out)

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
        self._watch = watch
        self.handle = watch.handler(back.handle)
        # Read for each new session: `__getattr__` takes 3,000 instructions each time.
        self.initialize, self.has_home = back.initialize, back.has_home

    @property
    def hears_opened(self) -> bool:
        """As the back, whose listeners may change."""
        return self._back.hears_opened

    def __getattr__(self, name: str) -> Any:
        return getattr(self._back, name)

    async def start(self, outside: Outside) -> None:
        await self._back.start(outside)
        if self._watch.on_start is not None:
            self._watch.on_start()

    async def stop(self) -> None:
        if self._watch.on_stop is not None:
            self._watch.on_stop()
        await self._back.stop()

    async def closed(self, session: Session, reason: SessionInput) -> None:
        self._watch.closed(session)
        await self._back.closed(session, reason)


def _outcome_of(error: BaseException) -> CallOutcome:
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return "error" if isinstance(error, McpError) else "failed"
