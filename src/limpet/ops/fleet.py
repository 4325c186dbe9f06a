"""The state of all replicas, for operators: this process asks each living replica of its stores and merges the answers.

    an operator ──▶ this process ──┬──▶ the store: sessions page by page, totals, leases
                                   ├──▶ its own live work (`served_process.py`)
                                   └──▶ a question to each other living replica, by the store (`engine/messages.py`)

A replica has two seconds to answer. A replica that does not is shown as silent, with the remaining time of its lease,
and gets less time until it answers again: a dead replica must not slow down each answer while its lease runs. A
replica whose lease has ended is shown as gone for a while. If the store is unavailable, this process still shows its
own work.

Several operators, and a page that asks each second, share one round of questions (`_gather`).

Events. Each process numbers its own. This process asks each other one for the events after the last number that it
knows, and gives all of them its own numbers, in its own ring (`_feed`). So one number says which events of all
processes an operator has seen.

A session is found by the beginning of its key, which is its short name: a listing of the store begins there
(`OverviewPart`).
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from typing import Final

import msgspec
from msgspec.structs import replace

from limpet.core.lifecycle import SessionInput
from limpet.engine.audit import short
from limpet.engine.messages import FAILED
from limpet.errors import LimpetError, StoreError
from limpet.ops.history import Point
from limpet.ops.metrics.samples import Sample
from limpet.ops.recent import Recent
from limpet.ops.ring import Happened, Ring
from limpet.ops.served_process import (
    MOST_CALLS,
    MOST_EVENTS,
    FleetQuestion,
    Live,
    Part,
    Said,
    ServedProcess,
    recent_view,
)
from limpet.ops.session_pages import PATIENCE, SessionPages, session_view
from limpet.ops.views import (
    NO_EVENTS,
    CallView,
    FiguresView,
    FleetState,
    ReplicaView,
    ServerView,
    ShownSession,
    ToolView,
)
from limpet.ops.waits import MAYBE_READER
from limpet.ports import Random
from limpet.stores.base import Totals

# The figures of several processes as those of one: numbers, charts and tools.

MOST_TOOLS: Final = 500


def merged_figures(lives: list[Live], processes: Iterable[Live], totals: list[Totals]) -> FiguresView:
    """Return the sums. The median of all replicas is the mean of their medians, weighted by their rates."""
    figures = [live.figures for live in lives]
    rated = [live.figures for live in processes]
    rate = sum(one.calls_per_second for one in rated)
    detached = sum(one.detached for one in totals)
    return FiguresView(
        attached=sum(one.sessions for one in totals) - detached,
        detached=detached,
        running=sum(one.running for one in figures),
        queued=sum(one.queued for one in figures),
        parked=sum(one.parked for one in figures),
        handed_over=sum(one.handed_over for one in figures),
        asks=sum(one.asks for one in figures),
        streams=sum(one.streams for one in figures),
        log_bytes=sum(one.log_bytes for one in totals),
        calls_per_second=rate,
        p50=sum(one.p50 * one.calls_per_second for one in rated) / rate if rate else 0.0,
        p95=max((one.p95 for one in rated), default=0.0),
        loop_delay=max((one.loop_delay for one in rated), default=0.0),
        loop_delay_max=max((one.loop_delay_max for one in rated), default=0.0),
    )


def merged_tools(lives: Iterable[tuple[str, Live]]) -> list[ToolView]:
    """Return the tools of all servers and replicas, the busiest first.

    A tool that runs for the first time is among them.
    """
    recent: dict[tuple[str, str], Recent] = {}
    running: dict[tuple[str, str], list[CallView]] = {}
    for server, live in lives:
        for method, name, found in live.tools:
            key = server, name or method
            recent[key] = recent.get(key, Recent()).plus(found)
        for call in live.calls:
            running.setdefault((server, call.name or call.method), []).append(call)
    views = [
        ToolView(
            name, server, recent_view(recent.get((server, name), Recent()), running.get((server, name), ()))
        )
        for server, name in {**recent, **running}
    ]
    return sorted(views, key=lambda view: (-view.recent.calls, view.name))[:MOST_TOOLS]


def merged_history(processes: Iterable[Live]) -> list[Point]:
    """Merge the charts of all processes; their newest points are of about the same second."""
    return [_point(points) for points in _together([live.history for live in processes])]


def _together(histories: list[list[Point]]) -> Iterator[list[Point]]:
    longest = max(map(len, histories), default=0)
    for back in range(longest, 0, -1):
        yield [points[-back] for points in histories if len(points) >= back]


def _point(points: list[Point]) -> Point:
    rate = sum(point[0] for point in points)
    median = sum(point[0] * point[1] for point in points) / rate if rate else 0.0
    failed, refused = (sum(point[column] for point in points) for column in (3, 4))
    return rate, median, max(point[2] for point in points), failed, refused


LESS_PATIENCE: Final = 0.3
"""The same for a replica that did not answer the last question."""
FRESH_SECONDS: Final = 0.5
"""Seconds for which the answers of a round are used again."""
GONE_SECONDS: Final = 300.0
"""How long a replica is shown after its lease has ended."""
_LONGEST: Final = 64
"""Characters of a name that an operator may ask for."""

_UNSEEN: Final = Said("")
"""The answer of a replica without an admin surface: it is alive, and says no more."""

_AWAY: Final = "the store does not answer"
_answer: Final = msgspec.json.Decoder(Said)


class Round:
    """The answers of the replicas of all servers at one time."""

    def __init__(self) -> None:
        self.lives: list[tuple[Part, Live]] = []
        self.replicas: list[ReplicaView] = []
        self.totals: list[Totals] = []
        self.away: set[str] = set()
        """Servers whose store does not answer."""


class FleetView:
    """The source of the admin surface."""

    def __init__(self, parts: Sequence[Part], ring: Ring, *, random: Random | None = None) -> None:
        """Show these servers; `ring` has the events of this process.

        Answers the questions of other replicas from now on.
        """
        self._process = ServedProcess(parts, ring, random=random)
        self._pages = SessionPages(parts)
        self._silent: set[str] = set()
        self._seen: dict[str, tuple[str, float]] = {}
        """By the name of a replica that has answered: its server, and the time of its last answer."""
        self._process_of: dict[str, str] = {}
        self._known: dict[str, int] = {}
        """By process: the number of the last event that is in the feed."""
        self._feed = Ring()
        self._round: asyncio.Task[Round] | None = None
        self._round_at = 0.0

    def start(self) -> None:
        """Take a sample for the charts each second until stopped, on the running loop."""
        self._process.start()

    def stop(self) -> None:
        """Take no more samples."""
        self._process.stop()

    async def metrics(self) -> list[Sample]:
        return await self._process.metrics()

    # The state

    async def state(self, page: str, after: int) -> FleetState:
        gathered = await self._shared_round()
        where = _places(gathered)
        sessions, next_page = await self._pages.page(page, where, gathered.totals, gathered.away)
        lives = [live for _, live in gathered.lives]
        calls = sorted(_calls(lives), key=lambda call: -1.0 if call.age is None else call.age, reverse=True)
        counts = Counter[str]()
        for live in lives:
            counts.update(live.counts)
        processes = {live.process: live for live in lives}
        if self._feed.last < after != NO_EVENTS:
            # The number of another process, which has answered before this one.
            after = 0
        return FleetState(
            replica=", ".join(part.replica for part in self._process.parts),
            servers=[
                ServerView(part.name, part.version, part.store, is_away=part.name in gathered.away)
                for part in self._process.parts
            ],
            figures=merged_figures(lives, processes.values(), gathered.totals),
            calls=calls[:MOST_CALLS],
            sessions=sessions,
            next_page=next_page,
            replicas=gathered.replicas,
            upstreams=[upstream for live in lives for upstream in live.upstreams],
            tools=merged_tools([(part.name, live) for part, live in gathered.lives]),
            counts=dict(counts),
            history=merged_history(processes.values()),
            events=self._feed.after(after, limit=MOST_EVENTS),
        )

    async def _shared_round(self) -> Round:
        """Return the present answers of the replicas. Callers at about the same time share one round."""
        loop = asyncio.get_running_loop()
        if self._round is None or (self._round.done() and loop.time() - self._round_at > FRESH_SECONDS):
            self._round = loop.create_task(self._gather())
            self._round.add_done_callback(lambda _: self._note_round(loop.time()))
        return await asyncio.shield(self._round)

    def _note_round(self, now: float) -> None:
        self._round_at = now

    async def _gather(self) -> Round:
        gathered = Round()
        await asyncio.gather(*(self._ask_all(part, gathered) for part in self._process.parts))
        gathered.replicas.sort(key=lambda view: view.name)
        return gathered

    async def _ask_all(self, part: Part, gathered: Round) -> None:
        """Ask the store and all replicas of one server."""
        own = await self._process.answer(part, self._asked_live(part.replica))
        self._take_events(part.replica, own)
        lives = [own.live] if own.live is not None else []
        leases: dict[str, float] | None = {}
        if part.engine.started:
            try:
                async with asyncio.timeout(PATIENCE):
                    leases, totals = await asyncio.gather(
                        part.engine.store.replicas(), part.engine.store.totals()
                    )
                gathered.totals.append(totals)
            except (StoreError, TimeoutError):
                gathered.away.add(part.name)
                leases = None
        others = [name for name in leases or () if name != part.replica]
        answers = await asyncio.gather(*(self._ask_live(part, name) for name in others))
        lives += [answer for answer in answers if answer is not None]
        gathered.lives += [(part, live) for live in lives]
        gathered.replicas += self._replicas(part, lives, leases)

    def _asked_live(self, replica: str) -> FleetQuestion:
        return FleetQuestion("live", after=self._known.get(self._process_of.get(replica, ""), 0))

    async def _ask_live(self, part: Part, replica: str) -> Live | None:
        said = await self._ask(part, replica, self._asked_live(replica))
        if said is None:
            self._silent.add(replica)
            return None
        self._silent.discard(replica)
        if said.live is not None:
            self._take_events(replica, said)
        return said.live

    async def _ask(self, part: Part, replica: str, asked: FleetQuestion) -> Said | None:
        """Ask one replica of a server; None: it has not answered."""
        patience = LESS_PATIENCE if replica in self._silent else PATIENCE
        try:
            async with asyncio.timeout(PATIENCE):
                reply = await part.engine.inbox.ask(replica, asked.about, asked, seconds=patience)
            if reply is None:
                return None
            return _UNSEEN if reply.kind == FAILED else _answer.decode(reply.body)
        except (StoreError, TimeoutError, msgspec.DecodeError):
            # A replica of another release may send an answer that this one cannot read.
            return None

    def _take_events(self, replica: str, said: Said) -> None:
        """Put the new events of a process into the feed."""
        self._process_of[replica] = said.process
        known = self._known.get(said.process, 0)
        for happened in said.events:
            if happened.number > known:
                self._feed.add(happened.at, happened.event, {**happened.facts, "replica": replica})
                self._known[said.process] = happened.number

    def _replicas(self, part: Part, lives: list[Live], known: dict[str, float] | None) -> list[ReplicaView]:
        """Return the replicas of a server: those that have answered, those that are silent, and those that are gone.

        `known` are the leases; None: the store is unavailable. Then another replica cannot answer, and may be alive.
        """
        now, leases = asyncio.get_running_loop().time(), known or {}
        said = {live.replica: live for live in lives}
        for name in said:
            self._seen[name] = part.name, now
        views = [self._replica(part, name, said.get(name), leases.get(name)) for name in {**leases, **said}]
        for name, (server, seen_at) in list(self._seen.items()):
            if now - seen_at > GONE_SECONDS:
                del self._seen[name]
                self._silent.discard(name)
                self._known.pop(self._process_of.pop(name, ""), None)
            elif server == part.name and name not in leases and name not in said:
                views.append(ReplicaView(name, "silent" if known is None else "gone", server=server))
        return views

    def _replica(self, part: Part, name: str, live: Live | None, lease: float | None) -> ReplicaView:
        lease = lease if lease is not None and isfinite(lease) else None
        if live is None:
            state = "silent" if name in self._silent else "live"
            return ReplicaView(name, state, lease_left=lease, server=part.name)
        return ReplicaView(
            name,
            "stopping" if live.is_stopping else "live",
            sessions=live.sessions,
            calls=live.figures.running + live.figures.queued + live.figures.parked,
            loop_delay=live.figures.loop_delay,
            loop_delay_max=live.figures.loop_delay_max,
            lease_left=lease,
            server=part.name,
        )

    # Sessions

    async def session(self, name: str) -> tuple[ShownSession | None, list[Happened]]:
        """Return a session and its last events.

        While the store is unavailable there are only the events of this process.

        Raises:
            StoreError: the store is unavailable, and this process has no event of the session, which may be open.
        """
        found, is_away = None, False
        try:
            async with asyncio.timeout(PATIENCE):
                found = await self._pages.find(name)
        except (StoreError, TimeoutError):
            is_away = True
        events = await self._events(FleetQuestion("session", short(name)))
        if is_away and not events:
            raise StoreError(_AWAY)
        if found is None:
            return None, events
        return session_view(*found, _places(await self._shared_round())), events

    async def find(self, correlation: str) -> list[Happened]:
        return await self._events(FleetQuestion("correlation", correlation[:_LONGEST]))

    async def close_session(self, name: str) -> bool:
        """Close a session, also if its calls run elsewhere; False: there is no session of this name."""
        found = await self._pages.find(name)
        if found is None:
            return False
        part, status = found
        engine = part.engine
        # It must run to its end, even if the operator's connection ends first.
        closing = engine.begin(engine.sessions.close_key(status.record.key, SessionInput.OPERATOR))
        return await asyncio.shield(closing)

    async def cancel_call(self, name: str) -> bool:
        """Cancel a call of any replica; False: there is no call of this name.

        Raises:
            LimpetError: the store is unavailable, or a replica that may have the call does not answer.
        """
        for part in self._process.parts:
            if await self._process.cancel(part, name):
                return True
        answers = await self._others(FleetQuestion("cancel", name[:_LONGEST]))
        if any(said is not None and said.done for said in answers):
            return True
        if None in answers:
            raise LimpetError("a replica does not answer: the call may be there, and may still run")
        return False

    # All other replicas

    async def _events(self, asked: FleetQuestion) -> list[Happened]:
        """Return the events that the rings of all processes have, the oldest first."""
        own = await self._process.answer(self._process.parts[0], asked)
        answers: list[Said | None] = [own]
        with contextlib.suppress(StoreError):
            answers += await self._others(asked)
        by_process = {said.process: said.events for said in answers if said is not None}
        events = sorted((one for found in by_process.values() for one in found), key=lambda one: one.at)
        return events[-MOST_EVENTS:]

    async def _others(self, asked: FleetQuestion) -> list[Said | None]:
        """Return the answers of all other living replicas of all servers; None for a replica that has not answered.

        Raises:
            StoreError: a store does not answer.
        """
        asking: list[tuple[Part, str]] = []
        try:
            async with asyncio.timeout(PATIENCE):
                for part in self._process.parts:
                    if part.engine.started and part.engine.store.is_shared:
                        living = await part.engine.store.replicas()
                        asking += [(part, name) for name in living if name != part.replica]
        except TimeoutError:
            raise StoreError(_AWAY) from None
        answers = await asyncio.gather(*(self._ask(part, name, asked) for part, name in asking))
        return [answer for answer in answers if answer is not _UNSEEN]


def _places(gathered: Round) -> dict[str, str]:
    """Return by session that has a call: the replica where it runs."""
    return {call.session: call.replica for _, live in gathered.lives for call in live.calls}


def _calls(lives: list[Live]) -> Iterator[CallView]:
    """Yield the calls of all replicas.

    The client of a call may be connected to another replica than the one that runs it.
    """
    unread = {stream for live in lives for stream in live.unread}
    for live in lives:
        for call in live.calls:
            is_unread = live.streams.get(call.id) in unread and call.waits_for in MAYBE_READER
            yield replace(call, waits_for="reader") if is_unread else call
