"""A back with the tools the tests need, small enough to be obviously right: the engine and the front are on trial, not it.

`python tests/http/back.py <config> <fd>` serves it as a process of its own.
"""

import asyncio
import contextlib
import logging
import os
import pickle
import socket
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from limpet.auth import Principal
from limpet.config import HttpSettings, Settings, Times
from limpet.core.lifecycle import SessionInput
from limpet.engine.access import Access
from limpet.engine.back import Outside
from limpet.engine.caller import Caller
from limpet.engine.engine import Engine
from limpet.engine.exchange import Exchange
from limpet.engine.session import Session
from limpet.engine.sessionless_client import SessionlessClient
from limpet.errors import LimpetError, MethodNotFound
from limpet.fronts.http import HttpFront
from limpet.fronts.http.serve import serve
from limpet.ops.log import LogObserver
from limpet.ports import Clock
from limpet.protocol.sessionless import RequestMeta
from limpet.protocol.subscriptions import Filter, Kind
from limpet.stores.base import SessionRecord
from limpet.transports.loops import run
from limpet.wire.jsonrpc import Request

Tool = Callable[[Exchange, dict[str, Any]], Awaitable[object]]
PROGRESS = "notifications/progress"


class Config(Struct, frozen=True, kw_only=True):
    """The configuration of a test server."""

    settings: Settings = Settings(times=Times(drain=0.5))
    http: HttpSettings = HttpSettings()
    tokens: dict[str, str] = {}
    """Bearer tokens and the subjects they speak for; none: anonymous clients."""


DEFAULT: Final = Config()


class ToolBack:
    """A back with tools by name; it counts their runs."""

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self.access = Access()
        self.runs: Counter[str] = Counter()
        self.written: Counter[str] = Counter()
        """Messages that the engine has taken from a tool, by the tool's `key`."""
        self.gates: dict[str, asyncio.Event] = {}
        self.life: dict[str, list[str]] = {}
        self.heard: list[str] = []
        self.tools: dict[str, Tool] = {
            "echo": self.echo,
            "slow": self.slow,
            "gated": self.gated,
            "open": self.open_gate,
            "ticks": self.ticks,
            "flood": self.flood,
            "fanout": self.fanout,
            "ask": self.ask,
            "bump": self.bump,
            "boom": self.boom,
            "push": self.push,
            "late": self.late,
            "count": self.count,
            "stats": self.stats,
            "told": self.told,
            "session_ask": self.session_ask,
        }

    # Called by the engine

    async def start(self, outside: Outside) -> None:
        """Nothing to get ready."""

    async def stop(self) -> None:
        """Nothing to release."""

    async def initialize(self, record: SessionRecord, caller: Caller) -> dict[str, Any]:
        return {"serverInfo": self.server_info, "capabilities": {"tools": {}, "logging": {}}}

    async def dropped(self, record: SessionRecord) -> None:
        """Nothing was kept."""

    @property
    def server_info(self) -> dict[str, str]:
        return {"name": "trial", "version": "1"}

    def mirrored(self, request: Request, meta: RequestMeta, caller: Caller) -> tuple[()]:
        return ()

    def lists(self, key: str) -> list[Kind]:
        return ["tools"]

    async def honoured(self, client: SessionlessClient, wanted: Filter, caller: Caller) -> Filter:
        return wanted

    async def handle(self, exchange: Exchange) -> bytes:
        request = exchange.request
        if request.method == "ping":
            return b"{}"
        tool = self.tools.get(request.params.get("name", ""))
        if request.method != "tools/call" or tool is None:
            raise MethodNotFound(request.method[:100])
        result = await tool(exchange, request.params.get("arguments", {}))
        text = result if isinstance(result, str) else msgspec.json.encode(result).decode()
        return msgspec.json.encode(
            {"content": [{"type": "text", "text": text}], "structuredContent": {"result": result}}
        )

    async def notify(self, session: Session, method: str, params: dict[str, Any]) -> None:
        self.heard.append(method)

    has_home = False

    async def moved(self, record: SessionRecord) -> None:
        """Sessions have no home."""

    async def serve(self, record: SessionRecord, caller: Caller) -> None:
        """Sessions have no home."""

    async def left(self, key: str) -> None:
        """Sessions have no home."""

    @property
    def hears_opened(self) -> bool:
        return True

    async def opened(self, session: Session) -> None:
        self.life[session.record.key] = ["opened"]

    async def detached(self, session: Session) -> None:
        self.life[session.record.key].append("detached")

    async def reattached(self, session: Session) -> None:
        self.life[session.record.key].append("reattached")

    async def closed(self, session: Session, reason: SessionInput) -> None:
        self.life.setdefault(session.record.key, []).append(f"closed: {reason.value}")

    # Tools

    async def echo(self, exchange: Exchange, args: dict[str, Any]) -> object:
        self.runs[args["text"]] += 1
        return args["text"]

    async def slow(self, exchange: Exchange, args: dict[str, Any]) -> object:
        self.runs[args["text"]] += 1
        await asyncio.sleep(args["seconds"])
        self.runs[f"{args['text']} ended"] += 1
        return args["text"]

    async def gated(self, exchange: Exchange, args: dict[str, Any]) -> object:
        """Run until the gate is opened; with `stubborn`, ignore one cancellation first."""
        key = args["key"]
        self.runs[key] += 1
        gate = self.gates.setdefault(key, asyncio.Event())
        for _ in range(args.get("before", 0)):
            await exchange.notify(PROGRESS, {"progressToken": key, "progress": 0})
        if args.get("stubborn"):
            with contextlib.suppress(asyncio.CancelledError):
                await gate.wait()
        await gate.wait()
        for step in range(args.get("after", 0)):
            await exchange.notify(PROGRESS, {"progressToken": key, "progress": step})
        self.runs[f"{key} ended"] += 1
        return f"{key} through"

    async def open_gate(self, exchange: Exchange, args: dict[str, Any]) -> object:
        self.gates.setdefault(args["key"], asyncio.Event()).set()
        return "open"

    async def ticks(self, exchange: Exchange, args: dict[str, Any]) -> object:
        token = exchange.request.params.get("_meta", {}).get("progressToken", 0)
        for step in range(1, args["n"] + 1):
            await asyncio.sleep(args["interval"])
            await exchange.notify(PROGRESS, {"progressToken": token, "progress": step, "total": args["n"]})
        return f"{args['n']} ticks"

    async def flood(self, exchange: Exchange, args: dict[str, Any]) -> object:
        """Send many messages as fast as the engine takes them."""
        padding = "x" * args.get("size", 10)
        for step in range(args["n"]):
            await exchange.notify(PROGRESS, {"progressToken": 0, "progress": step, "message": padding})
            self.written[args["key"]] += 1
        return f"{args['n']} sent"

    async def fanout(self, exchange: Exchange, args: dict[str, Any]) -> object:
        async def one(number: int) -> str:
            message = {"role": "user", "content": {"type": "text", "text": f"question {number}"}}
            answer = await exchange.ask(
                "sampling/createMessage",
                {"messages": [message], "maxTokens": 10},
                timeout=args.get("timeout"),
            )
            return str(answer["content"]["text"])

        return ",".join(await asyncio.gather(*(one(number) for number in range(args["n"]))))

    async def ask(self, exchange: Exchange, args: dict[str, Any]) -> object:
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        asked = {"mode": "form", "message": args["message"], "requestedSchema": schema}
        try:
            return await exchange.ask("elicitation/create", asked, timeout=args.get("timeout"))
        except LimpetError as error:
            return f"{type(error).__name__}: {error}"

    async def session_ask(self, exchange: Exchange, args: dict[str, Any]) -> object:
        """Ask on the standalone stream."""
        assert self.engine is not None
        assert isinstance(exchange.session, Session)
        try:
            return await self.engine.sessions.ask(exchange.session, "roots/list", {}, timeout=args["timeout"])
        except LimpetError as error:
            return type(error).__name__

    async def bump(self, exchange: Exchange, args: dict[str, Any]) -> object:
        return await exchange.store.add_state(exchange.session.record.key, args["key"], 1, op=exchange.key)

    async def boom(self, exchange: Exchange, args: dict[str, Any]) -> object:
        raise RuntimeError(args["text"])

    async def push(self, exchange: Exchange, args: dict[str, Any]) -> object:
        """Send notifications that belong to no request."""
        assert self.engine is not None
        for number in range(args["start"], args["start"] + args["n"]):
            await self.engine.sessions.push(
                exchange.session.record.key, "notifications/message", {"level": "info", "data": number}
            )
        return args["n"]

    async def late(self, exchange: Exchange, args: dict[str, Any]) -> object:
        """Write state although the session is closed meanwhile."""
        self.runs[args["key"]] += 1
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        try:
            await exchange.store.add_state(exchange.session.record.key, "after", 1, op=exchange.key)
        except LimpetError as error:
            self.runs[f"{args['key']} {type(error).__name__}"] += 1
        return "written"

    async def count(self, exchange: Exchange, args: dict[str, Any]) -> object:
        return self.runs[args["key"]]

    async def told(self, exchange: Exchange, args: dict[str, Any]) -> object:
        return self.life.get(exchange.session.record.key, [])

    async def stats(self, exchange: Exchange, args: dict[str, Any]) -> object:
        assert self.engine is not None
        sessions = self.engine.runtime.sessions.values()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return {
            "written": self.written[args.get("key", "")],
            "rss": pages * os.sysconf("SC_PAGE_SIZE"),
            "cpu": time.process_time(),
            "sessions": len(sessions),
            "readers": sum(len(readers) for session in sessions for readers in session.readers.values()),
            "exchanges": sum(len(session.exchanges) for session in sessions),
        }


class Tokens:
    """A verifier with a fixed table."""

    def __init__(self, tokens: dict[str, str]) -> None:
        self._tokens = tokens

    async def __call__(self, token: str) -> Principal | None:
        subject = self._tokens.get(token)
        return Principal(subject=subject, issuer="tests") if subject else None


def build(config: Config, clock: Clock | None = None) -> tuple[ToolBack, Engine, HttpFront]:
    """Return a back, its engine and the endpoint."""
    back = ToolBack()
    back.engine = Engine(back, config.settings, clock=clock, observer=LogObserver())
    return (
        back,
        back.engine,
        HttpFront(back.engine, config.http, verifier=Tokens(config.tokens) if config.tokens else None),
    )


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG, format="%(message)s")
    app = build(pickle.loads(bytes.fromhex(sys.argv[1])))[2]  # noqa: S301 - of the test that started this
    run(serve(app, socket.socket(fileno=int(sys.argv[2]))), threads=4)
