"""The load generator's own HTTP: one connection, one request at a time, and as much of MCP as the workloads need.

It is independent of Limpet, so that a fault of ours cannot confirm itself.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final, Self

import msgspec

VERSION: Final = "2025-11-25"
SESSIONLESS: Final = "2026-07-28"
_PREFIX: Final = "io.modelcontextprotocol/"
CLIENT: Final = {"name": "bench", "version": "1"}
CAPABILITIES: Final[dict[str, Any]] = {"elicitation": {}}
_LIMIT: Final = 1 << 22
_OPENERS: Final = 8


class WrongAnswer(Exception):
    """A server gave an answer that does not fit its request. The figure of such a run would mean nothing."""


def expect(condition: object, answer: object) -> None:
    """Raise WrongAnswer if the condition is false."""
    if not condition:
        raise WrongAnswer(repr(answer)[:500])


def request(number: int | str, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON-RPC request."""
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def tool_call(number: int | str, tool: str, arguments: dict[str, Any], **params: Any) -> dict[str, Any]:
    """Return a call of a tool that wants progress."""
    meta = {"progressToken": number}
    return request(number, "tools/call", {"name": tool, "arguments": arguments, "_meta": meta, **params})


def text_of(message: Any, number: int | str) -> str:
    """Return the text of a tool's result; refuse a message that is not the result of this call."""
    try:
        expect(message["id"] == number and not message["result"].get("isError"), message)
        return str(message["result"]["content"][0]["text"])
    except (KeyError, IndexError, TypeError):
        raise WrongAnswer(repr(message)[:500]) from None


class Connection:
    """One connection to a server on this machine."""

    def __init__(self, port: int, session: str | None = None) -> None:
        self.port, self.session = port, session
        self.status, self.headers = 0, dict[str, str]()
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port, limit=_LIMIT)
        return self

    async def __aexit__(self, *_exception: object) -> None:
        self.cut()

    def cut(self) -> None:
        """End the connection without any ceremony."""
        if self._writer is not None:
            self._writer.transport.abort()

    async def send(self, message: dict[str, Any]) -> None:
        """Post a message and read the head of the response."""
        extra = ""
        if self.session is None and message.get("method") != "initialize":
            extra = _sessionless(message)
        await self._exchange("POST", extra, msgspec.json.encode(message))

    async def get(self, last_event_id: str = "") -> None:
        """Open a stream of the session, from a position if there is one, and read the head of the response."""
        await self._exchange("GET", f"Last-Event-ID: {last_event_id}\r\n" if last_event_id else "", b"")

    async def _exchange(self, method: str, extra: str, body: bytes) -> None:
        if self.session is not None:
            extra += f"Mcp-Session-Id: {self.session}\r\nMCP-Protocol-Version: {VERSION}\r\n"
        if body:
            extra += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        accept = "application/json, text/event-stream" if body else "text/event-stream"
        head = f"{method} /mcp HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAccept: {accept}\r\n{extra}\r\n"
        assert self._writer is not None
        self._writer.write(head.encode() + body)
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = {}
        for line in lines[1:-2]:
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()

    async def _pieces(self) -> AsyncIterator[bytes]:
        """Yield the body of the response as it comes."""
        if "content-length" in self.headers:
            yield await self._reader.readexactly(int(self.headers["content-length"]))
            return
        if self.headers.get("transfer-encoding") != "chunked":
            return
        while size := int(await self._reader.readline(), 16):
            yield (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readline()

    async def events(self) -> AsyncIterator[tuple[str, bytes]]:
        """Yield id and data of the events of the response, as they come; an event without data is left out."""
        rest = b""
        async for piece in self._pieces():
            *whole, rest = (rest + piece.replace(b"\r\n", b"\n")).split(b"\n\n")
            for event in whole:
                name, data = "", b""
                for line in event.split(b"\n"):
                    if line.startswith(b"data:"):
                        data = line[5:].strip()
                    elif line.startswith(b"id:"):
                        name = line[3:].strip().decode()
                if data or name:
                    yield name, data

    async def messages(self) -> AsyncIterator[Any]:
        """Yield the messages of the response, JSON or SSE."""
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            async for _name, data in self.events():
                if data:
                    yield msgspec.json.decode(data)
        elif body := b"".join([piece async for piece in self._pieces()]):
            yield msgspec.json.decode(body)

    async def call(self, message: dict[str, Any]) -> list[Any]:
        """Post a message and return all messages of the response."""
        await self.send(message)
        found = [answer async for answer in self.messages()]
        expect(self.status in {200, 202}, (self.status, found))
        return found

    async def echo(self, number: int) -> None:
        """Call the tool echo and check the answer."""
        found = await self.call(tool_call(number, "echo", {"text": f"hello {number}"}))
        expect(text_of(found[-1], number) == f"hello {number}", found)

    async def initialize(self) -> str:
        """Open a session, and use it from now on."""
        self.session = None
        params = {"protocolVersion": VERSION, "capabilities": CAPABILITIES, "clientInfo": CLIENT}
        found = await self.call(request(1, "initialize", params))
        expect(found and found[-1].get("result", {}).get("protocolVersion") == VERSION, found)
        self.session = self.headers["mcp-session-id"]
        await self.call({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self.session


def _sessionless(message: dict[str, Any]) -> str:
    """Return the headers of a request of 2026-07-28, and complete its parameters."""
    params = message.setdefault("params", {})
    params["_meta"] = {
        **params.get("_meta", {}),
        f"{_PREFIX}protocolVersion": SESSIONLESS,
        f"{_PREFIX}clientInfo": CLIENT,
        f"{_PREFIX}clientCapabilities": CAPABILITIES,
    }
    name = f"Mcp-Name: {params['name']}\r\n" if "name" in params else ""
    return f"MCP-Protocol-Version: {SESSIONLESS}\r\nMcp-Method: {message['method']}\r\n{name}"


async def open_sessions(port: int, count: int) -> list[str]:
    """Open sessions over a few connections and return their ids."""
    opened: list[str] = []
    numbers = iter(range(count))

    async def opener() -> None:
        async with Connection(port) as connection:
            opened.extend([await connection.initialize() for _ in numbers])

    await asyncio.gather(*(opener() for _ in range(min(count, _OPENERS))))
    expect(len(set(opened)) == count, f"{count} sessions were opened, {len(set(opened))} ids are different")
    return opened
