"""A client in the same process: it speaks to a server's engine and lets the judge of `tests/schema.py` read every message."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from holdfast.auth import Principal
from holdfast.engine.exchange import Caller
from holdfast.engine.session import Session
from holdfast.errors import McpError
from holdfast.server.app import Server
from holdfast.wire.jsonrpc import Request, Response
from tests.schema import LATEST, validate, validate_result

Answer = Callable[[dict[str, Any]], dict[str, Any]]
"""From an ask's params to its result; raises McpError to refuse."""


class Peer:
    """One session. Notifications gather in `heard`, asks are answered by `answers`, others never."""

    def __init__(self, server: Server, principal: Principal | None, headers: dict[str, str]) -> None:
        self.server = server
        self.caller = Caller(principal.key if principal else "", principal, headers)
        self.answers: dict[str, Answer] = {}
        self.heard: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []
        self.initialized: dict[str, Any] = {}
        self.session: Session
        self.version = LATEST
        self._ids = 0
        self._waiting: dict[int | str, asyncio.Future[dict[str, Any]]] = {}
        self._news = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(self, message: bytes) -> None:
        """Take a message of the server's: this is the session's channel."""
        value = json.loads(message)
        if "method" in value:
            validate(value, self.version)
        if "method" not in value:
            self._waiting.pop(value["id"]).set_result(value)
        elif "id" in value:
            self.asked.append(value)
            if value["method"] not in self.answers:
                return
            task = asyncio.ensure_future(self._answer(value))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self.heard.append(value)
            async with self._news:
                self._news.notify_all()

    async def _answer(self, ask: dict[str, Any]) -> None:
        try:
            response = Response(ask["id"], self.answers[ask["method"]](ask["params"]), None)
        except McpError as error:
            response = Response(ask["id"], None, {"code": error.code, "message": error.message})
        await self.server.engine.sessions.answer(self.session.record.key, self.caller.key, response)

    async def message(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return the whole answer."""
        self._ids += 1
        arrived: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[self._ids] = arrived
        request = Request(self._ids, method, params or {})
        await self.server.engine.exchanges.submit(self.session.record.key, self.caller, request)
        return await arrived

    async def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return its result.

        Raises:
            McpError: it was answered with an error.
        """
        answer = await self.message(method, params)
        if "error" in answer:
            validate(answer, self.version)
            error = answer["error"]
            raise McpError(error["code"], error["message"], error.get("data"))
        validate(answer, self.version, answers=method)
        result: dict[str, Any] = answer["result"]
        return result

    async def call(self, tool: str, /, **arguments: object) -> dict[str, Any]:
        """Call a tool."""
        return await self.request("tools/call", {"name": tool, "arguments": arguments})

    async def text(self, tool: str, /, **arguments: object) -> str:
        """Call a tool that must succeed with one text; return it."""
        result = await self.call(tool, **arguments)
        assert not result.get("isError"), result
        (block,) = result["content"]
        text: str = block["text"]
        return text

    async def failure(self, tool: str, /, **arguments: object) -> str:
        """Call a tool that must fail with one text; return it."""
        result = await self.call(tool, **arguments)
        assert result.get("isError") is True, result
        (block,) = result["content"]
        text: str = block["text"]
        return text

    async def names(self, kind: str) -> list[str]:
        """List tools, resources or prompts, all pages; return their names."""
        names: list[str] = []
        cursor: dict[str, Any] = {}
        while True:
            result = await self.request(f"{kind}/list", cursor)
            names += [item["name"] for item in result[kind]]
            if "nextCursor" not in result:
                return names
            cursor = {"cursor": result["nextCursor"]}

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification."""
        await self.server.engine.sessions.notify(
            self.session.record.key, self.caller.key, method, params or {}
        )

    async def hears(self, method: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until so many notifications of a method have come; return their params."""
        async with self._news:
            await self._news.wait_for(lambda: len(self.told(method)) >= count)
        return self.told(method)

    def told(self, method: str) -> list[dict[str, Any]]:
        """Return the params of all notifications of a method so far."""
        return [item.get("params", {}) for item in self.heard if item["method"] == method]


async def settle() -> None:
    """Let everything that is ready run: what was not sent by then is not going to be."""
    for _ in range(20):
        await asyncio.sleep(0)


async def connect(
    server: Server,
    *,
    capabilities: dict[str, Any] | None = None,
    version: str = LATEST,
    principal: Principal | None = None,
    headers: dict[str, str] | None = None,
) -> Peer:
    """Open a session."""
    await server.engine.ensure_started()
    peer = Peer(server, principal, headers or {})
    params = {
        "protocolVersion": version,
        "clientInfo": {"name": "peer", "version": "1"},
        "capabilities": capabilities or {},
    }
    opened = await server.engine.sessions.open(peer.caller.key, params, channel=peer)
    peer.session = opened.session
    peer.initialized = json.loads(opened.result)
    peer.version = peer.initialized["protocolVersion"]
    validate_result(peer.initialized, peer.version, "initialize")
    return peer


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[Server]:
    """Run a server for the length of a test."""
    await server.engine.ensure_started()
    try:
        yield server
    finally:
        await server.engine.aclose()


@asynccontextmanager
async def connected(server: Server, **options: Any) -> AsyncIterator[Peer]:
    """Run a server with one client."""
    async with serving(server):
        yield await connect(server, **options)
