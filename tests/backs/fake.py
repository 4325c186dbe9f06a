"""A server behind a URL whose behaviour a test chooses: a real HTTP server on loopback, without any code of ours."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any, Literal, Self

from aiohttp import web

from limpet.protocol.sessionless import SERVER_KEY
from tools.ports import free_port

MODERN = "2026-07-28"
Answer = Callable[[dict[str, Any]], dict[str, Any] | bytes]
"""Returns the result for params; as bytes, it is sent as it is."""


class Cut(Exception):
    """Raised by an answer: end the stream of the call; its result is delivered to a GET with Last-Event-ID."""


class BadRequest(Exception):
    """Raised by an answer: refuse the call with 400, and without its id."""


class Fake:
    """One server. Each member may be changed while it runs."""

    def __init__(
        self,
        *,
        era: Literal["sessions", "sessionless"] = "sessions",
        form: Literal["json", "sse"] = "json",
        get: bool = True,
        no_get: int = 405,
        stateless: bool = False,
        unknown: int = 404,
        capabilities: dict[str, Any] | None = None,
    ) -> None:
        self.era = era
        self.form = form
        self.get = get
        self.no_get = no_get
        """The status of a GET if there is no standalone stream."""
        self.stateless = stateless
        self.unknown = unknown
        """The status for a session that it does not know."""
        self.capabilities = {"tools": {}} if capabilities is None else capabilities
        self.answers: dict[str, Answer] = {
            "tools/list": lambda _params: {"tools": []},
            "tools/call": lambda params: {
                "content": [{"type": "text", "text": str(params.get("arguments"))}]
            },
        }
        self.ttl = 0
        """`ttlMs` of its lists (2026-07-28)."""
        self.forgets = False
        """Forget each session as soon as it is initialized."""
        self.tokens: set[str] | None = None
        """The bearer tokens that it accepts; None: no token is needed."""
        self.moves_to = ""
        self.hold: asyncio.Event | None = None
        """If set, requests other than the first ones wait for it."""
        self.rest: asyncio.Event | None = None
        """If set, only the first half of the answer to a call is sent before it."""
        self.asked: Counter[str] = Counter()
        """How often each method was received."""
        self.headers: list[tuple[str, dict[str, str]]] = []
        """Method and headers of each request, also GET and DELETE."""
        self.sessions: set[str] = set()
        self.streams: list[asyncio.Queue[bytes | None]] = []
        """The open standalone or listen streams."""
        self.kept: dict[str, bytes] = {}
        """The results that wait for a GET, by the last event id that the client has."""
        self._numbers = count(1)
        self._port = free_port()
        self._runner: web.AppRunner | None = None
        self.url = f"http://127.0.0.1:{self._port}/mcp"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.stop()

    async def start(self) -> None:
        application = web.Application(client_max_size=64 * 1024 * 1024)
        application.router.add_post("/mcp", self._post)
        application.router.add_get("/mcp", self._get)
        application.router.add_delete("/mcp", self._delete)
        self._runner = web.AppRunner(application, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def stop(self) -> None:
        """End the process: every connection and every session is lost."""
        self.break_streams()
        self.sessions.clear()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def forget_sessions(self) -> None:
        """Answer every session with 404 from now on, and end its streams."""
        self.sessions.clear()
        self.break_streams()

    def break_streams(self) -> None:
        for stream in self.streams:
            stream.put_nowait(None)

    def notify(self, method: str, **params: Any) -> None:
        """Send a notification on every open stream."""
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        for stream in self.streams:
            stream.put_nowait(json.dumps(message).encode())

    def sent_with(self, method: str) -> list[dict[str, str]]:
        """Return the headers of each request of a method."""
        return [headers for name, headers in self.headers if name == method]

    # HTTP

    def _refused(self, name: str, asked: web.Request) -> web.Response | None:
        self.headers.append((name, {key.lower(): value for key, value in asked.headers.items()}))
        if self.moves_to:
            return web.Response(status=307, headers={"location": self.moves_to})
        token = asked.headers.get("authorization", "").removeprefix("Bearer ")
        if self.tokens is not None and token not in self.tokens:
            return web.Response(status=401, headers={"www-authenticate": "Bearer"}, text="who are you?")
        session = asked.headers.get("mcp-session-id")
        if session is not None and session not in self.sessions:
            return self._bad("Server not initialized") if self.unknown == 400 else web.Response(status=404)
        return None

    @staticmethod
    def _bad(reason: str) -> web.Response:
        """Return the refusal of the TypeScript transport."""
        error = {"code": -32000, "message": f"Bad Request: {reason}"}
        return web.json_response({"jsonrpc": "2.0", "error": error, "id": None}, status=400)

    async def _post(self, asked: web.Request) -> web.StreamResponse:
        message = await asked.json()
        method = message.get("method", "response")
        self.asked[method] += 1
        refused = self._refused(method, asked)
        if refused is not None:
            return refused
        if self.forgets and method == "notifications/initialized":
            self.sessions.discard(asked.headers["mcp-session-id"])
        if "id" not in message or "method" not in message:
            return web.Response(status=202)
        if method == "subscriptions/listen":
            return await self._listen(asked, message)
        headers: dict[str, str] = {}
        if method == "initialize" and not self.stateless:
            headers["mcp-session-id"] = f"s{next(self._numbers)}"
            self.sessions.add(headers["mcp-session-id"])
        return await self._answered(asked, message, headers)

    async def _answered(
        self, asked: web.Request, message: dict[str, Any], headers: dict[str, str]
    ) -> web.StreamResponse:
        if self.hold is not None and message["method"] not in {"initialize", "server/discover"}:
            await self.hold.wait()
        try:
            body = self._response(message["id"], self._result(message["method"], message.get("params") or {}))
        except Cut:
            return await self._cut(asked, message)
        except BadRequest as error:
            return self._bad(str(error))
        except LookupError as error:
            code, text = error.args if len(error.args) == 2 else (-32601, "unknown method")
            failed = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": text}}
            return web.json_response(failed, headers=headers)
        if self.form == "json" and self.rest is None:
            return web.Response(body=body, content_type="application/json", headers=headers)
        kind, sent = (
            ("application/json", body) if self.form == "json" else ("text/event-stream", _event(body))
        )
        response = web.StreamResponse(headers={"content-type": kind, **headers})
        await response.prepare(asked)
        if self.rest is not None and message["method"] == "tools/call":
            await response.write(sent[: len(sent) // 2])
            await self.rest.wait()
            sent = sent[len(sent) // 2 :]
        await response.write(sent)
        return response

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any] | bytes:
        described = {"capabilities": self.capabilities, "serverInfo": {"name": "fake", "version": "1"}}
        if method == "initialize" and self.era == "sessions":
            return {"protocolVersion": "2025-11-25", **described}
        if method == "server/discover" and self.era == "sessionless":
            meta = {SERVER_KEY: described.pop("serverInfo")}
            return self._modern({"supportedVersions": [MODERN], **described, "_meta": meta})
        result = self.answers[method](params)
        is_plain = isinstance(result, bytes) or self.era == "sessions"
        return result if is_plain else self._modern(result, is_list=method.endswith("list"))

    def _modern(self, result: Any, *, is_list: bool = False) -> dict[str, Any]:
        hints = {"ttlMs": self.ttl, "cacheScope": "private"} if is_list else {}
        return {"resultType": "complete", **hints, **result}

    @staticmethod
    def _response(number: Any, result: dict[str, Any] | bytes) -> bytes:
        text = result if isinstance(result, bytes) else json.dumps(result).encode()
        return b'{"jsonrpc":"2.0","id":' + json.dumps(number).encode() + b',"result":' + text + b"}"

    async def _cut(self, asked: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        event = f"e{next(self._numbers)}"
        text = {"content": [{"type": "text", "text": "after the cut"}]}
        self.kept[event] = self._response(message["id"], text)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(asked)
        await response.write(f"retry: 1\nid: {event}\ndata:\n\n".encode())
        return response

    async def _get(self, asked: web.Request) -> web.StreamResponse:
        self.asked["GET"] += 1
        refused = self._refused("GET", asked)
        if refused is not None:
            return refused
        kept = self.kept.get(asked.headers.get("last-event-id", ""))
        if kept is None and not self.get:
            return web.Response(status=self.no_get)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(asked)
        if kept is not None:
            await response.write(_event(kept))
            return response
        await response.write(b": open\nretry: 1\n\n")
        await self._stream(response, asyncio.Queue())
        return response

    async def _listen(self, asked: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(asked)
        acknowledged = {
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {"notifications": message["params"]["notifications"]},
        }
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        queue.put_nowait(json.dumps(acknowledged).encode())
        await self._stream(response, queue)
        return response

    async def _stream(self, response: web.StreamResponse, queue: "asyncio.Queue[bytes | None]") -> None:
        self.streams.append(queue)
        try:
            while (message := await queue.get()) is not None:
                await response.write(_event(message))
        finally:
            self.streams.remove(queue)

    async def _delete(self, asked: web.Request) -> web.Response:
        self.asked["DELETE"] += 1
        refused = self._refused("DELETE", asked)
        self.sessions.discard(asked.headers.get("mcp-session-id", ""))
        return refused or web.Response(status=204)


def _event(data: bytes) -> bytes:
    """Return an event. A line break in the data begins another line of it, as SSE asks."""
    return b"".join(b"data: " + line + b"\n" for line in re.split(rb"\r\n|\r|\n", data)) + b"\n"
