"""A client of protocol 2026-07-28 in the same process, on bare ASGI; every message of either side is held against the schema."""

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from typing_extensions import override

from limpet.errors import McpError
from limpet.server.app import Server
from tests.asgi import Peer
from tests.messages import MODERN, metadata
from tests.schema import Json, validate
from tests.unit.server.tool_calls import ToolCalls

ALL: Final[Json] = {"sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}, "roots": {}}
"""Every capability a client may declare."""
Answer = Callable[[Json], Json]
"""From an ask's params to its result."""


class Answered(NamedTuple):
    """One HTTP answer: its status, the notifications on the way, and the message that answers."""

    status: int
    notifications: list[Json]
    message: Json

    @property
    def result(self) -> Json:
        """The result of a request that must have one."""
        assert "result" in self.message, self.message
        return self.message["result"]

    @property
    def error(self) -> Json:
        """The error of a request that must have one."""
        assert "error" in self.message, self.message
        return self.message["error"]


class SessionlessClient(ToolCalls):
    """One client. Asks are answered by `answers`, by method; each goes out with the retry."""

    def __init__(
        self,
        server: Server,
        *,
        capabilities: Json = ALL,
        name: str = "guest",
        token: str = "",
        meta: Json = None,
    ) -> None:
        self.server = server
        self.answers: dict[str, Answer] = {}
        self.asked: list[Json] = []
        self.rounds = 0
        """Answers so far that wanted input."""
        self._peer = Peer(server.asgi(), token=token)
        self._ids = itertools.count(1)
        self.meta = {**metadata(capabilities=capabilities, client=name), **(meta or {})}

    async def send(self, method: str, params: Json = None, *, headers: Json = None) -> Answered:
        """Make one request and return its answer, a result or an error. Every message must fit the schema."""
        answered = await self.post(method, params or {}, headers=headers)
        for item in (*answered.notifications, answered.message):
            validate(item, MODERN, answers=method)
        assert all("id" not in item for item in answered.notifications), answered.notifications
        return answered

    async def post(self, method: str, params: Json, *, headers: Json = None) -> Answered:
        """Make one request and return its answer, without the schema's judgement."""
        number = next(self._ids)
        meta = {**self.meta, **params.get("_meta", {})}
        call = self._peer.sessionless(method, {**params, "_meta": meta}, id=number, headers=headers or {})
        await call.done()
        *notifications, answer = call.received
        assert answer["id"] == number
        return Answered(call.status, notifications, answer)

    @override
    async def request(self, method: str, params: Json = None) -> Json:
        """Make a request, answer its asks, and return its result.

        Raises:
            McpError: it was answered with an error.
        """
        params = params or {}
        retry: Json = {}
        for _ in range(20):
            answered = await self.send(method, {**params, **retry})
            if "error" in answered.message:
                raise McpError(answered.error["code"], answered.error["message"], answered.error.get("data"))
            if answered.result["resultType"] != "input_required":
                return answered.result
            self.rounds += 1
            retry = self.retry(answered.result)
        raise AssertionError("it asks on and on")

    def retry(self, result: Json) -> Json:
        """Return the members of a retry after a result that asks for input."""
        requests = result.get("inputRequests", {})
        self.asked += requests.values()
        responses = {key: self.answers[ask["method"]](ask["params"]) for key, ask in requests.items()}
        state = {"requestState": result["requestState"]} if "requestState" in result else {}
        return {"inputResponses": responses, **state}


def accept(**content: Json) -> Answer:
    """Answer a form with this."""
    return lambda _params: {"action": "accept", "content": content}


def say(text: str) -> Answer:
    """Answer a model's question with this."""
    return lambda _params: {"role": "assistant", "content": {"type": "text", "text": text}, "model": "m"}


@asynccontextmanager
async def sessionless(server: Server, **options: Any) -> AsyncIterator[SessionlessClient]:
    """Run a server with one client."""
    await server.engine.ensure_started()
    try:
        yield SessionlessClient(server, **options)
    finally:
        await server.engine.aclose()
