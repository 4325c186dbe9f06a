"""A TCP proxy that cuts, between a client and the server.

It remembers each HTTP request with the bytes that answered it, and breaks the connection when a
chosen text comes by, or when a response has lasted too long.
"""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from typing import Any, Final

from msgspec import Struct

from tests.support import BOUND

CHUNK: Final = 65_536
Writer = asyncio.StreamWriter


class Cut(Struct):
    """Break the connection, once, when this text comes from the server."""

    text: bytes
    loses: bool
    """Whether the text is lost with the connection, which is then reset; else it arrives before an orderly end."""
    done: bool = False

    def place(self, chunk: bytes) -> int:
        """Return where to cut: before the event with the text if it is lost, else after it. Busy servers send several at once."""
        at = chunk.index(self.text)
        if self.loses:
            return chunk.rfind(b"\n\n", 0, at) + 2 if b"\n\n" in chunk[:at] else 0
        end = chunk.find(b"\n\n", at)
        return len(chunk) if end < 0 else end + 2


class Request(Struct):
    """One request, and its response."""

    method: str
    headers: dict[str, str]
    body: bytearray
    answer: bytearray
    cut: bool = False
    """Whether its response lasted too long."""

    @property
    def resumes(self) -> str:
        """The Last-Event-ID, or an empty text."""
        return self.headers.get("last-event-id", "")

    @property
    def is_answered(self) -> bool:
        """Whether the whole answer has come by."""
        head, _, body = self.answer.lower().partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        return len(body) >= int(length[1]) if length else body.endswith(b"0\r\n\r\n")

    @property
    def rpc(self) -> dict[str, Any]:
        """The JSON-RPC message it carried."""
        message: dict[str, Any] = json.loads(self.body) if self.body else {}
        return message


class Proxy:
    """Forwards to one port, counting and cutting."""

    def __init__(self, target: int, cuts: list[Cut], lasting: float | None) -> None:
        self.requests: list[Request] = []
        self.port = 0
        self._target = target
        self._cuts = cuts
        self._lasting = lasting
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The endpoint behind it."""
        return f"http://127.0.0.1:{self.port}/mcp"

    def accept(self, client: asyncio.StreamReader, to_client: Writer) -> None:
        """Carry a new connection in a task of its own."""
        carrying = asyncio.ensure_future(self._carry(client, to_client))
        self._connections.add(carrying)
        carrying.add_done_callback(self._connections.discard)

    async def aclose(self) -> None:
        """Drop all connections."""
        for carrying in self._connections:
            carrying.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _carry(self, client: asyncio.StreamReader, to_client: Writer) -> None:
        """Carry one connection until either side ends it, or we cut."""
        server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        asked: list[Request] = []
        ways = [
            asyncio.ensure_future(self._upward(client, to_server, to_client, asked)),
            asyncio.ensure_future(self._downward(server, to_client, asked)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            to_server.transport.abort()
            to_client.close()
            # Both end with an exception when a connection breaks: that is expected.
            await asyncio.gather(*ways, return_exceptions=True)

    async def _upward(
        self, client: asyncio.StreamReader, to_server: Writer, to_client: Writer, asked: list[Request]
    ) -> None:
        """Forward requests one by one. The clients tried here send every body with its length."""
        while True:
            head = await client.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").rstrip().split("\r\n")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
            request = Request(first.split(" ")[0], headers, bytearray(), bytearray())
            self.requests.append(request)
            asked.append(request)
            request.body += await client.readexactly(int(headers.get("content-length", "0")))
            to_server.write(head + request.body)
            await to_server.drain()
            if self._lasting is not None:
                asyncio.get_running_loop().call_later(self._lasting, self._cut_late, request, to_client)

    @staticmethod
    def _cut_late(request: Request, to_client: Writer) -> None:
        # A client may hang up when it has read the result, before the last bytes have come by.
        if not request.is_answered and not to_client.transport.is_closing():
            request.cut = True
            to_client.transport.abort()

    async def _downward(self, server: asyncio.StreamReader, to_client: Writer, asked: list[Request]) -> None:
        """Forward answers, and look for the text to cut at."""
        while chunk := await server.read(CHUNK):
            cut = next((cut for cut in self._cuts if not cut.done and cut.text in chunk), None)
            if cut is not None:
                cut.done = True
                chunk = chunk[: cut.place(chunk)]
            asked[-1].answer += chunk
            to_client.write(chunk)
            if cut is not None and cut.loses:
                to_client.transport.abort()
                return
            await to_client.drain()
            if cut is not None:
                return


@contextmanager
def proxied(target: int, cuts: list[Cut], *, lasting: float | None = None) -> Iterator[Proxy]:
    """Run a proxy in a thread of its own, in front of a port; no response lasts longer than `lasting` seconds."""
    proxy = Proxy(target, cuts, lasting)
    ready, stop = threading.Event(), threading.Event()

    async def run() -> None:
        listener = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
        proxy.port = listener.sockets[0].getsockname()[1]
        async with aclosing(proxy):
            ready.set()
            await asyncio.to_thread(stop.wait)
            listener.close()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        assert ready.wait(BOUND), "the proxy does not listen"
        yield proxy
    finally:
        stop.set()
        thread.join()
