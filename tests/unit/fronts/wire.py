"""A duplex connection to an engine with a scripted back, and a back whose answers a test holds."""

import asyncio
from typing import Any

from limpet.config import Settings
from limpet.engine.caller import Caller
from limpet.engine.engine import Engine
from limpet.engine.exchange import Exchange
from limpet.engine.sessions import ANONYMOUS
from limpet.errors import SessionGone
from limpet.ports import Clock
from limpet.testing.back import ScriptedBack
from tests.duplex import DuplexClient

Json = Any


class Wire(DuplexClient):
    """A client of an engine with this back."""

    def __init__(
        self,
        back: ScriptedBack,
        settings: Settings = Settings(),
        *,
        clock: Clock | None = None,
        caller: Caller = Caller(ANONYMOUS),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(Engine(back, settings, clock=clock), caller)


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
            return {"answer": "none came"}

    async def call(self, exchange: Exchange) -> object:
        """Send a message, ask two questions at once and then a third, and send the answers."""
        await exchange.notify("notifications/progress", {"progressToken": 1, "progress": 1})
        first = await asyncio.gather(*(exchange.ask("roots/list", {"n": n}) for n in (1, 2)))
        return {"answers": [*first, await exchange.ask("roots/list", {"n": 3})]}
