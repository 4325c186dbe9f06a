"""A fleet that a test can change as it likes, behind the real admin surface on a real socket."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from typing import Any, Final

from msgspec.structs import replace

from limpet.config import Limits
from limpet.errors import StoreUnavailable
from limpet.fronts.http.http1.accept import Acceptor
from limpet.fronts.http.http1.deadlines import Deadlines
from limpet.fronts.http.http1.members import Members
from limpet.fronts.http.http1.sockets import bind
from limpet.ops.admin import surface
from limpet.ops.metrics.samples import Sample
from limpet.ops.ring import Happened
from limpet.ops.views import (
    CallView,
    FiguresView,
    FleetState,
    RecentView,
    ReplicaView,
    ServerView,
    ShownSession,
    ToolView,
    UpstreamView,
)
from limpet.ports import SystemClock
from limpet.testing import NotingObserver
from tools.ports import free_port

TOKEN: Final = "operator-token"
PAGE: Final = 50
"""How many sessions a page has."""


def call(number: int, **members: Any) -> CallView:
    """Return a call."""
    base = CallView(
        f"c{number:07x}",
        "tools/call",
        "search",
        4.0,
        "handler",
        "claude-code",
        "1f0c22ab",
        "2025-11-25",
        "p-77aa",
        "r1",
    )
    return replace(base, **members)


def session(number: int, **members: Any) -> ShownSession:
    """Return a session."""
    base = ShownSession(
        f"s{number:07x}", "claude-code", "2025-11-25", "attached", None, "p-77aa", 18_400, 0, 1, "r1"
    )
    return replace(base, **members)


def tool(name: str, *, server: str = "shop", **members: Any) -> ToolView:
    """Return a tool that works."""
    base = RecentView(calls_per_second=4.0, calls=240, p50=0.012, p95=0.11, earlier_calls=960)
    return ToolView(name, server, replace(base, **members))


class Fleet:
    """The source of the surface. A test changes its members."""

    def __init__(self) -> None:
        self.replica = "r1"
        self.servers = [ServerView("shop", "1.4.0", "redis")]
        self.sessions: list[ShownSession] = []
        self.calls: list[CallView] = []
        self.replicas = [ReplicaView("r1", "live", 0, 0, 0.002, 0.004, 11.0)]
        self.upstreams: list[UpstreamView] = []
        self.events: list[Happened] = []
        self.counts = {
            "duplicates refused": 0,
            "sessions resumed": 0,
            "streams with missed messages": 0,
            "calls lost with a replica": 0,
        }
        self.figures = FiguresView()
        self.history: list[tuple[float, float, float, float, float]] = []
        self.tools: list[ToolView] = []
        self.done: list[str] = []
        self.away = False
        self.gate = asyncio.Event()
        """A state is given only while this is set."""
        self.gate.set()
        self.asked = 0
        self.observer = NotingObserver()

    def happen(self, event: str, at: float, **facts: str) -> None:
        """Add an event."""
        self.events.append(Happened(len(self.events) + 1, at, event, facts))

    async def state(self, page: str, after: int) -> FleetState:
        self.asked += 1
        await self.gate.wait()
        if self.away:
            raise StoreUnavailable("the store does not answer")
        first = int(page or 0)
        last = first + PAGE
        states = [one.state for one in self.sessions]
        figures = replace(
            self.figures,
            attached=states.count("attached"),
            detached=states.count("detached"),
            running=sum(one.state == "running" for one in self.calls),
            queued=sum(one.state == "queued" for one in self.calls),
            parked=sum(one.state == "parked" for one in self.calls),
            handed_over=sum(one.state == "handed over" for one in self.calls),
        )
        return FleetState(
            replica=self.replica,
            servers=self.servers,
            figures=figures,
            calls=self.calls,
            sessions=self.sessions[first:last],
            next_page=str(last) if last < len(self.sessions) else "",
            replicas=self.replicas,
            upstreams=self.upstreams,
            counts=self.counts,
            history=self.history,
            tools=self.tools,
            events=[one for one in self.events if one.number > after],
        )

    async def session(self, name: str) -> tuple[ShownSession | None, list[Happened]]:
        found = next((one for one in self.sessions if one.id == name), None)
        return found, [one for one in self.events if one.facts.get("session") == name]

    async def find(self, correlation: str) -> list[Happened]:
        return [one for one in self.events if one.facts.get("correlation") == correlation]

    async def close_session(self, name: str) -> bool:
        return self._remove(self.sessions, "closed", name)

    async def cancel_call(self, name: str) -> bool:
        return self._remove(self.calls, "cancelled", name)

    def _remove(self, things: list[Any], act: str, name: str) -> bool:
        found = [one for one in things if one.id == name]
        for one in found:
            things.remove(one)
            self.done.append(f"{act} {name}")
        return bool(found)

    async def metrics(self) -> list[Sample]:
        return []


class Served:
    """A surface on a socket; it can be stopped and started again."""

    def __init__(self, fleet: Fleet) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/"
        self._fleet = fleet
        self._running = contextlib.AsyncExitStack()

    async def start(self) -> None:
        """Listen."""
        clock, observer = SystemClock(), self._fleet.observer
        served = surface.Surface(self._fleet, TOKEN, observer, [f"127.0.0.1:{self.port}"], clock=clock)
        members = Members(served.serve, Deadlines(Limits(), 30.0), refused=served.guard.refused)
        acceptor = Acceptor(members, clock, observer)
        listener = self._running.enter_context(bind("127.0.0.1", self.port))
        self._running.push_async_callback(acceptor.end, 1.0)
        await self._running.enter_async_context(acceptor.running([listener]))
        self._running.callback(served.streams.end)

    async def stop(self) -> None:
        """End all connections, and listen no more."""
        self._fleet.gate.set()
        await self._running.aclose()


@contextlib.asynccontextmanager
async def served(fleet: Fleet) -> AsyncIterator[Served]:
    """Serve a fleet."""
    server = Served(fleet)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def busy_fleet(now: float) -> Fleet:
    """Return a fleet at night: many sessions, a hung call, a queue, a dead replica."""
    fleet = Fleet()
    clients = ["claude-code", "cursor-vscode", "Visual Studio Code", "mcp-inspector", "openai-agents"]
    for number in range(140):
        is_detached = number % 6 == 4
        fleet.sessions.append(
            session(
                number * 7919 % 0xFFFFFFF,
                client=clients[number % 5],
                era=["2025-11-25", "2025-06-18", "2025-03-26"][number % 3],
                state="detached" if is_detached else "attached",
                closes_in=1800 - number * 11.0 if is_detached else None,
                log_bytes=number * number * 97,
                calls=1 if number in (3, 8) else 0,
                streams=0 if is_detached else 1 + number % 2,
                replica=["r-7f31", "r-a2c0"][number % 2],
            )
        )
    calls = [
        ("reindex", "handler", 734.0, "running", "claude-code"),
        ("report", "handler", 312.0, "handed over", "claude-code"),
        ("book_trip", "ask", 63.0, "parked", "cursor-vscode"),
        ("fetch_page", "upstream", 41.0, "running", "mcp-inspector"),
        ("export_rows", "reader", 12.0, "running", "openai-agents"),
        ("search", "store", 2.4, "running", "claude-code"),
        ("search", "slot", 1.1, "queued", "claude-code"),
        ("summarise", "handler", 0.3, "running", "Visual Studio Code"),
    ]
    for number, (name, wait, age, state, client) in enumerate(calls):
        fleet.calls.append(
            call(
                number,
                name=name,
                waits_for=wait,
                age=age,
                state=state,
                client=client,
                replica=["r-7f31", "r-a2c0"][number % 2],
            )
        )
    fleet.replicas = [
        ReplicaView("r-7f31", "live", 71, 4, 0.0021, 0.0041, 11.0),
        ReplicaView("r-a2c0", "live", 69, 3, 0.0034, 0.0061, 9.0),
        ReplicaView("r-c9e4", "silent", lease_left=6.0),
    ]
    fleet.upstreams = [
        UpstreamView("files", 4, "connected", 0, "r-7f31"),
        UpstreamView("browser", 0, "failing", 3, "r-a2c0"),
    ]
    fleet.tools = [
        tool("search", calls_per_second=21.0, calls=1260),
        tool("orders", errors=180, earlier_errors=12, trouble="rising"),
        tool("reindex", calls_per_second=0.0, calls=0, slowest=734.0),
    ]
    fleet.counts = {
        "duplicates refused": 12,
        "sessions resumed": 431,
        "streams with missed messages": 2,
        "calls that clients sent again": 7,
        "calls lost with a replica": 1,
        "functions that failed": 3,
        "servers behind that ended": 3,
        "store failures": 0,
    }
    fleet.figures = FiguresView(
        asks=1,
        streams=131,
        log_bytes=19_400_000,
        calls_per_second=38.4,
        p50=0.0124,
        p95=0.183,
        loop_delay=0.0034,
    )
    for second in range(300):
        rate = 38 + 14 * math.sin(second / 31) + 5 * math.sin(second / 3.1)
        fleet.history.append(
            (
                rate,
                0.012 + 0.004 * math.sin(second / 17),
                0.12 + 0.07 * math.sin(second / 23) + (0.2 if 190 < second < 214 else 0),
                3.0 if second > 260 else 0.1,
                0.5 if 190 < second < 214 else 0.0,
            )
        )
    fleet.happen(
        "session.opened",
        now - 130,
        session="1f0c22ab",
        client="claude-code",
        era="2025-11-25",
        replica="r-7f31",
    )
    fleet.happen(
        "exchange.duplicate", now - 95, session="77ab01cd", client="cursor-vscode", method="tools/call"
    )
    fleet.happen(
        "handler.failed",
        now - 61,
        session="1f0c22ab",
        tool="search",
        error="KeyError: 'rows'",
        correlation="9c2f0b77aa10",
    )
    fleet.happen(
        "call.ended",
        now - 60,
        tool="search",
        client="claude-code",
        era="session",
        outcome="ok",
        ms="12.1",
        replica="r-7f31",
    )
    fleet.happen(
        "session.detached", now - 40, session="1f0c22ab", client="claude-code", reason="the connection broke"
    )
    fleet.happen("upstream.ended", now - 31, server="browser", status="1", restarts="3")
    fleet.happen("session.resumed", now - 12, session="1f0c22ab", client="claude-code")
    return fleet
