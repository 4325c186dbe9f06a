"""A connection that is a list, and a back whose answers a test holds."""

import asyncio
import json
from typing import Any, Final

from holdfast.config import Settings
from holdfast.engine.engine import Engine
from holdfast.engine.exchange import Caller, Exchange
from holdfast.engine.sessions import ANONYMOUS
from holdfast.errors import SessionGone
from holdfast.fronts.duplex import Duplex
from holdfast.ports import Clock
from holdfast.testing.back import ScriptedBack
from tests.messages import metadata

Json = Any
META: Final = metadata(capabilities={"sampling": {}, "roots": {}})
"""What a request of 2026-07-28 says of itself."""


class Wire:
    """A peer's end: what arrived, and a valve that stops it from reading."""

    def __init__(
        self,
        back: ScriptedBack,
        settings: Settings = Settings(),
        *,
        clock: Clock | None = None,
        caller: Caller = Caller(ANONYMOUS),  # noqa: B008 - frozen
    ) -> None:
        self.engine = Engine(back, settings, clock=clock)
        self.duplex = Duplex(self.engine, self.write, caller)
        self.received: list[Any] = []
        self.reading = asyncio.Event()
        self.reading.set()
        self.arrived = asyncio.Condition()

    async def write(self, message: bytes) -> None:
        await self.reading.wait()
        async with self.arrived:
            self.received.append(json.loads(message))
            self.arrived.notify_all()

    async def say(self, method: str, request_id: int | str | None = None, **params: Any) -> None:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
        if request_id is not None:
            message["id"] = request_id
        await self.duplex.take(json.dumps(message).encode())

    async def open(self, version: str = "2025-11-25") -> None:
        client = {"name": "wire", "version": "0"}
        await self.say(
            "initialize", 0, protocolVersion=version, clientInfo=client, capabilities={"sampling": {}}
        )
        assert (await self.answer(0))["result"]["protocolVersion"] == version
        await self.say("notifications/initialized")

    async def answer(self, request_id: int | str | None, count: int = 1) -> Any:
        """Wait for the answer with this id: the count-th."""

        def found() -> list[Any]:
            return [
                m
                for m in self.received
                if isinstance(m, dict) and "method" not in m and m.get("id") == request_id
            ]

        async with self.arrived:
            await self.arrived.wait_for(lambda: len(found()) >= count)
        return found()[count - 1]

    async def modern(self, method: str, request_id: int | str, **params: Any) -> None:
        """Say a request of 2026-07-28."""
        await self.say(method, request_id, _meta=META, **params)

    async def told(self, method: str, count: int = 1) -> list[Json]:
        """Wait for so many notifications of a method, and return their params."""

        def found() -> list[Json]:
            return [m["params"] for m in self.received if isinstance(m, dict) and m.get("method") == method]

        async with self.arrived:
            await self.arrived.wait_for(lambda: len(found()) >= count)
        return found()

    async def batch(self) -> list[Any]:
        async with self.arrived:
            await self.arrived.wait_for(lambda: any(isinstance(m, list) for m in self.received))
        return next(m for m in self.received if isinstance(m, list))


class Held(ScriptedBack):
    """Answers `echo` at once, and `hold` when its gate opens."""

    def __init__(self) -> None:
        super().__init__(
            {
                "echo": self.echo,
                "hold": self.hold,
                "ping": self.pong,
                "ask": self.ask,
                "tools/call": self.call,
            }
        )
        self.gate = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def echo(self, exchange: Exchange) -> object:
        return exchange.request.params

    async def hold(self, exchange: Exchange) -> object:
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return {"held": exchange.request.params.get("n")}

    async def pong(self, exchange: Exchange) -> object:
        return {}

    async def ask(self, exchange: Exchange) -> object:
        try:
            return {"answer": await exchange.ask("sampling/createMessage", {})}
        except SessionGone:
            return {"answer": "nobody"}

    async def call(self, exchange: Exchange) -> object:
        """Say something, ask for two answers at once and then for a third, and say what they were."""
        await exchange.notify("notifications/progress", {"progressToken": 1, "progress": 1})
        first = await asyncio.gather(*(exchange.ask("roots/list", {"n": n}) for n in (1, 2)))
        return {"answers": [*first, await exchange.ask("roots/list", {"n": 3})]}
