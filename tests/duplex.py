"""A client on a duplex connection in the same process: its messages go to a `Duplex` and gather in a list."""

import asyncio
import json
from typing import Any, Final

from limpet.engine.caller import Caller
from limpet.engine.engine import Engine
from limpet.fronts.duplex import Duplex
from tests.messages import Json, initialize, metadata, notification, request

META: Final = metadata(capabilities={"sampling": {}, "roots": {}})


class DuplexClient:
    """The client's end: the messages that arrived, and a valve that stops it from reading."""

    def __init__(self, engine: Engine, caller: Caller) -> None:
        self.engine = engine
        self.duplex = Duplex(engine, self.write, caller)
        self.received: list[Any] = []
        self.reading = asyncio.Event()
        self.reading.set()
        self.writes_waiting = 0
        """Writes that had to wait for the valve."""
        self.arrived = asyncio.Condition()

    async def write(self, message: bytes) -> None:
        self.writes_waiting += not self.reading.is_set()
        await self.reading.wait()
        async with self.arrived:
            self.received.append(json.loads(message))
            self.arrived.notify_all()

    async def say(self, method: str, request_id: int | str | None = None, **params: Any) -> None:
        one = notification(method, params) if request_id is None else request(request_id, method, params)
        await self.duplex.take(json.dumps(one).encode())

    async def open(self, version: str = "2025-11-25") -> None:
        await self.say("initialize", 0, **initialize(version, capabilities={"sampling": {}}))
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

    async def sessionless(self, method: str, request_id: int | str, **params: Any) -> None:
        """Say a request of 2026-07-28."""
        await self.say(method, request_id, _meta=META, **params)

    async def wait_for(self, method: str, count: int = 1) -> list[Json]:
        """Wait for so many notifications of a method, and return their params."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.notified(method)) >= count)
        return self.notified(method)

    def notified(self, method: str) -> list[Json]:
        """Return the params of all notifications of a method so far."""
        return [
            m.get("params", {}) for m in self.received if isinstance(m, dict) and m.get("method") == method
        ]

    async def batch(self) -> list[Any]:
        async with self.arrived:
            await self.arrived.wait_for(lambda: any(isinstance(m, list) for m in self.received))
        return next(m for m in self.received if isinstance(m, list))
