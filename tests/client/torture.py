"""A server that does everything to a client that networks and servers do, by a seed, and keeps exact books.

It speaks both eras on real sockets. Each call carries a token; the books say how often each token was executed.
"""

import asyncio
import contextlib
import json
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

Mischief = Callable[["Exchange"], Awaitable[None]]
MODERN: Final = "2026-07-28"
LEGACY: Final = "2025-11-25"
TOOLS: Final = [
    {"name": "echo", "inputSchema": {"type": "object"}},
    {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
]


class Sent(NamedTuple):
    """One HTTP request: its headers in lower case, and its message; empty if there is none."""

    verb: str
    headers: dict[str, str]
    message: dict[str, Any]


class Hangup(Exception):
    """The connection ends here."""


class Exchange:
    """One request and the connection it came by."""

    def __init__(self, server: "Torture", writer: asyncio.StreamWriter, headers: dict[str, str]) -> None:
        self.server = server
        self.writer = writer
        self.headers = headers
        self.message: dict[str, Any] = {}

    @property
    def answer(self) -> bytes:
        """The call's one right answer; executing it is noted in the books."""
        token = self.message["params"]["arguments"]["token"]
        self.server.executed[token] += 1
        result = {"content": [{"type": "text", "text": token}], "resultType": "complete"}
        return _bytes({"jsonrpc": "2.0", "id": self.message["id"], "result": result})

    async def send(self, status: int, body: bytes = b"", kind: str = "application/json", **more: str) -> None:
        head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n"
        head += "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in more.items())
        await self.write(head.encode() + b"\r\n" + body)

    async def stream(self) -> None:
        """Begin a stream of events that ends with its connection."""
        await self.write(b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


# The faults of a call


async def plain(exchange: Exchange) -> None:
    await exchange.send(200, exchange.answer)


async def streamed(exchange: Exchange) -> None:
    await exchange.stream()
    await exchange.write(b"data: " + exchange.answer + b"\n\n")
    raise Hangup


async def slow_bytes(exchange: Exchange) -> None:
    await exchange.stream()
    text = b": hello\r\n\r\nid: 1\r\ndata: " + exchange.answer + b"\r\n\r\n"
    for start in range(0, len(text), 7):
        await exchange.write(text[start : start + 7])
        await asyncio.sleep(0)
    raise Hangup


async def cut_before(exchange: Exchange) -> None:
    raise Hangup


async def cut_after(exchange: Exchange) -> None:
    _ = exchange.answer
    raise Hangup


async def cut_in_body(exchange: Exchange) -> None:
    await exchange.write(b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n")
    await exchange.write(exchange.answer)
    raise Hangup


async def cut_and_resume(exchange: Exchange) -> None:
    """A stream breaks after its first event; the answer waits for a resume with that event's id."""
    name = f"s{exchange.server.next_stream()}"
    exchange.server.kept[name] = exchange.answer
    await exchange.stream()
    await exchange.write(f"id: {name}\nretry: 3\ndata:\n\n".encode())
    raise Hangup


async def garbage(exchange: Exchange) -> None:
    await exchange.stream()
    await exchange.write(b"data: {not json\n\ndata: [1]\n\nnonsense\n\nevent: x\ndata: \xff\xfe\n\n")
    stranger = {"jsonrpc": "2.0", "id": 10**9, "result": {}}
    answer = exchange.answer
    for message in (_bytes(stranger), answer, answer):
        await exchange.write(b"data: " + message + b"\n\n")
    raise Hangup


async def garbage_body(exchange: Exchange) -> None:
    _ = exchange.answer
    await exchange.send(200, b"<html>it works</html>")


async def endless_line(exchange: Exchange) -> None:
    _ = exchange.answer
    await exchange.stream()
    with contextlib.suppress(ConnectionError):
        for _ in range(20):
            await exchange.write(b"x" * 8192)
    raise Hangup


async def half_open(exchange: Exchange) -> None:
    """Executed, and then nothing, forever."""
    _ = exchange.answer
    await exchange.server.over.wait()
    raise Hangup


async def silent_stream(exchange: Exchange) -> None:
    """A stream that could be resumed and says no more."""
    name = f"s{exchange.server.next_stream()}"
    exchange.server.kept[name] = exchange.answer
    await exchange.stream()
    await exchange.write(f"id: {name}\ndata:\n\n".encode())
    await exchange.server.over.wait()
    raise Hangup


async def busy(exchange: Exchange) -> None:
    status = exchange.server.rng.choice((429, 503))
    await exchange.send(status, b"later", retry_after="0", limpet_refused="not-executed")


async def reset_behind_a_balancer(exchange: Exchange) -> None:
    """The server may have executed the call when its connection broke; the balancer answers in its own words."""
    if exchange.server.rng.random() < 0.5:
        _ = exchange.answer
    status = exchange.server.rng.choice((429, 503))
    await exchange.send(status, b"upstream connect error or disconnect/reset before headers")


async def failed(exchange: Exchange) -> None:
    if exchange.server.rng.random() < 0.5:
        _ = exchange.answer
    await exchange.send(exchange.server.rng.choice((500, 502, 504)))


async def forgotten(exchange: Exchange) -> None:
    """The session is unknown all of a sudden."""
    exchange.server.sessions.discard(exchange.headers.get("mcp-session-id", ""))
    await exchange.send(404)


async def restarted(exchange: Exchange) -> None:
    """Every session and every connection is gone; kept answers too."""
    exchange.server.restart()
    raise Hangup


EVERY: Final[tuple[Mischief, ...]] = (
    plain,
    streamed,
    slow_bytes,
    cut_before,
    cut_after,
    cut_in_body,
    garbage,
    garbage_body,
    endless_line,
    half_open,
    busy,
    reset_behind_a_balancer,
    failed,
    restarted,
)
IN_SESSIONS: Final[tuple[Mischief, ...]] = (*EVERY, cut_and_resume, silent_stream, forgotten)


class Torture:
    """The server. `mischief` is the share of calls that it does not simply answer."""

    def __init__(self, seed: int, *, is_modern: bool, mischief: float = 0.6) -> None:
        self.rng = random.Random(seed)
        self.is_modern = is_modern
        self.mischief = mischief
        self.executed: Counter[str] = Counter()
        self.kept: dict[str, bytes] = {}
        self.sessions: set[str] = set()
        self.opened = 0
        self.script: deque[Mischief] = deque()
        """Faults for the next calls, in order; later calls get random ones."""
        self.probe: Mischief | None = None
        """The fault of server/discover; None: answer as the era does."""
        self.on_resume: Callable[[Exchange], None] | None = None
        """Called with each attempt to resume a stream."""
        self.token = ""
        """The bearer token that is wanted; empty: none."""
        self.heard: list[tuple[str, str]] = []
        """Session and method of every other request."""
        self.sent: list[Sent] = []
        """Every HTTP request, as it came."""
        self.tools: list[dict[str, Any]] = TOOLS
        self.listed: dict[str, dict[str, Any] | Callable[[dict[str, Any]], dict[str, Any]]] = {}
        """Results of other requests by method; by default they are empty."""
        self.version = LEGACY
        """The version that it answers to initialize."""
        self.over = asyncio.Event()
        self._streams = 0
        self._writers: set[asyncio.StreamWriter] = set()

    def next_stream(self) -> int:
        self._streams += 1
        return self._streams

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/mcp"

    async def aclose(self) -> None:
        self.over.set()
        self._server.close()
        self.restart()
        await self._server.wait_closed()

    def restart(self) -> None:
        self.sessions.clear()
        self.kept.clear()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while not self.over.is_set():
                await self._request(reader, writer)
        except (Hangup, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        exchange = Exchange(self, writer, headers)
        exchange.message = json.loads(body) if body else {}
        verb = head[0].split()[0]
        self.sent.append(Sent(verb, headers, exchange.message))
        match verb:
            case "POST":
                await self._post(exchange)
            case "GET":
                await self._resume(exchange)
            case _:
                await exchange.send(200)

    async def _post(self, exchange: Exchange) -> None:
        message, method = exchange.message, exchange.message.get("method")
        if self.token and exchange.headers.get("authorization") != f"Bearer {self.token}":
            await exchange.send(401, www_authenticate="Bearer")
        elif method == "server/discover":
            await self._discover(exchange)
        elif method == "initialize":
            await self._initialize(exchange)
        elif not self.is_modern and exchange.headers.get("mcp-session-id") not in self.sessions:
            await exchange.send(404)
        elif "id" not in message or "result" in message:
            await exchange.send(202)
        elif method == "tools/call":
            await self._call(exchange)
        else:
            self.heard.append((exchange.headers.get("mcp-session-id", ""), str(method)))
            result = self._result(str(method), message.get("params", {}))
            await exchange.send(200, _bytes({"jsonrpc": "2.0", "id": message["id"], "result": result}))

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "tools/list":
            return {"tools": self.tools, "ttlMs": 60_000}
        listed = self.listed.get(method, {})
        return listed(params) if callable(listed) else listed

    async def _call(self, exchange: Exchange) -> None:
        await asyncio.sleep(self.rng.choice((0, 0, 0.001, 0.003)))
        if self.script:
            await self.script.popleft()(exchange)
        elif self.rng.random() < self.mischief:
            await self.rng.choice(EVERY if self.is_modern else IN_SESSIONS)(exchange)
        else:
            await plain(exchange)

    async def _discover(self, exchange: Exchange) -> None:
        if self.probe is not None:
            await self.probe(exchange)
            return
        if not self.is_modern:
            await exchange.send(400, b"Bad Request: no session")
            return
        result = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}, "resultType": "complete"}
        await exchange.send(200, _bytes({"jsonrpc": "2.0", "id": exchange.message["id"], "result": result}))

    async def _initialize(self, exchange: Exchange) -> None:
        self.opened += 1
        session = f"session-{self.opened}"
        self.sessions.add(session)
        result = {
            "protocolVersion": self.version,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "torture", "version": "1"},
        }
        body = _bytes({"jsonrpc": "2.0", "id": exchange.message["id"], "result": result})
        await exchange.send(200, body, mcp_session_id=session)

    async def _resume(self, exchange: Exchange) -> None:
        if exchange.headers.get("mcp-session-id") not in self.sessions:
            await exchange.send(404)
            return
        name = exchange.headers.get("last-event-id")
        if name is not None and self.on_resume is not None:
            self.on_resume(exchange)
        if name is None:
            await exchange.send(405)
        elif self.rng.random() < 0.3:
            # Cut again: the client must come again.
            raise Hangup
        elif name not in self.kept:
            await exchange.send(400)
        else:
            await exchange.stream()
            await exchange.write(b"data: " + self.kept[name] + b"\n\n")
            raise Hangup


def _bytes(message: object) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()
