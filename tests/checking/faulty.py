"""Our own server with one fault, in this process. A fault is a function from a request to a wrong response, or None for the server's own."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import Struct

from limpet import Server
from tests.checking.app import build

JSON: Final = "application/json"
STREAM: Final = "text/event-stream"


class Request(Struct):
    """One request, and how often the like was seen before."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    message: dict[str, Any]
    seen: Counter[str]

    @property
    def called(self) -> str:
        return str(self.message.get("method", ""))

    @property
    def id(self) -> Any:
        return self.message.get("id")

    @property
    def is_modern(self) -> bool:
        return self.headers.get("mcp-protocol-version") == "2026-07-28"

    def count(self, key: str) -> int:
        self.seen[key] += 1
        return self.seen[key]


class Wrong(Struct):
    """A response.

    hangs     it does not come
    breaks    its connection ends before it does
    endless   its body is repeated until the client goes away
    hang_after   it stays open after its body
    """

    status: int
    body: bytes = b""
    kind: str = JSON
    headers: dict[str, str] = {}
    hangs: bool = False
    breaks: bool = False
    endless: bool = False
    hang_after: bool = False


def result(request: Request, value: Any = None, **members: Any) -> Wrong:
    answer = {"jsonrpc": "2.0", "id": request.id, "result": {} if value is None else value, **members}
    return Wrong(200, json.dumps(answer).encode())


Fault = Callable[[Request], Wrong | None]
Send = Callable[[Any], Awaitable[None]]
Sending = Callable[[Request, Send], Send]
"""Makes the function by which the server sends its own response to a request."""


class Faulty:
    """Our server with one fault, as an ASGI application."""

    def __init__(self, fault: Fault, server: Server | None = None, sending: Sending | None = None) -> None:
        self.fault = fault
        self.server = server or build()
        self._sending = sending
        self._app: Any = self.server.asgi()
        self._seen: Counter[str] = Counter()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            event = await receive()
            body += event.get("body", b"")
            if not event.get("more_body"):
                break
        first = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Any:
            return first.pop() if first else await receive()

        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        request = Request(scope["method"], scope["path"], headers, body, _message(body), self._seen)
        wrong = self.fault(request)
        if wrong is not None:
            await _respond(wrong, receive, send)
            return
        await self._app(scope, again, self._sending(request, send) if self._sending else send)

    async def aclose(self) -> None:
        await self.server.engine.aclose()


async def _respond(wrong: Wrong, receive: Any, send: Send) -> None:
    if wrong.hangs:
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    headers = {"content-type": wrong.kind, **wrong.headers}
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": wrong.status, "headers": pairs})
    gone = asyncio.ensure_future(receive())
    while wrong.endless and not gone.done():
        await send({"type": "http.response.body", "body": wrong.body, "more_body": True})
        await asyncio.sleep(0)
    if wrong.hang_after:
        await send({"type": "http.response.body", "body": wrong.body, "more_body": True})
        await gone
    gone.cancel()
    await send({"type": "http.response.body", "body": wrong.body, "more_body": wrong.breaks})


def _message(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
