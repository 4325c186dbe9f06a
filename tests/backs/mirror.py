"""A server of one revision, or of both eras, that shows what it has received, and sends members that no revision defines.

It runs as a program (`python mirror.py REVISION`), behind a URL (`Served`), and as an object of a framework (`run`). Standard
library only, except the URL.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, Final

from limpet.upstream.pending import OutgoingRequest
from limpet.wire.jsonrpc import request_message

MODERN: Final = "2026-07-28"
LATEST: Final = "2025-11-25"
BOTH: Final = "both"
EXTENSION: Final = "com.example/extension"
ODD: Final = "com.example/odd"
REFUSED: Final = "com.example/refused"
"""A method that the server behind a URL refuses with a status alone."""
_META: Final = "io.modelcontextprotocol/"
Json = dict[str, Any]
Send = Callable[[Json], None]
FORM: Final = {"type": "object", "properties": {"name": {"type": "string"}}}


class Mirror:
    """One conversation."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._client: Json = {}
        self._opened_with: Json | None = None
        """`_meta` of initialize."""
        self._waiting: tuple[Any, Send] | None = None
        """The call that waits for an answer: its id, and where its result goes."""

    def take(self, message: Json, send: Send) -> None:
        """Take a message, and answer it with `send`."""
        method, number, params = message.get("method"), message.get("id"), message.get("params") or {}
        if method is None:
            call, back = self._waiting or (None, send)
            answer = {"answer": message.get("result"), "refused": message.get("error")}
            back(_result(call, {"content": [], **answer}))
        elif method == "initialize" and self._version != MODERN:
            version = LATEST if self._version == BOTH else self._version
            self._client = {"capabilities": params["capabilities"], "info": params["clientInfo"]}
            self._opened_with = params.get("_meta")
            send(_result(number, {**DESCRIBED, "protocolVersion": version, "serverInfo": DESCRIBED_AS}))
        elif method == "server/discover" and self._version in {MODERN, BOTH}:
            meta = {**DESCRIBED["_meta"], f"{_META}serverInfo": DESCRIBED_AS}
            send(
                _result(
                    number,
                    {
                        **DESCRIBED,
                        "supportedVersions": [MODERN],
                        "resultType": "complete",
                        "ttlMs": 0,
                        "cacheScope": "private",
                        "_meta": meta,
                    },
                )
            )
        elif method in {"initialize", "server/discover"}:
            send({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "unknown"}})
        elif number is not None:
            self._request(method, number, params, send)

    def _is_modern(self, params: Json) -> bool:
        return f"{_META}protocolVersion" in (params.get("_meta") or {})

    def _request(self, method: str, number: Any, params: Json, send: Send) -> None:
        meta = params.get("_meta") or {}
        result: Json = {
            # Members of 2026-07-28, which a few servers send in sessions too.
            "resultType": "complete",
            "ttlMs": 7,
            "cacheScope": "public",
            ODD: "field",
            "_meta": {ODD: "result"},
        }
        if method == "tools/list":
            result["tools"] = [{"name": "x", "inputSchema": {"type": "object"}, ODD: "tool"}]
        elif params.get("name") == "ask":
            self._ask(number, params, send)
            return
        else:
            own = {name: value for name, value in meta.items() if not name.startswith(_META)}
            if self._is_modern(params):
                self._client = {
                    "capabilities": meta[f"{_META}clientCapabilities"],
                    "info": meta[f"{_META}clientInfo"],
                }
            result |= {"content": [], "method": method, "params": {**params, "_meta": own}}
            result |= {"opened with": self._opened_with}
            result |= {"client": self._client, "spoken": MODERN if self._is_modern(params) else LATEST}
        send(_result(number, result))

    def _ask(self, number: Any, params: Json, send: Send) -> None:
        question = {"message": "?", "requestedSchema": FORM, ODD: "question", "_meta": {ODD: "question"}}
        arguments = params.get("arguments") or {}
        method = arguments.get("method", "elicitation/create")
        if not self._is_modern(params) and not arguments.get("returns"):
            self._waiting = number, send
            send({"jsonrpc": "2.0", "id": "q", "method": method, "params": question})
        elif "inputResponses" in params:
            send(
                _result(
                    number,
                    {"resultType": "complete", "content": [], "answer": params["inputResponses"]["q"]},
                )
            )
        else:
            asked = {"q": {"method": method, "params": question}}
            send(_result(number, {"resultType": "input_required", "inputRequests": asked}))


DESCRIBED: Final[Json] = {
    "capabilities": {"tools": {ODD: True}, "extensions": {EXTENSION: {"server": 1}}, ODD: {"server": 2}},
    "instructions": "Look.",
    ODD: "described",
    "_meta": {ODD: "described"},
}
DESCRIBED_AS: Final = {"name": "mirror", "version": "1", ODD: "info"}


def _result(number: Any, result: Json) -> Json:
    return {"jsonrpc": "2.0", "id": number, "result": result}


class Served:
    """The server behind a URL: each POST is answered by a stream of events."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._mirror = Mirror(version)

    async def __aenter__(self) -> str:
        from aiohttp import web  # noqa: PLC0415 - a program of the standard library starts faster

        application = web.Application()
        application.router.add_post("/mcp", self._post)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/mcp"

    async def __aexit__(self, *_error: object) -> None:
        await self._runner.cleanup()

    async def _post(self, asked: Any) -> Any:
        from aiohttp import web  # noqa: PLC0415

        message = await asked.json()
        if message.get("method") == REFUSED:
            return web.Response(status=400, text=f'JSON RPC not handled: "{REFUSED}" unsupported')
        if "id" not in message or "method" not in message:
            self._mirror.take(message, lambda _message: None)
            return web.Response(status=202)
        said: asyncio.Queue[Json] = asyncio.Queue()
        self._mirror.take(message, said.put_nowait)
        headers = {"content-type": "text/event-stream"}
        if message["method"] == "initialize" and self._version != MODERN:
            headers["mcp-session-id"] = "one"
        stream = web.StreamResponse(headers=headers)
        await stream.prepare(asked)
        while True:
            one = await said.get()
            await stream.write(b"data: %b\n\n" % json.dumps(one).encode())
            if one.get("id") == message["id"]:
                return stream


class ServedSse:
    """The server behind a URL with the transport of 2024-11-05. It has one session at a time."""

    def __init__(self, endpoint: str = "/messages") -> None:
        self.asked: Counter[str] = Counter()
        """How often each method and path was asked for."""
        self._endpoint = endpoint
        self._mirror = Mirror("2024-11-05")
        self._said: asyncio.Queue[Json | None] = asyncio.Queue()

    async def __aenter__(self) -> str:
        from aiohttp import web  # noqa: PLC0415

        @web.middleware
        async def count(request: Any, handler: Any) -> Any:
            self.asked[f"{request.method} {request.path}"] += 1
            return await handler(request)

        application = web.Application(middlewares=[count])
        application.router.add_get("/sse", self._get)
        application.router.add_post("/messages", self._post)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/sse"

    async def __aexit__(self, *_error: object) -> None:
        self.cut()
        await self._runner.cleanup()

    def cut(self) -> None:
        """End the stream, and with it the session."""
        self._said.put_nowait(None)

    async def _get(self, asked: Any) -> Any:
        from aiohttp import web  # noqa: PLC0415

        said = self._said = asyncio.Queue()
        stream = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await stream.prepare(asked)
        await stream.write(b"event: endpoint\r\ndata: %b\r\n\r\n" % self._endpoint.encode())
        while (one := await said.get()) is not None:
            await stream.write(b"event: message\r\ndata: %b\r\n\r\n" % json.dumps(one).encode())
        return stream

    async def _post(self, asked: Any) -> Any:
        from aiohttp import web  # noqa: PLC0415

        self._mirror.take(await asked.json(), self._said.put_nowait)
        return web.Response(status=202, text="Accepted")


class Object:
    """The server as an object of a framework whose messages are plain values."""

    name = "mirror"

    def __init__(self, version: str) -> None:
        self._version = version

    @asynccontextmanager
    async def lifespan(self, _server: object) -> AsyncIterator[None]:
        """Have nothing to enter."""
        yield

    def create_initialization_options(self) -> None:
        """Have none."""

    async def run(self, read: Any, write: Any, _options: None) -> None:
        """Answer until the input ends."""
        mirror = Mirror(self._version)
        said: list[Json] = []
        async with read, write:
            async for message in read:
                mirror.take(message, said.append)
                while said:
                    await write.send((said.pop(0), message.get("id")))


class Dialect:
    """The messages of that framework: each with the id of the call that it belongs to."""

    identity = SimpleNamespace(variable=SimpleNamespace(set=lambda _user: None), user=lambda _caller: None)

    async def run(self, server: "Object", read: Any, write: Any) -> None:
        """Let the object serve one client."""
        await server.run(read, write, None)

    def decode(self, data: bytes) -> Json:
        """Return a notification or a response."""
        message: Json = json.loads(data)
        return message

    def request(self, request: OutgoingRequest) -> Json:
        """Return a request as a message."""
        return self.decode(request_message(request.id, request.method, request.params))

    def wrap(self, message: Json, _caller: object) -> Json:
        """Return a message for the run."""
        return message

    def user_of_run(self, _caller: object) -> None:
        """Know no user."""

    def encode(self, item: tuple[Json, object]) -> bytes:
        """Return the bytes of a message of the run."""
        return json.dumps(item[0]).encode()

    def answered(self, item: tuple[Json, object]) -> object:
        """Return the id of the request that a message answers; None if it is no response."""
        return None if "method" in item[0] else item[0].get("id")

    def call_id(self, item: tuple[Json, object]) -> object:
        """Return the id of the call that a message belongs to."""
        return item[1]


def _main(version: str) -> None:
    mirror = Mirror(version)
    for line in sys.stdin:
        mirror.take(json.loads(line), lambda message: print(json.dumps(message), flush=True))


if __name__ == "__main__":
    _main(sys.argv[1])
