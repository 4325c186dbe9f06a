"""An HTTP client without HTTP: ASGI scopes in, ASGI messages out, on the loop's own clock.

A `Call` is one request under way: its status, headers and bytes as they come, and the ways a
connection can fail: cut, stopped, closing underneath.
"""

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Final, ParamSpec

from holdfast.auth import Verifier
from holdfast.config import HttpSettings, Settings
from holdfast.engine.engine import Engine
from holdfast.engine.exchange import Exchange
from holdfast.fronts.http.connection import EXTENSION
from holdfast.fronts.http.front import Application, HttpFront
from holdfast.stores.base import Store
from holdfast.stores.memory import MemoryStore
from holdfast.testing import NotingObserver, ScriptedBack, SeededRandom
from tests.support import AsyncTest, virtual_test

P = ParamSpec("P")
Json = dict[str, Any]
LATEST: Final = "2025-11-25"
MIDDLE: Final = "2025-06-18"
OLDEST: Final = "2025-03-26"
REVISIONS: Final = (LATEST, MIDDLE, OLDEST)
BOTH: Final = "application/json, text/event-stream"
PATIENCE: Final = 10_000.0
"""Virtual seconds after which a test hangs: the sweeper always has a timer, so nothing is ever stuck."""


def front_test(test: AsyncTest[P]) -> Callable[P, None]:
    """Run a test in virtual time; one that hangs fails."""

    @functools.wraps(test)
    async def bounded(*args: P.args, **kwargs: P.kwargs) -> None:
        async with asyncio.timeout(PATIENCE):
            await test(*args, **kwargs)

    return virtual_test(bounded)


class LoopClock:
    """The loop's time as the Clock port: in a virtual test, virtual. Its date is a million seconds on."""

    def now(self) -> float:
        """Return the loop's time."""
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        """Return the loop's time as a date."""
        return self.now() + 1_000_000.0


class FakeTransport:
    """The connection underneath, where `holdfast serve` tells of it."""

    def __init__(self) -> None:
        self.closing = False
        self.aborted = False
        self.taken: bool | None = None

    def is_closing(self) -> bool:
        """Tell whether it is closing."""
        return self.closing

    def abort(self) -> None:
        """Take note."""
        self.aborted = True

    def is_taken(self) -> bool | None:
        """Tell what the test says of it."""
        return self.taken

    def take_body(self) -> bytes | None:
        """Leave it to ASGI."""
        return None

    def answer_json(self, _body: bytes) -> bool:
        """Leave it to ASGI."""
        return False

    def answer(self, _status: int, _headers: list[tuple[bytes, bytes]], _body: bytes) -> bool:
        """Leave it to ASGI."""
        return False


class Event:
    """One event of a stream, or a comment."""

    def __init__(self, block: str) -> None:
        fields: dict[str, str] = {}
        self.comment = ""
        for line in block.split("\n"):
            name, _, value = line.partition(":")
            if name:
                fields[name] = value.removeprefix(" ")
            else:
                self.comment = value.strip()
        self.id = fields.get("id", "")
        self.retry = fields.get("retry", "")
        self.data = fields.get("data", "")

    @property
    def is_mark(self) -> bool:
        """True for the event that gives clients of older revisions a position, and says nothing else."""
        return bool(self.id) and f'"requestId":"{self.id.partition(".")[0]}"' in self.data

    @property
    def message(self) -> Json:
        """The event's message."""
        decoded: Json = json.loads(self.data)
        return decoded


class Call:
    """One request and what has come back so far."""

    def __init__(self, app: Application, scope: Json, parts: Iterable[bytes | float]) -> None:
        self.status = 0
        self.raw_headers: list[tuple[bytes, bytes]] = []
        self.chunks: list[bytes] = []
        self.writes = 0
        self.complete = False
        self.transport = FakeTransport()
        self.fails = False
        """Raise OSError from every further write."""
        self.stops_after = 0
        """Take nothing more after so many messages on the stream."""
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._gone = asyncio.Event()
        self._news = asyncio.Event()
        self._parts = self._incoming(list(parts))
        scope["extensions"] = {EXTENSION: self.transport}
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _incoming(self, parts: list[bytes | float]) -> AsyncIterator[Json]:
        """Yield the body's parts; a number is a pause of so many seconds, None as the last part a body cut short."""
        last = max((index for index, part in enumerate(parts) if isinstance(part, bytes)), default=-1)
        for index, part in enumerate(parts):
            if isinstance(part, bytes):
                yield {"type": "http.request", "body": part, "more_body": index < last}
            else:
                await asyncio.sleep(part)
        if last < 0:
            yield {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        yield {"type": "http.disconnect"}

    async def _receive(self) -> MutableMapping[str, Any]:
        return await anext(self._parts)

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        self.writes += 1
        if self.fails:
            raise OSError("the connection is gone")
        await self._flowing.wait()
        if message["type"] == "http.response.start":
            assert not self.status, "a response was begun twice"
            self.status = message["status"]
            self.raw_headers = list(message["headers"])
        else:
            assert not self.complete, "something was written after the response's end"
            self.chunks.append(message.get("body", b""))
            self.complete = not message.get("more_body", False)
            if self.stops_after and len(self.messages) >= self.stops_after:
                self.stop_reading()
        self._news.set()

    # What has come

    @property
    def headers(self) -> dict[str, str]:
        """The response's headers."""
        return {name.decode(): value.decode() for name, value in self.raw_headers}

    @property
    def body(self) -> bytes:
        """All bytes so far."""
        return b"".join(self.chunks)

    @property
    def json(self) -> Json:
        """The body as one JSON message."""
        assert self.headers["content-type"] == "application/json"
        decoded: Json = json.loads(self.body)
        return decoded

    @property
    def is_stream(self) -> bool:
        """Tell whether it is an event stream."""
        return self.headers.get("content-type") == "text/event-stream"

    @property
    def events(self) -> list[Event]:
        """What came on the stream, comments included."""
        return [Event(block) for block in self.body.decode().split("\n\n") if block]

    @property
    def comments(self) -> list[str]:
        """The comments among them."""
        return [event.comment for event in self.events if event.comment]

    @property
    def messages(self) -> list[Json]:
        """The messages among them, without the mark of an opening."""
        return [event.message for event in self.events if event.data and not event.is_mark]

    @property
    def ids(self) -> list[str]:
        """The ids of events that had one."""
        return [event.id for event in self.events if event.id]

    # Waiting

    async def done(self) -> "Call":
        """Wait until the application has returned."""
        await self.task
        return self

    async def until(self, count: int) -> "Call":
        """Wait until so many messages have come on the stream."""
        while len(self.messages if self.is_stream else []) < count:
            assert not self.task.done(), f"the response ended early: {self.status} {self.body!r}"
            self._news.clear()
            await self._news.wait()
        return self

    async def begun(self) -> "Call":
        """Wait for the first bytes of the body."""
        while not self.chunks:
            self._news.clear()
            await self._news.wait()
        return self

    # Failing

    async def cut(self) -> "Call":
        """Drop the connection and wait until the application has noticed."""
        self._gone.set()
        await self.task
        return self

    def stop_reading(self) -> None:
        """Take nothing from now on."""
        self._flowing.clear()

    def read_on(self) -> None:
        """Take what comes again."""
        self._flowing.set()


class Peer:
    """A client of one application; `session` is sent along once it is known."""

    def __init__(self, app: Application, *, token: str = "", client: str = "127.0.0.1") -> None:
        self.app = app
        self.token = token
        self.client: tuple[str, int] | None = (client, 50_000)
        self.session = ""
        self.version = ""

    def headers(
        self, method: str, changed: Mapping[str, str | None] | None = None
    ) -> list[tuple[bytes, bytes]]:
        """Return what a well-behaved client sends; `changed` replaces headers, None leaves one out."""
        sent: dict[str, str | None] = {"host": "localhost:8000", "accept": BOTH}
        if method == "POST":
            sent["content-type"] = "application/json"
        if self.token:
            sent["authorization"] = f"Bearer {self.token}"
        if self.session:
            sent["mcp-session-id"] = self.session
        if self.version:
            sent["mcp-protocol-version"] = self.version
        sent.update(changed or {})
        return [(name.encode(), value.encode("latin-1")) for name, value in sent.items() if value is not None]

    def send(
        self,
        method: str,
        *parts: bytes | float,
        headers: Mapping[str, str | None] | None = None,
        path: str = "/mcp",
        raw: list[tuple[bytes, bytes]] | None = None,
        **scope: Any,
    ) -> Call:
        """Begin a request."""
        full = {
            "type": "http",
            "method": method,
            "path": path,
            "headers": [*self.headers(method, headers), *(raw or [])],
            "client": self.client,
            **scope,
        }
        return Call(self.app, full, parts)

    def post(self, message: object, **options: Any) -> Call:
        """Begin a POST of one message."""
        return self.send("POST", json.dumps(message, separators=(",", ":")).encode(), **options)

    def call(self, request_id: int | str, tool: str = "quick", **options: Any) -> Call:
        """Begin a tools/call."""
        return self.post(request(request_id, "tools/call", {"name": tool}), **options)

    def get(self, last_event_id: str = "", **options: Any) -> Call:
        """Begin a GET."""
        if last_event_id:
            options["headers"] = {"last-event-id": last_event_id, **(options.get("headers") or {})}
        return self.send("GET", **options)

    async def delete(self, **options: Any) -> Call:
        """DELETE the session."""
        return await self.send("DELETE", **options).done()

    async def initialize(self, version: str = LATEST, **options: Any) -> Call:
        """Open a session and keep its id."""
        params = {
            "protocolVersion": version,
            "clientInfo": {"name": "peer", "version": "0"},
            "capabilities": {},
        }
        opened = await self.post(request("init", "initialize", params), **options).done()
        self.session = opened.headers.get("mcp-session-id", "")
        self.version = version
        return opened


def request(request_id: int | str, method: str, params: Json | None = None) -> Json:
    """Return a request."""
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}


def notification(method: str, params: Json | None = None) -> Json:
    """Return a notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params or {}}


class Bench:
    """An engine on the loop's clock behind one front, with a back whose tools the test holds.

    `quick` answers at once; `held` waits for `release` and counts how often it ran; `ticks` says
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

    async def _held(self, exchange: Exchange) -> object:
        await self.release.wait()
        return {"tool": "held", "id": exchange.request.id}

    async def _ticks(self, exchange: Exchange) -> object:
        for number in (1, 2):
            await exchange.notify("notifications/progress", {"progressToken": 0, "progress": number})
        await self.release.wait()
        return {"tool": "ticks", "id": exchange.request.id}

    async def _talk(self, exchange: Exchange) -> object:
        """Say one thing every second for ever."""
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

    def told(self, event: str) -> int:
        """Return how often the observer was told of something."""
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
