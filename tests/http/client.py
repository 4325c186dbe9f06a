"""A raw HTTP/1.1 and SSE client for everything that good clients do not do: cut at any byte, stop reading, send nonsense.

One connection carries one request at a time; nothing is pooled or retried unless a test does it.
"""

import asyncio
import functools
import itertools
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, ClassVar, ParamSpec, Self

from typing_extensions import override

from tests.messages import (
    BOTH,
    JSON_TYPE,
    LATEST,
    Event,
    Json,
    initialize,
    metadata,
    modern_headers,
    notification,
    parse_event,
    request,
)
from tests.support import async_test

P = ParamSpec("P")


def http_test(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a coroutine test in real time; afterwards cut the connections it has left open."""

    @functools.wraps(test)
    async def tidy(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            await test(*args, **kwargs)
        finally:
            await Connection.cut_all()

    return async_test(tidy)


class Cut(Exception):
    """The connection was cut by this test, or by the other side, before the response was complete."""


class Connection(asyncio.Protocol):
    """One TCP connection. `cut_at` drops it after so many received bytes."""

    _open: ClassVar[set["Connection"]] = set()

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._incoming = bytearray()
        """Received, not yet looked at."""
        self._buffer = bytearray()
        self._news = asyncio.Event()
        self._ended = False
        self.received = 0
        """Bytes looked at so far."""
        self.cut_at: int | None = None

    @classmethod
    async def open(cls, port: int, *, receive_buffer: int | None = None) -> Self:
        """Connect; with a small `receive_buffer` a reader that stops is felt soon by the other side."""
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_connect(sock, ("127.0.0.1", port))
        except BaseException:
            sock.close()
            raise
        _, connection = await loop.create_connection(cls, sock=sock)
        return connection

    @classmethod
    async def cut_all(cls) -> None:
        """Cut the connections that a test has left open."""
        for connection in list(cls._open):
            connection.cut()
        while cls._open:
            await asyncio.sleep(0)

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._open.add(self)

    @override
    def data_received(self, data: bytes) -> None:
        self._incoming += data
        self._news.set()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._open.discard(self)
        self._news.set()

    async def send(self, data: bytes) -> None:
        self._transport.write(data)

    def stop_reading(self) -> None:
        """Take no byte from now on."""
        self._transport.pause_reading()

    def go_on_reading(self) -> None:
        self._transport.resume_reading()

    def cut(self, *, reset: bool = False) -> None:
        """Drop the connection now: a plain end, or a reset as balancers do."""
        sock = self._transport.get_extra_info("socket")
        if reset and sock.fileno() >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    @property
    def is_ended(self) -> bool:
        """The other side, or this one, has ended it."""
        return self._ended

    async def more(self) -> bool:
        """Look at something more; False at the other side's end."""
        while not self._incoming and not self._ended:
            self._news.clear()
            await self._news.wait()
        size = (
            len(self._incoming)
            if self.cut_at is None
            else min(len(self._incoming), self.cut_at - self.received)
        )
        if self._incoming and size <= 0:
            self.cut()
            raise Cut(f"cut by the test after {self.received} bytes")
        self.received += size
        self._buffer += self._incoming[:size]
        del self._incoming[:size]
        return size > 0

    async def until(self, mark: bytes) -> bytes:
        """Return the bytes before `mark`."""
        while (at := self._buffer.find(mark)) < 0:
            if not await self.more():
                raise Cut(f"ended after {self.received} bytes")
        return self._taken(at, len(mark))

    async def exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            if not await self.more():
                raise Cut(f"ended after {self.received} bytes")
        return self._taken(size)

    async def at_most(self, size: int) -> bytes:
        """Return the bytes that have arrived, as soon as there are some."""
        if not self._buffer and not await self.more():
            raise Cut(f"ended after {self.received} bytes")
        return self._taken(min(size, len(self._buffer)))

    async def rest(self) -> bytes:
        """Return everything until the other side's end."""
        while await self.more():
            pass
        return self._taken(len(self._buffer))

    def _taken(self, size: int, skipped: int = 0) -> bytes:
        data = bytes(self._buffer[:size])
        del self._buffer[: size + skipped]
        return data

    async def request(
        self,
        method: str,
        headers: Mapping[str, str] | list[tuple[str, str]],
        body: bytes = b"",
        path: str = "/mcp",
    ) -> "Response":
        """Send one request and return its response, once its head is there."""
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
        names = {name.lower() for name, _ in pairs}
        if "host" not in names:
            pairs.insert(0, ("Host", "127.0.0.1"))
        if body and "content-length" not in names and "transfer-encoding" not in names:
            pairs.append(("Content-Length", str(len(body))))
        head = "".join(f"{name}: {value}\r\n" for name, value in pairs)
        await self.send(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)
        return await self.response()

    async def response(self) -> "Response":
        head = (await self.until(b"\r\n\r\n")).decode("latin-1")
        while head.split(" ", 2)[1].startswith("1"):
            # For information only: the final response follows.
            head = (await self.until(b"\r\n\r\n")).decode("latin-1")
        status, *lines = head.split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return Response(self, int(status.split()[1]), headers)


class Response:
    """A response whose body is read as it comes."""

    def __init__(self, connection: Connection, status: int, headers: dict[str, str]) -> None:
        self.connection = connection
        self.status = status
        self.headers = headers
        self.last_id = ""
        """The id of the newest event: a resume names it."""
        self._left = 0
        self._complete = False
        self._text = b""

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body part by part; a second reader continues where the first has stopped."""
        if self.headers.get("transfer-encoding") == "chunked":
            while not self._complete:
                if not self._left:
                    # An empty line ends the chunk before.
                    line = await self.connection.until(b"\r\n") or await self.connection.until(b"\r\n")
                    self._left = int(line, 16)
                    self._complete = not self._left
                while self._left:
                    part = await self.connection.at_most(self._left)
                    self._left -= len(part)
                    yield part
            await self.connection.until(b"\r\n")
        elif "content-length" in self.headers:
            yield await self.connection.exactly(int(self.headers["content-length"]))
        elif self.status not in {202, 204}:
            yield await self.connection.rest()

    async def body(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

    async def json(self) -> Json:
        return json.loads(await self.body())

    async def events(self, *, comments: bool = False) -> AsyncIterator[Event]:
        """Yield events as they come; priming events too, comments if wanted."""
        chunks = self.chunks()
        while True:
            while b"\n\n" in self._text:
                block, _, self._text = self._text.partition(b"\n\n")
                one = parse_event(block.decode())
                self.last_id = one.id or self.last_id
                if not one.comment or comments:
                    yield one
            try:
                self._text += await anext(chunks)
            except StopAsyncIteration:
                return

    async def messages(self) -> AsyncIterator[Json]:
        """Yield the stream's messages; or the one message of a JSON answer."""
        if not self.is_stream:
            yield await self.json()
            return
        async for event in self.events():
            if event.data:
                yield event.message

    async def answer(self) -> Json:
        """Return the last message: the answer to the request."""
        last = None
        async for message in self.messages():
            last = message
        return last


Answering = Callable[[Json], Awaitable[Json]]


class Client:
    """A client of one session: knows the headers, numbers its requests, takes a connection per request."""

    def __init__(self, port: int, *, token: str = "", version: str = LATEST, path: str = "/mcp") -> None:
        self.port = port
        self.token = token
        self.version = version
        self.path = path
        self.session_id = ""
        self.numbers = itertools.count(1)

    @classmethod
    async def opened(
        cls,
        port: int,
        *,
        token: str = "",
        version: str = LATEST,
        capabilities: Json = None,
        path: str = "/mcp",
        name: str = "raw",
    ) -> Self:
        """Return a client whose session is initialised."""
        self = cls(port, token=token, version=version, path=path)
        offered = capabilities or {"sampling": {}, "elicitation": {"form": {}}, "roots": {}}
        params = initialize(version, capabilities=offered, client=name)
        response = await self.post(request(0, "initialize", params))
        assert response.status == 200, (response.status, await response.body())
        self.session_id = response.headers.get("mcp-session-id", "")
        await response.body()
        response.connection.cut()
        await self.tell("notifications/initialized")
        return self

    def headers(self, accept: str = BOTH) -> dict[str, str]:
        headers = {"Accept": accept}
        if self.session_id:
            headers |= {"Mcp-Session-Id": self.session_id, "MCP-Protocol-Version": self.version}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers

    async def post(
        self, message: Json | bytes, *, on: Connection | None = None, cut_at: int | None = None
    ) -> Response:
        """POST one message, on a connection of its own unless one is given."""
        connection = on or await Connection.open(self.port)
        if cut_at is not None:
            connection.cut_at = connection.received + cut_at
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        headers = {**self.headers(), "Content-Type": JSON_TYPE}
        return await connection.request("POST", headers, body, self.path)

    async def get(
        self, last_event_id: str = "", *, on: Connection | None = None, cut_at: int | None = None
    ) -> Response:
        """Open the standalone stream, or resume the one an event id belongs to."""
        connection = on or await Connection.open(self.port)
        if cut_at is not None:
            connection.cut_at = connection.received + cut_at
        headers = self.headers("text/event-stream")
        if last_event_id:
            headers["Last-Event-ID"] = last_event_id
        return await connection.request("GET", headers, path=self.path)

    async def delete(self) -> int:
        connection = await Connection.open(self.port)
        status = (await connection.request("DELETE", self.headers(), path=self.path)).status
        connection.cut()
        return status

    async def tell(self, method: str, params: Json = None) -> int:
        """Send a notification; return the status."""
        return await self._sent(notification(method, params))

    async def reply(self, ask: Json, result: Json) -> int:
        """Answer an ask; return the status."""
        return await self._sent({"jsonrpc": "2.0", "id": ask["id"], "result": result})

    async def _sent(self, message: Json) -> int:
        response = await self.post(message)
        response.connection.cut()
        return response.status

    async def start(
        self,
        tool: str,
        *,
        id: Json = None,  # noqa: A002
        on: Connection | None = None,
        **args: Json,
    ) -> Response:
        """Begin a call and return its response once the head is there."""
        return await self.post(call(next(self.numbers) if id is None else id, tool, **args), on=on)

    async def call(self, tool: str, *, id: Json = None, **args: Json) -> Json:  # noqa: A002
        """Call a tool and return its result's value; an error is returned whole."""
        response = await self.start(tool, id=id, **args)
        answer = await response.answer()
        response.connection.cut()
        return value(answer)


async def sessionless(
    port: int,
    method: str,
    params: Json,
    *,
    id: Json = 1,  # noqa: A002
    token: str = "",
    capabilities: Json = None,
    client: str = "raw",
    on: Connection | None = None,
    receive_buffer: int | None = None,
) -> Response:
    """POST a request of 2026-07-28, on a connection of its own unless one is given."""
    connection = on or await Connection.open(port, receive_buffer=receive_buffer)
    headers = {"Accept": BOTH, "Content-Type": JSON_TYPE, **modern_headers(method, params)}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    meta = metadata(capabilities=capabilities, client=client)
    body = json.dumps(request(id, method, {"_meta": meta, **params})).encode()
    return await connection.request("POST", headers, body)


class Keeper:
    """Takes one call through any number of cuts: resumes after its last event id, repeats the POST while it has none."""

    def __init__(self, client: Client, message: Json, *, port: int | None = None) -> None:
        self.client = client
        self.body = json.dumps(message).encode()
        self.port = port
        """Where to connect, if not to the server itself."""
        self.last_id = ""
        self.ids: list[str] = []
        self.messages: list[Json] = []
        self.cuts = 0
        self.repeats = 0
        self._is_late = False

    async def run(
        self,
        next_cut: Callable[[], int | None] = lambda: None,
        delay: Callable[[], float] = lambda: 0.0,
    ) -> Json:
        """Return the answer; each connection is cut after `next_cut()` bytes."""
        while not (self.messages and "id" in self.messages[-1]):
            try:
                await self._connection(next_cut())
            except Cut:
                self.cuts += 1
            await asyncio.sleep(delay())
        return self.messages[-1]

    async def _connection(self, cut_at: int | None) -> None:
        connection = await Connection.open(self.port or self.client.port)
        try:
            if self.last_id:
                response = await self.client.get(self.last_id, on=connection, cut_at=cut_at)
            else:
                self.repeats += 1
                response = await self.client.post(self.body, on=connection, cut_at=cut_at)
            if response.status == 504 or (self._is_late and response.status == 400):
                # The balancer has cut a response that had not begun. A repeat may come before the server has seen the cut.
                self._is_late = True
                raise Cut
            assert response.status == 200, (response.status, await response.body(), self.last_id)
            if not response.is_stream:
                self.messages.append(await response.json())
                return
            async for event in response.events():
                self.last_id = event.id or self.last_id
                if event.data:
                    self.ids.append(event.id)
                    self.messages.append(event.message)
        finally:
            connection.cut()


async def run_all(
    keepers: list[Keeper], next_cut: Callable[[], int | None], delay: Callable[[], float]
) -> None:
    """Run calls side by side through the same weather."""
    await asyncio.gather(*(keeper.run(next_cut, delay) for keeper in keepers))


def call(id: Json, tool: str, **args: Json) -> Json:  # noqa: A002
    """Return a call that wants its progress, under a token no other call has."""
    meta = {"progressToken": f"of {id!r} {next(_tokens)}"}
    return request(id, "tools/call", {"name": tool, "arguments": args, "_meta": meta})


_tokens = itertools.count()


def text(answer: Json) -> str:
    """Return the text a tool answered with."""
    content: str = answer["result"]["content"][0]["text"]
    return content


def value(answer: Json) -> Json:
    """Return the value a tool returned; an error answer as it is."""
    return answer["result"]["structuredContent"]["result"] if "result" in answer else answer["error"]


async def answer_asks(client: Client, response: Response, answering: Answering) -> Json:
    """Read a call's stream, answer each ask in a task of its own, return the call's answer."""
    async with asyncio.TaskGroup() as tasks:

        async def one(ask: Json) -> None:
            assert await client.reply(ask, await answering(ask)) == 202

        async for message in response.messages():
            if "method" not in message:
                return message
            if "id" in message:
                tasks.create_task(one(message))
    raise Cut("the stream ended without an answer")
