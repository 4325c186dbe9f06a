"""The server on trial, one process of several: `python -m tests.chaos.replica <config>`.

Every message of a tool names its call. Every act of a tool is first written to a journal of this
process, which is never shortened. The judge reads journals, logs and the clients' notes.
"""

import asyncio
import importlib
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct
from typing_extensions import override

from limpet import Context, Hosted, Process, Remote, Server
from limpet.auth import Principal
from limpet.config import HttpSettings, Settings
from limpet.core.fate import FateInput
from limpet.core.lifecycle import SessionInput
from limpet.engine.exchange import Exchange, SessionExchange
from limpet.engine.reader import Reader
from limpet.engine.writer import LogWriter
from limpet.errors import StoreUnavailable
from limpet.fronts.http.http1.sockets import bind
from limpet.fronts.http.serve import serve
from limpet.ops.log import LogObserver
from limpet.ports import SystemClock
from limpet.server.context.session_view import SessionView
from limpet.server.running.native_back import NativeBack
from limpet.server.served import Served
from limpet.stores.urls import open_store
from limpet.transports.loops import run
from tests.chaos.breakages import break_law

TOKEN: Final = "token-of-"
NAME_FORM: Final = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
LAG_SECONDS: Final = 0.05
BEHIND: Final = str(Path(__file__).with_name("behind.py"))
PEER: Final = Path(__file__).parents[2] / ".peers" / "mcp2"
KEY: Final = "Y2hhb3MgY2hhb3MgY2hhb3MgY2hhb3MgY2hhb3MgMDA="
CLOCK_STEP: Final = 300.0
HAND_OVER: Final = 0.5
"""Seconds after which a slow call is handed over."""
STARVED_SECONDS: Final = 0.75
"""A loop that is late by so much, without work of its own, did not get the processor."""


class ReplicaConfig(Struct, frozen=True, kw_only=True):
    """The configuration of one process of the fleet."""

    name: str
    """This life of this replica: `b.3` is the third process at the second address."""
    port: int
    store: str
    journal: str
    settings: Settings
    namespace: str = "chaos"
    back: str = "native"
    """One of `backs.BACKS`."""
    behind: str = ""
    """The URL of the server behind, for the back `url`."""
    anonymous: bool = False
    broken: str = ""
    """A law to break on purpose, to see it noticed."""


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="entry", tag_field="kind"):
    """One line of a journal."""

    at: float
    replica: str
    what: str
    nonce: str = ""
    claim: str = ""
    session: str = ""
    value: float = 0
    note: str = ""


class Journal:
    """Lines appended with one write each: a kill leaves whole lines."""

    def __init__(self, path: Path, replica: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._replica = replica

    def write(self, what: str, **facts: Any) -> None:
        entry = Entry(at=time.time(), replica=self._replica, what=what, **facts)
        os.write(self._file, msgspec.json.encode(entry) + b"\n")


class Bearers:
    """A verifier: `token-of-ann` speaks for ann."""

    async def __call__(self, token: str) -> Principal | None:
        subject = token.removeprefix(TOKEN)
        return Principal(subject=subject, issuer="chaos") if subject and token.startswith(TOKEN) else None


def mark(ctx: Context, nonce: str) -> str:
    """Return whose payload this is."""
    who = ctx.principal.subject if ctx.principal is not None else "anonymous"
    return f"{who}/{ctx._exchange.session.record.key[:16]}/{nonce}"


def build(config: ReplicaConfig, journal: Journal, *, lifespan: Any = None) -> Served:
    """Return the server with its tools, in front of its back."""
    observer = LogObserver()
    shared: Any = {
        "settings": config.settings,
        "store": config.store
        and open_store(
            config.store, limits=config.settings.limits, namespace=config.namespace, observer=observer
        ),
        "namespace": config.namespace,
        "verifier": None if config.anonymous else Bearers(),
        "observer": observer,
    }
    env = {"CHAOS_JOURNALS": str(Path(config.journal).parent)}
    match config.back:
        case "program":
            return Process(
                [str(PEER / "bin" / "python"), BEHIND], env=env, forward_key=KEY, children=400, **shared
            )
        case "url":
            return Remote(config.behind, forward_key=KEY, **shared)
        case "object":
            os.environ.update(env)
            sys.path += [str(found) for found in PEER.glob("lib/python3*/site-packages")]
            # The packages of the peer come after ours on the path, because both run in this process.
            return Hosted(importlib.import_module("tests.chaos.behind").server, forward_key=KEY, **shared)
        case _:
            server = Server("chaos", lifespan=lifespan, **shared)
            add_tools(server, journal)
            add_listeners(server, journal)
            return server


def add_tools(server: Server, journal: Journal) -> None:
    """Add the tools."""

    @server.tool
    async def ticks(nonce: str, n: int, interval: float, ctx: Context) -> str:
        for step in range(1, n + 1):
            await asyncio.sleep(interval)
            await ctx.progress(step, n, message=f"{mark(ctx, nonce)}/{step}")
        journal.write("end", nonce=nonce)
        return mark(ctx, nonce)

    @server.tool
    async def quick(nonce: str, ctx: Context) -> str:
        journal.write("end", nonce=nonce)
        return mark(ctx, nonce)

    @server.tool
    async def bump(nonce: str, ctx: Context) -> str:
        value = await ctx.state.incr("counter")
        journal.write("end", nonce=nonce, value=value)
        return f"{mark(ctx, nonce)}/{value}"

    @server.tool
    async def counter(nonce: str, ctx: Context) -> str:
        return f"{mark(ctx, nonce)}/{await ctx.state.get('counter', 0)}"

    @server.tool
    async def fanout(nonce: str, n: int, ctx: Context) -> str:
        async def one(number: int) -> str:
            question = f"{mark(ctx, nonce)}/{number}"
            answer: Any = await ctx.sample(question, max_tokens=10, timeout=30.0)
            return str(answer.content.text)

        answers = await asyncio.gather(*(one(number) for number in range(n)))
        journal.write("end", nonce=nonce)
        return "\n".join([mark(ctx, nonce), *answers])

    @server.tool(task="optional")
    async def errand(nonce: str, seconds: float, ctx: Context) -> str:
        journal.write("start", nonce=nonce)
        await asyncio.sleep(seconds)
        journal.write("end", nonce=nonce)
        return mark(ctx, nonce)

    @server.tool(hand_over=HAND_OVER)
    async def slow(nonce: str, seconds: float, ctx: Context) -> str:
        await asyncio.sleep(seconds)
        journal.write("end", nonce=nonce)
        return mark(ctx, nonce)

    add_probes(server)


def add_probes(server: Server) -> None:
    """Add the tools of single tests: work that waits, changes that every replica must announce."""

    @server.tool
    async def name_of_user(ctx: Context) -> str:
        answer = await ctx.elicit("Who are you?", NAME_FORM)
        return f"{(answer.data or {}).get('name')} told {os.getpid()}"

    @server.tool
    async def offer(name: str) -> int:
        async def offered() -> str:
            return name

        server.add_tool(offered, name=name)
        return os.getpid()

    @server.tool
    async def touch(uri: str, ctx: Context) -> int:
        await ctx.resource_updated(uri)
        return os.getpid()

    @server.resource("data://clock")
    async def clock() -> str:
        return "noon"


class NotedBack(NativeBack):
    """Writes down every start of a handler with its claim, before the handler sees anything."""

    __slots__ = ("_journal",)

    def __init__(self, server: Server, journal: Journal) -> None:
        super().__init__(server)
        self._journal = journal

    @override
    async def handle(self, exchange: Exchange) -> bytes:
        arguments = exchange.request.params.get("arguments") or {}
        # A call that becomes a task starts when the store has it: `errand` writes that itself.
        if "nonce" in arguments and exchange.request.params["name"] != "errand":
            session = exchange.session.record.key[:16]
            claim = exchange.claim.stream if isinstance(exchange, SessionExchange) else ""
            self._journal.write("start", nonce=arguments["nonce"], claim=claim, session=session)
        return await super().handle(exchange)


def note_leaving(journal: Journal) -> None:
    """Write down when this process learns that the client of a call is gone: its answer must be kept from then on."""
    report = LogWriter.report

    def noted(writer: LogWriter, happened: FateInput, reader: Reader | None = None) -> None:
        if happened in {FateInput.LEFT, FateInput.FAILED} and reader is writer.reader:
            journal.write("left", claim=writer.claim.stream)
        report(writer, happened, reader)

    setattr(LogWriter, "report", noted)  # noqa: B010 - type checkers refuse the assignment of a method


def add_listeners(server: Server, journal: Journal) -> None:
    """Write down each start, and each event of a session."""
    server._back = NotedBack(server, journal)
    note_leaving(journal)

    def told(what: str) -> Callable[[SessionView], Awaitable[None]]:
        async def write(view: SessionView) -> None:
            journal.write(what, session=view.key[:16])

        return write

    server.on_opened(told("opened"))
    server.on_detached(told("detached"))
    server.on_reattached(told("reattached"))

    @server.on_closed
    async def closed(view: SessionView, reason: SessionInput) -> None:
        journal.write("closed", session=view.key[:16], note=str(reason))


def step_the_clock(journal: Journal) -> None:
    """Let SIGUSR1 set the clock of this process forward by five minutes, and the next one back."""
    step = 0.0

    def stepped(*_: object) -> None:
        nonlocal step
        step = 0.0 if step else CLOCK_STEP
        journal.write("clock", value=step)

    setattr(SystemClock, "wall", staticmethod(lambda: time.time() + step))  # noqa: B010 - type checkers refuse the assignment of a method
    signal.signal(signal.SIGUSR1, stepped)


async def measure_lag(journal: Journal) -> None:
    """Write down how late the loop is, and how much memory there is, once a second."""
    loop = asyncio.get_running_loop()
    while True:
        for _ in range(round(1 / LAG_SECONDS)):
            before, spent = loop.time(), time.process_time()
            await asyncio.sleep(LAG_SECONDS)
            late = loop.time() - before - LAG_SECONDS
            journal.write("lag", value=late)
            starved = late - (time.process_time() - spent)
            if starved > STARVED_SECONDS:
                journal.write("starved", value=starved)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        journal.write("rss", value=pages * os.sysconf("SC_PAGE_SIZE"))
        journal.write("tasks", value=len(asyncio.all_tasks()))


async def started(config: ReplicaConfig, journal: Journal) -> bool:
    """Serve until a signal. False: it could not begin, for its store is unavailable."""
    with bind("127.0.0.1", config.port) as listener:
        server = build(config, journal)
        try:
            await serve(
                server.front(HttpSettings()),
                listener,
                ready=lambda _: journal.write("ready", value=os.getpid()),
            )
        except StoreUnavailable:
            return False
    return True


async def main(config: ReplicaConfig) -> None:
    """Serve until a signal."""
    journal = Journal(Path(config.journal), config.name)
    step_the_clock(journal)
    if config.broken:
        break_law(config.broken)
    lag = asyncio.get_running_loop().create_task(measure_lag(journal))
    try:
        # Without its store a server does not start; a supervisor would start it again.
        while not await started(config, journal):
            await asyncio.sleep(LAG_SECONDS)
    finally:
        lag.cancel()
        journal.write("stopped")


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG, format="%(created).3f %(levelname)s %(name)s %(message)s")
    logging.getLogger("asyncio").setLevel(logging.INFO)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    run(main(msgspec.json.decode(sys.argv[1], type=ReplicaConfig)), threads=4)
