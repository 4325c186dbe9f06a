"""The bad habits of `odd.py` behind a URL: a server of 2025-11-25 in this process."""

import asyncio
import json
from typing import Any

from aiohttp import web

from tools.ports import free_port

ABILITIES: dict[str, Any] = {"tools": {}, "logging": {}}


class OddHttp:
    """A server on a port of its own; `async with` returns its URL."""

    def __init__(self) -> None:
        self.received: list[str] = []
        """Methods, and the codes of answers to questions of ours."""
        self.standalone: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.ends = asyncio.Event()

    async def __aenter__(self) -> str:
        application = web.Application()
        application.router.add_post("/mcp", self._post)
        application.router.add_get("/mcp", self._get)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        port = free_port()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        return f"http://127.0.0.1:{port}/mcp"

    async def __aexit__(self, *_error: object) -> None:
        self.ends.set()
        await self._runner.cleanup()

    def ask(self) -> None:
        """Ask the client on the standalone stream."""
        question = {"message": "?", "requestedSchema": {}}
        self.standalone.put_nowait(_message(id="odd", method="elicitation/create", params=question))

    async def _get(self, asked: web.Request) -> web.StreamResponse:
        stream = await _stream(asked)
        while True:
            await _event(stream, await self.standalone.get())

    async def _post(self, asked: web.Request) -> web.StreamResponse:
        message = await asked.json()
        method, number = message.get("method", "answer"), message.get("id")
        self.received.append(
            json.dumps(message.get("error", {}).get("code")) if method == "answer" else method
        )
        if method == "notifications/cancelled":
            # The answer comes after the cancellation.
            self.standalone.put_nowait(_text(message["params"]["requestId"], "late"))
        if number is None or method == "answer":
            return web.Response(status=202)
        if method == "tools/call":
            return await self._call(asked, number, message["params"])
        if method == "initialize":
            return web.json_response(
                _message(
                    id=number,
                    result={
                        "protocolVersion": "2025-11-25",
                        "capabilities": ABILITIES,
                        "serverInfo": {"name": "odd", "version": "1"},
                    },
                ),
                headers={"mcp-session-id": "one"},
            )
        return web.json_response(_message(id=number, error={"code": -32601, "message": "unknown"}))

    async def _call(self, asked: web.Request, number: Any, params: dict[str, Any]) -> web.StreamResponse:
        name, arguments = params["name"], params.get("arguments", {})
        if name in {"say", "received", "big_body"}:
            said = {"say": "said", "received": json.dumps(self.received)}.get(name)
            return web.json_response(_text(number, said or "x" * int(arguments["size"])))
        stream = await _stream(asked)
        if name == "silent":
            await self.ends.wait()
        elif name == "big":
            await _event(stream, _text(number, "x" * int(arguments["size"])))
        elif name == "flood":
            for index in range(int(arguments["n"])):
                data = f"{index} {'x' * int(arguments.get('size', 0))}"
                await _event(
                    stream, _message(method="notifications/message", params={"level": "error", "data": data})
                )
            await _event(stream, _text(number, "flooded"))
        elif name == "ask_wrongly":
            await _event(stream, {"id": "odd", "method": "elicitation/create"})
            while self.received[-1] == "tools/call":
                await asyncio.sleep(0.01)
            await _event(stream, _text(number, self.received[-1]))
        elif name == "ask":
            question = {"message": "?", "requestedSchema": {}}
            await _event(stream, _message(id="asked", method="elicitation/create", params=question))
            await self.ends.wait()
        elif name == "cut":
            await _event(
                stream, _message(method="notifications/message", params={"level": "error", "data": "before"})
            )
        return stream


def _message(**members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", **members}


def _text(number: Any, said: str) -> dict[str, Any]:
    return _message(id=number, result={"content": [{"type": "text", "text": said}]})


async def _stream(asked: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await stream.prepare(asked)
    return stream


async def _event(stream: web.StreamResponse, message: dict[str, Any]) -> None:
    await stream.write(b"data: %b\n\n" % json.dumps(message).encode())
