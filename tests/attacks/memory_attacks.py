"""Ways to make a server keep something, one function each. They come from one address, or from many; a well-behaved client has its own.

Each attack sends as fast as it can, keeps its connections open, and does not care about refusals. `scale` is the part of the whole
attack that is sent: the tests run a part of each.
"""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import cycle, repeat
from typing import Any, Final

from limpet.protocol.idempotency import KEY
from tests.messages import BOTH, LATEST, initialize, metadata, modern_headers, request

ATTACKER: Final = "127.0.0.2"
OLDEST: Final = "2025-03-26"
_AT_ONCE: Final = 32
"""Connections that an attack opens at the same time: more would only wait in the kernel's queue."""
_HELD: Final = 12_000
"""Connections that an attacker holds: more than the server takes, and fewer than a process may have."""
_PATIENCE: Final = 60.0
"""Seconds after which an attacker gives up a request."""

Attack = Callable[["Target"], Awaitable[None]]
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Target:
    """The attacked server: its port, and the connections that attacks hold."""

    def __init__(self, port: int, scale: float = 1.0, *, tls: ssl.SSLContext | None = None) -> None:
        self.port = port
        self.tls = tls
        self.addresses: Iterator[str] = repeat(ATTACKER)
        self._scale = scale
        self._held: set[asyncio.StreamWriter] = set()

    def some(self, number: int) -> range:
        """Return the numbers of this part of an attack."""
        return range(max(1, int(number * self._scale)))

    async def connect(self, *, secured: bool = True) -> Stream:
        """Open a connection that stays open; if it is not secured, without TLS."""
        if len(self._held) >= _HELD:
            self._held = {one for one in self._held if not one.transport.is_closing()}
            if len(self._held) >= _HELD:
                raise OSError("the attacker has no more connections")
        tls = self.tls if secured else None
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, local_addr=(next(self.addresses), 0), ssl=tls, limit=2**20
        )
        self._held.add(writer)
        return reader, writer

    async def send(self, data: bytes) -> Stream:
        """Send bytes on a new connection, and wait until they have left."""
        reader, writer = await self.connect()
        writer.write(data)
        await writer.drain()
        return reader, writer

    async def ask(self, data: bytes) -> None:
        """Send bytes on a new connection, and cut it when the head of the answer is there."""
        reader, writer = await self.send(data)
        try:
            await reader.readuntil(b"\r\n\r\n")
        finally:
            self._held.discard(writer)
            writer.transport.abort()

    async def session(self, capabilities: Any = None, version: str = LATEST) -> str:
        """Open a session; return its id, or nothing if it was refused."""
        params = initialize(version, capabilities=capabilities or {"elicitation": {"form": {}}})
        try:
            reader, writer = await self.send(post(request(0, "initialize", params)))
            head = await reader.readuntil(b"\r\n\r\n")
        except (OSError, EOFError):
            return ""
        # A session needs no connection, and this process has a limit of them.
        self._held.discard(writer)
        writer.transport.abort()
        for line in head.decode("latin-1").split("\r\n"):
            if line.lower().startswith("mcp-session-id:"):
                return line.partition(":")[2].strip()
        return ""

    async def many(self, number: int, one: Callable[[int], Awaitable[object]]) -> None:
        """Do something often, several at the same time. A refused or closed connection is no error."""
        numbers = iter(self.some(number))

        async def some() -> None:
            for at in numbers:
                with contextlib.suppress(OSError, EOFError, asyncio.LimitOverrunError, TimeoutError):
                    async with asyncio.timeout(_PATIENCE):
                        await one(at)

        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(some())

    @contextlib.asynccontextmanager
    async def closing(self) -> AsyncIterator[None]:
        """Close the connections at the end."""
        try:
            yield
        finally:
            for writer in self._held:
                writer.transport.abort()
            await asyncio.gather(*(writer.wait_closed() for writer in self._held), return_exceptions=True)


def post(message: Any, session: str = "", headers: dict[str, str] | None = None) -> bytes:
    """Return the bytes of a POST."""
    body = message if isinstance(message, bytes) else json.dumps(message, separators=(",", ":")).encode()
    lines = {"Host": "127.0.0.1", "Accept": BOTH, "Content-Type": "application/json", **(headers or {})}
    if session:
        lines = {"Mcp-Session-Id": session, "Mcp-Protocol-Version": LATEST, **lines}
    lines["Content-Length"] = str(len(body))
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body


def call(number: int, tool: str, /, **arguments: Any) -> Any:
    """Return a call of a tool that wants progress."""
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": number}}
    return request(number, "tools/call", params)


def modern(number: int, method: str, params: Any, key: str = "", **meta: Any) -> bytes:
    """Return the bytes of a request of 2026-07-28; with an idempotency key if one is given, and other metadata."""
    capabilities: Any = {"elicitation": {"form": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
    params = {
        **params,
        "_meta": {**metadata(capabilities=capabilities), **({KEY: key} if key else {}), **meta},
    }
    return post(request(number, method, params), headers=modern_headers(method, params))


def costly(size: int) -> list[Any]:
    """Return a value of about so many bytes of JSON that costs much memory when it is decoded."""
    return [{"a": {}} for _ in range(size // 9)]


# Before a request is complete


async def unfinished_heads(target: Target) -> None:
    """Heads of 16 KiB that never end, in many small headers."""
    head = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"a:\r\n" * 3_900
    await target.many(4_000, lambda _: target.send(head))


async def remembered_heads(target: Target) -> None:
    """Four heads with many small headers on each connection, which is then idle."""

    async def idle(_: int) -> None:
        reader, writer = await target.connect()
        for kind in range(4):
            lines = b"".join(b"%x:%d\r\n" % (at, kind) for at in range(240 + kind))
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + lines + b"\r\n")
            await reader.readuntil(b"\r\n\r\n")

    await target.many(4_000, idle)


async def unfinished_bodies(target: Target) -> None:
    """Bodies that never end: small ones on many connections, large ones on some."""
    small = post(b'{"data":"' + b"x" * 16_000)[:-8]
    large = post(b'{"data":"' + b"x" * 4_000_000)[:-8]
    await target.many(4_000, lambda number: target.send(large if number % 20 == 0 else small))


async def pipelined_bodies(target: Target) -> None:
    """Requests behind a stream that does not end."""
    session = await target.session()
    get = f"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {BOTH}\r\nMcp-Session-Id: {session}\r\n\r\n".encode()
    behind = post(b"x" * 60_000) * 12

    async def one(_at: int) -> None:
        _, writer = await target.send(get)
        writer.write(behind)

    await target.many(1_000, one)


async def unfinished_handshakes(target: Target) -> None:
    """Handshakes of TLS that their client does not complete. Without TLS it is an unfinished head."""
    offered = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(
            ssl.MemoryBIO(), offered, server_hostname="localhost"
        ).do_handshake()
    hello = offered.read()

    async def one(_at: int) -> None:
        _, writer = await target.connect(secured=False)
        writer.write(hello)
        await writer.drain()

    await target.many(4_000, one)


# Messages


async def small_messages(target: Target) -> None:
    """Calls of less than 16 KiB that run for long; their connections end."""
    sessions = [await target.session() for _ in target.some(4)]
    data = costly(15_000)

    async def one(number: int) -> None:
        _, writer = await target.send(post(call(number, "hold", data=data), sessions[number % len(sessions)]))
        if number % 2:
            writer.write_eof()

    await target.many(4_000, one)


async def small_modern_messages(target: Target) -> None:
    """The same without sessions."""
    data = costly(15_000)
    params = {"name": "hold", "arguments": {"data": data}}
    await target.many(4_000, lambda number: target.send(modern(number, "tools/call", params)))


async def large_messages(target: Target) -> None:
    """Calls of 1 MiB that run for long."""
    session = await target.session()
    body = call(1, "hold", data=costly(1_000_000 // 4))
    await target.many(200, lambda number: target.send(post({**body, "id": number}, session)))


async def asking_calls(target: Target) -> None:
    """Calls that ask their client and get no answer: parked in 2026-07-28, waiting in a session."""
    session = await target.session()
    data = costly(12_000)

    async def one(number: int) -> None:
        if number % 2:
            params = {"name": "ask", "arguments": {"data": data}}
            await target.send(modern(number, "tools/call", params))
        else:
            await target.send(post(call(number, "ask", data=data), session))

    await target.many(3_000, one)


async def listeners(target: Target) -> None:
    """Listeners with many subscriptions."""
    uris = [f"note://{number:060}" for number in range(150)]
    params = {"notifications": {"resourceSubscriptions": uris}}
    await target.many(3_000, lambda number: target.send(modern(number, "subscriptions/listen", params)))


# Sessions


async def client_data(target: Target) -> None:
    """Sessions whose clients describe themselves with 16 KiB."""
    own: Any = {str(at): {"a": {}} for at in range(900)}
    await target.many(3_000, lambda at: target.session({"experimental": {f"own {at}": {}, **own}}))


async def idle_sessions(target: Target) -> None:
    """Many small sessions."""
    await target.many(20_000, lambda _: target.session())


async def subscriptions(target: Target) -> None:
    """Sessions with many subscriptions."""

    async def one(_: int) -> None:
        session = await target.session()
        reader, writer = await target.connect()
        for number in range(100):
            uri = f"note://{number:02000}"
            writer.write(post(request(number, "resources/subscribe", {"uri": uri}), session))
        await writer.drain()
        await reader.readuntil(b"\r\n\r\n")

    await target.many(400, one)


async def tasks(target: Target) -> None:
    """Tasks with long arguments and results that no client fetches."""
    params = {"name": "job", "arguments": {"size": 100_000, "data": costly(8_000)}}
    await target.many(4_000, lambda number: target.send(modern(number, "tools/call", params)))


async def state(target: Target) -> None:
    """Sessions whose state is as large as one may be."""

    async def one(number: int) -> None:
        session = await target.session()
        reader, writer = await target.send(post(call(number, "remember", size=200_000), session))
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    await target.many(2_000, one)


async def many_addresses(target: Target) -> None:
    """Small messages of many addresses at the same time, each with a share of its own."""
    addresses, target.addresses = (
        target.addresses,
        cycle(f"127.0.{at // 200}.{at % 200 + 3}" for at in range(1_000)),
    )
    try:
        await small_modern_messages(target)
        await idle_sessions(target)
    finally:
        target.addresses = addresses


# Answers


async def unsent_answers(target: Target) -> None:
    """Large answers that their client does not read."""
    session = await target.session()
    size = 8 * 2**20
    await target.many(200, lambda number: target.send(post(call(number, "large", size=size), session)))


async def awaited_answers(target: Target) -> None:
    """The same, and each client waits until its answer begins: one that comes from a server behind was read then."""
    session = await target.session()

    async def one(number: int) -> None:
        reader, _ = await target.send(post(call(number, "large", size=14 * 2**20), session))
        await reader.readuntil(b'"jsonrpc"')

    await target.many(200, one)


async def batched_answers(target: Target) -> None:
    """Batches (2025-03-26) of calls with large answers, which their client does not read."""
    sessions = [await target.session(version=OLDEST) for _ in target.some(4)]

    async def one(number: int) -> None:
        batch = [call(number * 100 + at, "large", size=2**20) for at in range(100)]
        await target.send(post(batch, sessions[number % len(sessions)], {"Mcp-Protocol-Version": OLDEST}))

    await target.many(100, one)


async def cut_streams(target: Target) -> None:
    """Streams with a large last event, whose connections are cut: the event is kept."""
    sessions = [await target.session() for _ in target.some(10)]

    async def one(number: int) -> None:
        session = sessions[number % len(sessions)]
        reader, writer = await target.send(post(call(number, "chatty", size=900_000), session))
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    await target.many(1_000, one)


async def cut_answers(target: Target) -> None:
    """Small answers that are kept for a repeat, because their connections are cut."""
    sessions = [await target.session() for _ in target.some(30)]

    async def one(number: int) -> None:
        session = sessions[number % len(sessions)]
        reader, writer = await target.send(post(call(number, "chatty", size=100), session))
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    await target.many(20_000, one)


async def keyed_answers(target: Target) -> None:
    """Answers that are kept for a repeat, because their requests have idempotency keys."""

    async def one(number: int) -> None:
        params = {"name": "large", "arguments": {"size": 100_000 if number % 10 == 0 else 100}}
        reader, writer = await target.send(modern(number, "tools/call", params, f"{number:064}"))
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    await target.many(20_000, one)


ATTACKS: Final[tuple[Attack, ...]] = (
    unfinished_heads, remembered_heads, unfinished_bodies, pipelined_bodies, small_messages, small_modern_messages,
    large_messages, asking_calls, listeners, client_data, idle_sessions, subscriptions, tasks, state, unsent_answers,
    batched_answers, cut_streams, cut_answers, keyed_answers, many_addresses,
)  # fmt: skip
