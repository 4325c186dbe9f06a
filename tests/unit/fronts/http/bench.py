"""The HTTP front on the loop's clock: an engine with a scripted back, and clients of it in the same process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from limpet.auth import Verifier
from limpet.config import HttpSettings, Settings
from limpet.engine.engine import Engine
from limpet.engine.exchange import Exchange
from limpet.fronts.http.front import HttpFront
from limpet.fronts.http.read.head import Head
from limpet.stores.base import Store
from limpet.stores.memory import MemoryStore
from limpet.testing import NotingObserver, ScriptedBack, SeededRandom
from tests.asgi import Peer
from tests.messages import LATEST
from tests.support import LoopClock, virtual_test_within

MIDDLE: Final = "2025-06-18"
OLDEST: Final = "2025-03-26"
REVISIONS: Final = (LATEST, MIDDLE, OLDEST)

front_test = virtual_test_within(10_000)


class Bench:
    """An engine on the loop's clock behind one front, with a back whose tools the test holds.

    `quick` answers at once, `big` with a long result; `held` waits for `release` and counts how often it ran; `ticks` says
    two progress messages, then waits for `release`; `ask` asks for roots and returns the answer.
    """

    def __init__(
        self, settings: Settings, http: HttpSettings, verifier: Verifier | None, store: Store | None
    ) -> None:
        self.back = ScriptedBack({"tools/call": self._call, "ping": self._ping})
        self.observer = NotingObserver()
        self.store = store or MemoryStore(settings.limits, LoopClock())
        self.engine = Engine(
            self.back,
            settings,
            store=self.store,
            clock=LoopClock(),
            random=SeededRandom(),
            observer=self.observer,
        )
        self.app = HttpFront(self.engine, http, verifier=verifier)
        self.runs: list[str] = []
        self.release = asyncio.Event()

    async def _ping(self, _exchange: Exchange) -> object:
        return {}

    async def _call(self, exchange: Exchange) -> object:
        tool = exchange.request.params["name"]
        self.runs.append(tool)
        return await getattr(self, f"_{tool}")(exchange)

    async def _quick(self, exchange: Exchange) -> object:
        return {"tool": "quick", "id": exchange.request.id}

    async def _big(self, exchange: Exchange) -> object:
        return {"tool": "big", "id": exchange.request.id, "long": "x" * 100_000}

    async def _held(self, exchange: Exchange) -> object:
        await self.release.wait()
        return {"tool": "held", "id": exchange.request.id}

    async def _ticks(self, exchange: Exchange) -> object:
        for number in (1, 2):
            await exchange.notify("notifications/progress", {"progressToken": 0, "progress": number})
        await self.release.wait()
        return {"tool": "ticks", "id": exchange.request.id}

    async def _talk(self, exchange: Exchange) -> object:
        """Say one thing every second forever."""
        number = 0
        while True:
            number += 1
            await exchange.notify("notifications/progress", {"progressToken": 0, "progress": number})
            await asyncio.sleep(1.0)

    async def _flood(self, exchange: Exchange) -> object:
        for number in range(50):
            await exchange.notify("notifications/progress", {"progressToken": 0, "progress": number})
        await self.release.wait()
        return {"tool": "flood"}

    async def _ask(self, exchange: Exchange) -> object:
        return {"tool": "ask", "answer": await exchange.ask("roots/list", {})}

    async def _let_go(self, exchange: Exchange) -> object:
        await exchange.close_stream()
        await self.release.wait()
        return {"tool": "let_go"}

    def peer(self, **options: Any) -> Peer:
        """Return a client of this front."""
        return Peer(self.app, **options)

    @staticmethod
    def head(token: str) -> Head:
        """Return the head of a request with a token."""
        return Head([(b"authorization", f"Bearer {token}".encode())])

    def noted(self, event: str) -> int:
        """Return how often the observer noted an event."""
        return len(self.observer.named(event))


@asynccontextmanager
async def bench(
    settings: Settings = Settings(),
    *,
    verifier: Verifier | None = None,
    store: Store | None = None,
    **http: Any,
) -> AsyncIterator[Bench]:
    """Yield a bench and close its engine."""
    made = Bench(settings, HttpSettings(**http), verifier, store)
    try:
        yield made
    finally:
        await made.engine.aclose()
