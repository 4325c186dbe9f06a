"""An HTTP client without HTTP: ASGI scopes in, ASGI messages out, in virtual or real time.

A `Call` is one request: its status, headers and bytes as they arrive, and the ways in which a connection fails: cut,
not read, closing underneath. `Peer` is a client of one application. Clients with more to say are subclasses of it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

from typing_extensions import override

from limpet.fronts.http.asgi_host.asgi_channel import AsgiChannel, request_of
from limpet.fronts.http.decide.started_call import finish
from limpet.fronts.http.front import HttpFront
from tests.messages import (
    BOTH,
    JSON_TYPE,
    LATEST,
    Event,
    initialize,
    metadata,
    modern_headers,
    parse_event,
    request,
)
from tests.support import VirtualLoop

Json = dict[str, Any]
Application = Callable[[Any, Any, Any], Awaitable[None]]


class FakeTransport:
    """The connection underneath, where `limpet serve` tells of it."""

    def __init__(self) -> None:
        self.closing = False
        self.half_closed = False
        """The client has closed its side, and may still read."""
        self.aborted = False
        self.is_all_taken: bool | None = None
        self.taken_bytes = 0


class FakeChannel(AsgiChannel):
    """A channel that also knows its connection, as those of `limpet serve` do."""

    def __init__(self, transport: FakeTransport, scope: Json, receive: Any, send: Any) -> None:
        super().__init__(scope, receive, send)
        self._transport = transport

    @override
    def is_closing(self) -> bool:
        return self._transport.closing

    @override
    def may_be_gone(self) -> bool:
        return self._transport.half_closed or super().may_be_gone()

    @override
    def abort(self) -> None:
        self._transport.aborted = True

    @override
    def is_taken(self) -> bool | None:
        return self._transport.is_all_taken

    @override
    def taken(self) -> int | None:
        return self._transport.taken_bytes


class Call:
    """One request and its response so far."""

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
        self.task = asyncio.ensure_future(self._serve(app, scope))
        self.task.add_done_callback(lambda _: self._news.set())

    async def _serve(self, app: Application, scope: Json) -> None:
        """Call a front as `limpet serve` does, and any other application by ASGI."""
        if isinstance(app, HttpFront) and scope["type"] == "http":
            channel = FakeChannel(self.transport, scope, self._receive, self._send)
            await finish(app.serve(request_of(scope), channel))
        else:
            await app(scope, self._receive, self._send)

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

    # The response so far

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
        """The body as one JSON message. In real time an answer that takes long is the last message of a stream."""
        if self.is_stream and not isinstance(self.task.get_loop(), VirtualLoop):
            return self.messages[-1]
        assert self.headers["content-type"] == JSON_TYPE
        decoded: Json = json.loads(self.body)
        return decoded

    @property
    def is_stream(self) -> bool:
        """True if it is an event stream."""
        return self.headers.get("content-type") == "text/event-stream"

    @property
    def events(self) -> list[Event]:
        """The events of the stream so far, with comments."""
        return [parse_event(block) for block in self.body.decode().split("\n\n") if block]

    @property
    def comments(self) -> list[str]:
        """The comments among them."""
        return [one.comment for one in self.events if one.comment]

    @property
    def messages(self) -> list[Json]:
        """The messages among them, without the mark of an opening."""
        return [one.message for one in self.events if one.data and not one.is_mark]

    @property
    def received(self) -> list[Json]:
        """The messages of the response: those of its stream, or its JSON body."""
        return self.messages if self.is_stream else [self.json]

    @property
    def progress(self) -> list[Json]:
        """The progress of each message of the stream; `end` for a message that has none."""
        return [message.get("params", {}).get("progress", "end") for message in self.messages]

    @property
    def ids(self) -> list[str]:
        """The ids of events that had one."""
        return [one.id for one in self.events if one.id]

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

    async def arriving(self) -> AsyncIterator[Json]:
        """Yield the messages as they arrive: those of a stream, or the one of a JSON answer."""
        seen = 0
        while True:
            ended = self.task.done()
            whole = [self.json] if self.complete and self.body and not self.is_stream else []
            found = self.messages if self.is_stream else whole
            for message in found[seen:]:
                seen += 1
                yield message
            if ended:
                await self.task
                return
            self._news.clear()
            await self._news.wait()

    async def begun(self) -> "Call":
        """Wait for the first bytes of the body."""
        while not self.chunks:
            self._news.clear()
            await self._news.wait()
        return self

    # Failing

    def leave(self) -> None:
        """Drop the connection."""
        self._gone.set()

    async def cut(self) -> "Call":
        """Drop the connection and wait until the application has noticed."""
        self.leave()
        await self.task
        return self

    def stop_reading(self) -> None:
        """Take nothing from now on."""
        self._flowing.clear()

    def read_on(self) -> None:
        """Continue to take bytes."""
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
        """Return the headers of a well-behaved client; `changed` replaces headers, None leaves one out."""
        sent: dict[str, str | None] = {"host": "localhost:8000", "accept": BOTH}
        if method == "POST":
            sent["content-type"] = JSON_TYPE
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

    def sessionless(
        self,
        method: str,
        params: Json,
        *,
        id: Any = 1,  # noqa: A002 - the protocol's word
        meta: Any = None,
        **options: Any,
    ) -> Call:
        """Begin a POST of one request of 2026-07-28."""
        message = request(id, method, {"_meta": meta or metadata(), **params})
        headers = {**modern_headers(method, params), **options.pop("headers", {})}
        return self.post(message, headers=headers, **options)

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
        opened = await self.post(request("init", "initialize", initialize(version)), **options).done()
        self.session = opened.headers.get("mcp-session-id", "")
        self.version = version
        return opened
