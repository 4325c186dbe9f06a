"""The live work of this process, for operators: read from the live objects when an operator asks.

A running call pays nothing for it.

A process has one or more servers, and each of them may have other replicas. So this module reports about one server:
`live` is the part of this process in the state of a fleet (`fleet.py`), and `answer` sends it to another replica.

A call is named by a short hash without a meaning for another process. The hash contains the time of the call's start,
so that a call which has ended is never mistaken for another one at the same address in memory.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from typing import Final, Literal, get_args

import msgspec
from msgspec import Struct

from limpet.backs.proxy.upstreams import Upstreams
from limpet.engine.audit import REASONS, short
from limpet.engine.engine import Engine
from limpet.engine.exchange import Exchange, SessionExchange
from limpet.engine.inner import answering
from limpet.ops.attention import trouble_of
from limpet.ops.call_names import call_name, component_name
from limpet.ops.figures import Durations
from limpet.ops.history import History, Point
from limpet.ops.loop_delay import LoopDelay
from limpet.ops.metrics.reading import samples_of
from limpet.ops.metrics.samples import Sample
from limpet.ops.operated import Operated
from limpet.ops.recent import Recent
from limpet.ops.ring import Happened, Ring
from limpet.ops.views import CallView, FiguresView, RecentView, UpstreamView
from limpet.ops.waits import live_state, waits_for
from limpet.ports import Random, SystemRandom
from limpet.protocol.quirks import SHOWN_NAME

MOST_CALLS: Final = 500
"""How many calls a state has at most: the oldest ones."""
MOST_EVENTS: Final = 200
"""How many events an answer has at most: the newest ones."""
ANSWER_BYTES: Final = 512 * 1024
"""How long an answer to another replica is at most: it travels through the store."""
SAMPLE_SECONDS: Final = 1.0
CANCELLED: Final = "by an operator"
COUNTED: Final = {
    "duplicates refused": "exchange.duplicate",
    "sessions resumed": "session.resumed",
    "calls handed over": "call.handed_over",
    "calls that clients sent again": "exchange.repeated",
    "calls lost with a replica": "exchange.reaped",
    "calls ended by another replica": "exchange.fenced",
    "clients that stopped reading": "stream.stalled",
    "functions that failed": "handler.failed",
    "leases lost": "replica.lease_lost",
    "servers behind that ended": "upstream.ended",
    "store failures": "store.unreachable",
}
"""The counts of the dashboard, each with its event of the log."""


class Part(Struct, frozen=True):
    """One server of the process."""

    name: str
    version: str
    store: str
    """The kind of its store, for people: memory, sqlite, redis."""
    engine: Engine
    operated: Operated

    @property
    def replica(self) -> str:
        """The name of this process among the replicas of the store."""
        return self.engine.store.replica


class Live(Struct, frozen=True):
    """The report of one process about the live work of one server."""

    process: str
    """The same for all servers of a process."""
    replica: str
    is_stopping: bool
    sessions: int
    """Local sessions of this process."""
    figures: FiguresView
    """Without those that only the store knows."""
    calls: list[CallView]
    upstreams: list[UpstreamView]
    counts: dict[str, int]
    history: list[Point]
    """Of all servers of the process."""
    tools: list[tuple[str, str, Recent]] = []
    """Method, name and recent calls of each tool that was called in the last minutes."""
    streams: dict[str, str] = {}
    """By the name of a call of a session: the stream that its client reads, maybe at another replica."""
    unread: list[str] = []
    """The streams whose clients are connected to this process and do not read."""


About = Literal["live", "session", "correlation", "cancel"]


class FleetQuestion(Struct, frozen=True, omit_defaults=True):
    """A question to a replica: the body of a message of the kind `about` (`engine/messages.py`)."""

    about: About
    name: str = ""
    """The short name of a session or call, or a correlation id."""
    after: int = 0
    """The number of the last event that is known of its process."""


class Said(Struct, frozen=True, omit_defaults=True):
    """The answer of a replica."""

    process: str
    live: Live | None = None
    events: list[Happened] = []
    done: bool = False


class ServedProcess:
    """All servers of this process."""

    def __init__(self, parts: Sequence[Part], ring: Ring, *, random: Random | None = None) -> None:
        """Answer the questions of other replicas from now on. The servers of a process share one ring."""
        self.parts: Sequence[Part] = parts
        self.name: str = (random or SystemRandom()).token(6)
        self._ring = ring
        self._history = History()
        self._loop_delay = LoopDelay()
        self._timer: asyncio.TimerHandle | None = None
        for part in parts:
            for about in get_args(About):
                part.engine.inbox.answer(about, FleetQuestion, partial(self._answer_bounded, part))

    # Samples for the charts

    def start(self) -> None:
        """Take a sample each second until stopped, on the running loop."""
        self.stop()
        self._loop_delay.start()
        self._sample_at(asyncio.get_running_loop())

    def stop(self) -> None:
        """Take no more samples."""
        self._loop_delay.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sample_at(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(SAMPLE_SECONDS, self._sample, loop)

    def _sample(self, loop: asyncio.AbstractEventLoop) -> None:
        every, failed, refused = Durations(), 0, 0
        for part in self.parts:
            refused += sum(part.engine.audit.counts[reason] for reason in REASONS)
            if part.operated.figures is not None:
                every.merge(part.operated.figures.all_calls())
                failed += part.operated.figures.errors()
        self._history.sample(loop.time(), every, failed, refused)
        self._sample_at(loop)

    async def metrics(self) -> list[Sample]:
        """Return the metrics of this process."""
        servers = [(part.name, part.engine, part.operated) for part in self.parts]
        return await samples_of(servers, self._loop_delay)

    # Questions of other replicas

    async def _answer_bounded(self, part: Part, asked: FleetQuestion) -> msgspec.Raw:
        return msgspec.Raw(bounded(await self.answer(part, asked)))

    async def answer(self, part: Part, asked: FleetQuestion) -> Said:
        """Return the report of this process about one of its servers. The events are those of all of them."""
        match asked.about:
            case "live":
                events = self._ring.after(asked.after, limit=MOST_EVENTS)
                return Said(self.name, live=self.live(part), events=events)
            case "session":
                return Said(self.name, events=_newest(self._ring.of_session(asked.name)))
            case "correlation":
                return Said(self.name, events=_newest(self._ring.with_correlation(asked.name)))
            case "cancel":
                return Said(self.name, done=await self.cancel(part, asked.name))

    # The live work

    def live(self, part: Part) -> Live:
        """Return the live work of a server in this process."""
        engine = part.engine
        sessions, exchanges = engine.live_sessions(), engine.live_exchanges()
        rate, median, slow, _, _ = self._history.last
        running = [exchange for exchange in exchanges if _is_shown(part, exchange)]
        states = Counter(map(live_state, running))
        queued, parked = states["queued"], states["parked"]
        figures = FiguresView(
            running=states["running"],
            queued=queued,
            parked=parked,
            handed_over=states["handed over"],
            asks=sum(session.asks for session in sessions) + parked,
            streams=sum(len(readers) for session in sessions for readers in session.readers.values()),
            calls_per_second=rate,
            p50=median,
            p95=slow,
            loop_delay=self._loop_delay.last,
            loop_delay_max=self._loop_delay.largest,
        )
        shown, tools = self._shown(part, running), _tools(part)
        calls = [view for view, _ in shown]
        return Live(
            self.name,
            part.replica,
            engine.leaving or engine.draining,
            len(sessions),
            figures,
            calls,
            list(_upstreams(part, tools, calls)),
            dict(_counts(part)),
            list(self._history.points),
            tools,
            {view.id: stream for view, stream in shown if stream},
            [
                stream
                for session in sessions
                for stream, readers in session.readers.items()
                if any(reader.is_writing and reader.end is None for reader in readers)
            ][:MOST_CALLS],
        )

    def _shown(self, part: Part, running: list[Exchange]) -> list[tuple[CallView, str]]:
        """Return the oldest calls, each with its stream.

        A call that waits for its turn has no known age; it counts as new.
        """
        watch = part.operated.watch
        aged = [
            ((None if watch is None else watch.age(exchange)) or _waited(part, exchange), exchange)
            for exchange in running
        ]
        aged.sort(key=lambda one: -1.0 if one[0] is None else one[0], reverse=True)
        return [
            (self._call(part, exchange, age), _stream_of(exchange)) for age, exchange in aged[:MOST_CALLS]
        ]

    def _call(self, part: Part, exchange: Exchange, age: float | None) -> CallView:
        request, client = exchange.request, exchange.session
        return CallView(
            id=call_name(exchange),
            method=request.method[:SHOWN_NAME],
            name=component_name(request),
            age=age,
            waits_for=waits_for(exchange),
            client=client.client_name,
            session=client.name if exchange.session_key else "",
            era=client.revision.name,
            principal=short(exchange.caller.key),
            replica=part.replica,
            state=live_state(exchange),
            server=part.name,
        )

    async def cancel(self, part: Part, name: str) -> bool:
        """Cancel a call of this process by its short name; False: there is none, or it has ended."""
        for exchange in part.engine.live_exchanges():
            if _is_shown(part, exchange) and call_name(exchange) == name:
                # It must run to its end, even if the operator's connection ends first.
                await asyncio.shield(part.engine.begin(part.engine.cancel(exchange, CANCELLED)))
                return True
        return False


def _is_shown(part: Part, exchange: Exchange) -> bool:
    """True if a call has not ended.

    One without a session, or that can be handed over, is shown from the first step of its handler.
    """
    if exchange.has_ended:
        return False
    return isinstance(exchange, SessionExchange) or part.operated.watch is None or exchange.began is not None


def _stream_of(exchange: Exchange) -> str:
    """Return the stream that the client of a call reads; empty without a session."""
    answered = answering(exchange)
    return answered.claim.stream if isinstance(answered, SessionExchange) else ""


def _waited(part: Part, exchange: Exchange) -> float | None:
    """Return how long a call has waited for its slot, by the timer that will refuse it."""
    waiting = exchange.waiting if isinstance(exchange, SessionExchange) else None
    if waiting is None or waiting.deadline is None:
        return None
    left = waiting.deadline.when() - asyncio.get_running_loop().time()
    return max(0.0, part.engine.settings.limits.queue_seconds - left)


def _tools(part: Part) -> list[tuple[str, str, Recent]]:
    watch = part.operated.watch
    found = {} if watch is None else watch.recent_calls()
    return [(method, name, recent) for (method, name), recent in found.items()]


def recent_view(recent: Recent, calls: Iterable[CallView]) -> RecentView:
    """Return the recent calls for people, with the age of the oldest of those that run now."""
    last = recent.last
    return RecentView(
        calls_per_second=last.calls / recent.seconds if recent.seconds else 0.0,
        calls=last.calls,
        errors=last.errors,
        p50=last.quantile(0.5),
        p95=last.quantile(0.95),
        slowest=max((call.age for call in calls if call.age is not None), default=None),
        earlier_calls=recent.earlier_calls,
        earlier_errors=recent.earlier_errors,
        trouble=trouble_of(recent),
    )


def _upstreams(
    part: Part, tools: Sequence[tuple[str, str, Recent]], calls: Sequence[CallView]
) -> Iterator[UpstreamView]:
    back = part.operated.back
    if hasattr(back, "upstreams"):
        yield _upstream(part, part.name, part.operated, tools, calls)
    member_of: Callable[[str, str], str] = getattr(back, "member_of", lambda *_: "")
    for name, behind in part.operated.parts.items():
        own = [tool for tool in tools if member_of(tool[0], tool[1]) == name]
        running = [call for call in calls if member_of(call.method, call.name) == name]
        yield _upstream(part, f"{part.name}/{name}", behind, own, running)


def _upstream(
    part: Part,
    name: str,
    operated: Operated,
    tools: Iterable[tuple[str, str, Recent]],
    calls: Iterable[CallView],
) -> UpstreamView:
    upstreams: Upstreams = getattr(operated.back, "upstreams")  # noqa: B009 - a back in front of another server has it
    connections, starting = len(upstreams), upstreams.starting
    working = "connected" if connections > starting else "starting" if starting else "idle"
    state = "failing" if upstreams.is_failing else working
    health, now = operated.health, part.engine.clock.wall()
    restarts = 0 if operated.figures is None else operated.figures.events["client.reconnected"]
    recent = recent_view(reduce(Recent.plus, (recent for *_, recent in tools), Recent()), calls)
    return UpstreamView(
        name,
        connections,
        state,
        restarts,
        part.replica,
        recent,
        worked=max(0.0, now - health.worked_at) if health.worked_at else None,
        failed=max(0.0, now - health.failed_at) if health.failed_at else None,
        reason=health.reason,
    )


def _counts(part: Part) -> Iterator[tuple[str, int]]:
    figures = part.operated.figures
    if figures is not None:
        yield "streams resumed", figures.store.resumes
        yield "streams with missed messages", figures.store.gaps
        yield from ((name, figures.events[event]) for name, event in COUNTED.items())


def _newest(events: Iterable[Happened]) -> list[Happened]:
    return list(events)[-MOST_EVENTS:]


def bounded(said: Said) -> bytes:
    """Encode an answer. The newest calls and the oldest events are left out until it is short enough."""
    encoded = msgspec.json.encode(said)
    while len(encoded) > ANSWER_BYTES and (said.events or (said.live is not None and said.live.calls)):
        live = said.live
        if live is not None:
            live = msgspec.structs.replace(live, calls=live.calls[: len(live.calls) // 2])
        said = msgspec.structs.replace(said, live=live, events=said.events[(len(said.events) + 1) // 2 :])
        encoded = msgspec.json.encode(said)
    return encoded
