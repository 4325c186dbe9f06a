"""The engine's test harness: it posts requests, reads streams and cuts connections, all in virtual time, without a front."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from limpet.config import Limits, Settings, Times
from limpet.core.fate import FateInput
from limpet.core.stream import Position
from limpet.engine.caller import Caller
from limpet.engine.claims import Repeat
from limpet.engine.delivery import Batch, deliver
from limpet.engine.engine import Engine
from limpet.engine.exchange import Exchange, SessionExchange
from limpet.engine.reader import End, Reader
from limpet.engine.session import ClientDuplex, Session
from limpet.stores.base import Store
from limpet.testing import NotingObserver, ScriptedBack, SeededRandom
from limpet.wire.jsonrpc import Request, RequestId, Response
from tests.support import LoopClock, virtual_test_within

PRINCIPAL: Final = "ada"
CALLER: Final = Caller(PRINCIPAL)
CALL: Final = "tools/call"

Json = dict[str, Any]


engine_test = virtual_test_within(200_000)


class Post:
    """One POST: its messages, and the means to cut it."""

    def __init__(self, harness: "EngineHarness", exchange: SessionExchange) -> None:
        self._harness = harness
        self.exchange = exchange
        self.messages: list[Json] = []
        self.reader: Reader | None = None
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.task = asyncio.create_task(self._answer())

    async def _answer(self) -> None:
        writer = self.exchange.writer
        while writer.terminal is None and writer.position is None:
            writer.wake.clear()
            await writer.wake.wait()
        if writer.position is None:
            self.messages.append(msgspec.json.decode(writer.terminal or b""))
            writer.report(FateInput.WROTE)
            writer.report(FateInput.TAKEN)
            await self._harness.engine.readers.follow_up(self.exchange)
            return
        self.reader = await self._harness.engine.readers.first(self.exchange)
        await self._harness.pump(self.reader, self.messages, self.may_read)

    async def whole(self) -> list[Json]:
        """Wait for the end of the response and return its messages."""
        await self.task
        return self.messages

    async def cut(self) -> None:
        """Break the connection."""
        if self.reader is not None:
            self.reader.stop(End.BROKE)
            self.may_read.set()
            await self.task
            return
        self.task.cancel()
        await asyncio.wait([self.task])
        await self._harness.engine.readers.close(self.exchange)


class EngineHarness:
    """An engine over a scripted back, with one session open."""

    def __init__(self, back: ScriptedBack, settings: Settings, store: Store | None) -> None:
        self.back = back
        self.noted = NotingObserver()
        self.engine = Engine(
            back, settings, store=store, clock=LoopClock(), random=SeededRandom(1), observer=self.noted
        )
        self.session: Session
        self.ended_readers: list[Reader] = []

    @property
    def key(self) -> str:
        return self.session.record.key

    async def open(
        self,
        version: str = "2025-11-25",
        *,
        principal: str = PRINCIPAL,
        duplex: ClientDuplex | None = None,
        capabilities: dict[str, Any] | None = None,
    ) -> Session:
        client = {"name": "t", "version": "0"}
        params = {"protocolVersion": version, "clientInfo": client, "capabilities": capabilities or {}}
        return (await self.engine.sessions.open(Caller(principal), params, duplex=duplex)).session

    async def submit(
        self, request_id: RequestId, method: str = CALL, params: Json | None = None, *,
        digest: bytes = b"", streams: bool = True, session: Session | None = None,
    ) -> SessionExchange | Repeat:  # fmt: skip
        key = (session or self.session).record.key
        request = Request(request_id, method, params or {})
        return await self.engine.exchanges.submit(key, CALLER, request, digest, streams=streams)

    async def post(
        self, request_id: RequestId, method: str = CALL, params: Json | None = None, **more: Any
    ) -> Post:
        """Send a request that must begin an exchange."""
        exchange = await self.submit(request_id, method, params, **more)
        assert isinstance(exchange, SessionExchange)
        return Post(self, exchange)

    async def call(
        self, request_id: RequestId, method: str = CALL, params: Json | None = None, **more: Any
    ) -> Json:
        """Send a request and return its terminal message."""
        return (await (await self.post(request_id, method, params, **more)).whole())[-1]

    async def get(self, stream: str | None = None, cursor: Position | None = None) -> "Get":
        """Open a GET."""
        reader = await self.engine.readers.attach(self.key, PRINCIPAL, stream, cursor)
        reader.caller = CALLER
        return Get(self, reader)

    async def answer(self, ask: Json, result: Any = None) -> Any:
        """Answer an ask of the server."""
        return await self.engine.sessions.answer(self.key, PRINCIPAL, Response(ask["id"], result, None))

    async def cancel(self, request_id: Any) -> None:
        params = {"requestId": request_id}
        await self.engine.sessions.notify(self.key, PRINCIPAL, "notifications/cancelled", params)

    async def pump(self, reader: Reader, messages: list[Json], may_read: asyncio.Event) -> None:
        """Read a stream to its end, page by page, as fast as `may_read` allows."""
        with contextlib.suppress(ConnectionError):
            await deliver(reader, Connection(reader, messages, may_read))
        await self.engine.readers.detach(reader)
        self.ended_readers.append(reader)


class Connection:
    """A sink: takes messages as fast as `may_read` allows, until its reader breaks."""

    patience: Final = None

    def __init__(self, reader: Reader, messages: list[Json], may_read: asyncio.Event) -> None:
        self._reader = reader
        self._messages = messages
        self._may_read = may_read

    async def write(self, batch: Batch) -> None:
        await self._may_read.wait()
        if self._reader.end is End.BROKE:
            raise ConnectionError
        self._messages += map(msgspec.json.decode, batch.messages)

    async def silence(self) -> None:
        await self._may_read.wait()


class Get:
    """One GET: its messages, and the means to cut it."""

    def __init__(self, harness: EngineHarness, reader: Reader) -> None:
        self.reader = reader
        self.messages: list[Json] = []
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.task = asyncio.create_task(harness.pump(reader, self.messages, self.may_read))

    @property
    def methods(self) -> list[str]:
        return [message["method"] for message in self.messages]

    async def cut(self) -> None:
        """Break the connection."""
        self.reader.stop(End.BROKE)
        await self.task


@asynccontextmanager
async def engine_harness(
    back: ScriptedBack | None = None, settings: Settings = Settings(), *,
    limits: Limits | None = None, times: Times | None = None, version: str = "2025-11-25", store: Store | None = None,
) -> AsyncIterator[EngineHarness]:  # fmt: skip
    """Start an engine with one open session; close it with the block."""
    if limits is not None or times is not None:
        settings = Settings(limits=limits or Limits(), times=times or Times(), in_order=settings.in_order)
    made = EngineHarness(back or ScriptedBack({CALL: echo}), settings, store)
    await made.engine.ensure_started()
    made.session = await made.open(version)
    try:
        yield made
    finally:
        await made.engine.aclose()
        await settle_down()
    tasks = [exchange.task for exchange in made.back.handled if exchange.task is not None]
    failed = [task.exception() for task in tasks if task.done() and not task.cancelled()]
    assert failed == [None] * len(failed), "an exchange's own task never fails"


async def echo(exchange: Exchange) -> object:
    """Answer with the request's own id and params."""
    return {"id": exchange.request.id, **exchange.request.params}


def gate() -> tuple[Callable[[Exchange], Awaitable[object]], asyncio.Event]:
    """Return a script that waits, and the event it waits for."""
    event = asyncio.Event()

    async def wait(exchange: Exchange) -> object:
        await event.wait()
        return {"id": exchange.request.id}

    return wait, event


async def settle_down(turns: int = 20) -> None:
    """Let everything that is ready run."""
    for _ in range(turns):
        await asyncio.sleep(0)
