"""Watches the calls of one server: one log line for each call, the figures, and which calls run now.

A watch stands between the engine and its back, so that a server without one pays nothing. It sees each request whose handler
runs. A request that is refused before that is an event of the audit log, and a call that waits for its slot is seen by `snapshot.py`.

At most 100 lines a second are written for calls that succeed, and as many for calls that do not: an operator sees the failures also while
the successes are left out. A line says how many were left out before it.
"""

import asyncio
from collections.abc import Iterator
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from holdfast.core.lifecycle import Input
from holdfast.engine.back import Back
from holdfast.engine.exchange import Exchange
from holdfast.engine.failures import NAMED
from holdfast.engine.session import Session
from holdfast.errors import McpError
from holdfast.ops.figures import CallOutcome, Era, Figures
from holdfast.ops.log import LINES_PER_SECOND, LineLimit
from holdfast.ports import Clock, Observer
from holdfast.protocol.quirks import SHOWN_NAME
from holdfast.protocol.results import is_tool_error
from holdfast.protocol.versions import SESSIONLESS
from holdfast.stores.base import Store


class _Named(Struct):
    name: str


class _Page(Struct):
    tools: list[_Named] = []
    prompts: list[_Named] = []


_decode_page: Final = msgspec.json.Decoder(_Page).decode
_LISTS: Final = frozenset({"tools/list", "prompts/list"})


class Watch:
    """The calls of one server."""

    def __init__(
        self, clock: Clock, observer: Observer, store: Store | None = None, figures: Figures | None = None
    ) -> None:
        self._now = clock.now
        self._wall = clock.wall
        self._note = observer.note
        self._store = store
        self._figures = figures
        self._successes = LineLimit(LINES_PER_SECOND, 1.0)
        self._failures = LineLimit(LINES_PER_SECOND, 1.0)
        self._running: dict[Exchange, float] = {}

    def __repr__(self) -> str:
        return f"<Watch {len(self._running)} calls>"

    def over(self, back: Back) -> Back:
        """Return a back that answers as the given one does, and is watched."""
        return cast("Back", _WatchedBack(back, self))

    def running(self) -> Iterator[tuple[Exchange, float]]:
        """Yield the requests whose handlers run, each with the seconds since it began."""
        now = self._now()
        return ((exchange, now - began) for exchange, began in list(self._running.items()))

    def began(self, exchange: Exchange) -> None:
        """Take note of a handler that begins."""
        self._running[exchange] = self._now()

    def ended(self, exchange: Exchange, outcome: CallOutcome) -> None:
        """Take note of a handler that has ended."""
        now = self._now()
        seconds = now - self._running.pop(exchange)
        request = exchange.request
        method = request.method
        name = request.params.get("name") if method in NAMED else ""
        shown = name[:SHOWN_NAME] if type(name) is str else ""
        era: Era = "sessionless" if exchange.session.revision is SESSIONLESS else "session"
        if self._figures is not None:
            self._figures.call(method, shown, era, outcome, seconds)
        left_out = (self._successes if outcome == "ok" else self._failures).admit(now)
        if left_out is not None:
            self._log(exchange, shown, era, outcome, seconds, left_out)

    def _log(
        self, exchange: Exchange, shown: str, era: Era, outcome: CallOutcome, seconds: float, left_out: int
    ) -> None:
        """Write the line of a call."""
        method, client = exchange.request.method, exchange.session
        named = NAMED.get(method)
        facts: dict[str, Any] = {"method": method[:SHOWN_NAME]} if named is None else {named: shown}
        facts |= {
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

    def listed(self, page: bytes) -> None:
        """Learn the names of tools or prompts from a page of a list. Their calls are counted by name from now on."""
        if self._figures is None:
            return
        try:
            found = _decode_page(page)
        except msgspec.MsgspecError:
            # A server behind this one may list anything.
            return
        for listed in (*found.tools, *found.prompts):
            self._figures.know(listed.name[:SHOWN_NAME])

    def closed(self, session: Session) -> None:
        """Take note of a session that was closed."""
        if self._figures is not None and session.record.opened:
            self._figures.session(max(0.0, self._wall() - session.record.opened))


class _WatchedBack:
    """A back whose handlers are watched. Everything else is the back's own."""

    def __init__(self, back: Back, watch: Watch) -> None:
        self._back = back
        self._handle = back.handle
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._back, name)

    async def handle(self, exchange: Exchange) -> bytes:
        """Return the encoded result of the back."""
        watch = self._watch
        watch.began(exchange)
        try:
            result = await self._handle(exchange)
        except BaseException as error:
            watch.ended(exchange, _outcome_of(error))
            raise
        watch.ended(exchange, "tool_error" if is_tool_error(result) else "ok")
        if exchange.request.method in _LISTS:
            watch.listed(result)
        return result

    async def closed(self, session: Session, reason: Input) -> None:
        """Count the session, and tell the back."""
        self._watch.closed(session)
        await self._back.closed(session, reason)


def _outcome_of(error: BaseException) -> CallOutcome:
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return "error" if isinstance(error, McpError) else "failed"
