"""A client with a session in the same process; `tests/schema.py` checks every message that it receives."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from typing_extensions import override

from limpet.auth import Principal
from limpet.engine.caller import Caller
from limpet.engine.session import Session
from limpet.engine.sessions import ANONYMOUS
from limpet.errors import McpError
from limpet.server.app import Server
from tests.duplex import DuplexClient
from tests.messages import initialize
from tests.schema import LATEST, validate, validate_result
from tests.unit.server.tool_calls import ToolCalls

Answer = Callable[[dict[str, Any]], dict[str, Any]]
"""From an ask's params to its result; raises McpError to refuse."""


class Peer(ToolCalls, DuplexClient):
    """One session. Every message must fit the schema. Asks are answered by `answers`; without an entry there, never."""

    def __init__(self, server: Server, principal: Principal | None, headers: dict[str, str]) -> None:
        super().__init__(server.engine, Caller(principal.key if principal else ANONYMOUS, principal, headers))
        self.server = server
        self.answers: dict[str, Answer] = {}
        self.heard: list[dict[str, Any]] = []
        """Notifications, in order."""
        self.asked: list[dict[str, Any]] = []
        self.initialized: dict[str, Any] = {}
        self.version = LATEST
        self._ids = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def session(self) -> Session:
        assert self.duplex.session is not None
        return self.duplex.session

    @override
    async def write(self, message: bytes) -> None:
        value = json.loads(message)
        if "method" in value:
            validate(value, self.version)
        if "method" in value and "id" in value:
            self.asked.append(value)
            if value["method"] in self.answers:
                task = asyncio.ensure_future(self._answer(value))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        elif "method" in value:
            self.heard.append(value)
        await super().write(message)

    async def _answer(self, ask: dict[str, Any]) -> None:
        response: dict[str, Any] = {"jsonrpc": "2.0", "id": ask["id"]}
        try:
            response["result"] = self.answers[ask["method"]](ask["params"])
        except McpError as error:
            response["error"] = {"code": error.code, "message": error.message}
        await self.duplex.take(json.dumps(response).encode())

    async def message(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return the whole answer."""
        self._ids += 1
        number = self._ids
        await self.say(method, number, **(params or {}))
        answer: dict[str, Any] = await self.answer(number)
        return answer

    @override
    async def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return its result.

        Raises:
            McpError: it was answered with an error.
        """
        answer = await self.message(method, params)
        if "error" in answer:
            validate(answer, self.version)
            raise error_of(answer)
        validate(answer, self.version, answers=method)
        result: dict[str, Any] = answer["result"]
        return result

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
        await self.say(method, **(params or {}))

    @override
    def notified(self, method: str) -> list[dict[str, Any]]:
        return [item.get("params", {}) for item in self.heard if item["method"] == method]


def error_of(answer: dict[str, Any]) -> McpError:
    """Return the error of an answer as an exception."""
    error = answer["error"]
    return McpError(error["code"], error["message"], error.get("data"))


async def settle() -> None:
    """Let all ready tasks run: a message that was not sent by then will not be sent."""
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
    """Open a session.

    Raises:
        McpError: the server refused it.
    """
    await server.engine.ensure_started()
    peer = Peer(server, principal, headers or {})
    await peer.say("initialize", "init", **initialize(version, capabilities=capabilities, client="peer"))
    opened = await peer.answer("init")
    if "error" in opened:
        raise error_of(opened)
    peer.initialized = opened["result"]
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
