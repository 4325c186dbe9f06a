"""A client in the same process: every message is encoded and decoded as on any other connection.

For tests of servers, and wherever a server is to be called without a network.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Self

from holdfast import __version__
from holdfast.core.lifecycle import Input
from holdfast.engine.engine import Engine
from holdfast.engine.exchange import Caller
from holdfast.engine.sessions import ANONYMOUS
from holdfast.errors import INTERNAL_ERROR, INVALID_REQUEST, McpError, MethodNotFound, SessionGone
from holdfast.fronts.duplex import Duplex
from holdfast.protocol.modern import CAPABILITIES_KEY, CLIENT_KEY, VERSION, VERSION_KEY
from holdfast.protocol.versions import LATEST
from holdfast.wire.jsonrpc import (
    Notification,
    Request,
    RequestId,
    Response,
    decode,
    encode,
    notification_message,
    refusal,
    request_message,
    result_message,
)

MAX_ROUNDS: Final = 16
"""Rounds of one request (2026-07-28) that this client goes along with."""

OnAsk = Callable[[str, dict[str, Any]], Awaitable[object] | object]
"""Answers a request of the server's, given its method and params; raises McpError to refuse it."""

EVERYTHING: Final[Mapping[str, Any]] = {
    "sampling": {"tools": {}},
    "elicitation": {"form": {}, "url": {}},
    "roots": {},
}
"""What a client declares that answers asks."""


class MemoryPeer:
    """The client's end of a pair in memory.

    async with MemoryPeer(server.engine) as peer:
        result = await peer.request("tools/call", {"name": "echo", "arguments": {"text": "hi"}})

    With `version="2026-07-28"` it has no session: every request carries its own metadata, and what
    the server wants to know is answered by `on_ask` in as many rounds as it takes.
    """

    def __init__(
        self,
        engine: Engine,
        on_ask: OnAsk | None = None,
        *,
        capabilities: Mapping[str, Any] | None = None,
        version: str = LATEST.name,
        client: str = "memory",
        caller: Caller = Caller(ANONYMOUS),  # noqa: B008
    ) -> None:
        self._on_ask = on_ask
        self._capabilities = capabilities if capabilities is not None else EVERYTHING if on_ask else {}
        self._version = version
        self._client = client
        self._duplex = Duplex(engine, self._receive, caller)
        self._engine = engine
        self._minted = 0
        self._waiting: dict[RequestId, list[asyncio.Future[Any]]] = {}
        self._answering: dict[RequestId, asyncio.Task[None]] = {}
        self._heard = asyncio.Condition()
        self.server: dict[str, Any] = {}
        """The server's initialize result, or in 2026-07-28 its discover result."""
        self.notifications: list[Notification] = []
        """Everything the server said without being asked, in order."""

    def __repr__(self) -> str:
        return f"<MemoryPeer {len(self._waiting)} requests waiting, {len(self._answering)} asks answering>"

    async def __aenter__(self) -> Self:
        """Initialize; where there are no sessions, discover."""
        await self._engine.ensure_started()
        if self._version == VERSION:
            self.server = await self.request("server/discover")
            return self
        client = {"name": self._client, "version": __version__}
        params = {
            "protocolVersion": self._version,
            "capabilities": dict(self._capabilities),
            "clientInfo": client,
        }
        self.server = await self.request("initialize", params)
        await self.notify("notifications/initialized")
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Hang up: what runs may finish, then the session is closed."""
        for task in list(self._answering.values()):
            task.cancel()
        await self._duplex.hang_up(Input.DELETED)
        for waiters in self._waiting.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(SessionGone("the connection was closed"))

    # To the server

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, request_id: RequestId | None = None
    ) -> Any:
        """Send a request and return its result. Cancelling this cancels the request.

        Raises:
            McpError: the server answered with an error.
        """
        if self._version == VERSION:
            return await self._in_rounds(method, params or {}, request_id)
        return await self._requested(method, params or {}, request_id)

    async def _in_rounds(self, method: str, params: Mapping[str, Any], request_id: RequestId | None) -> Any:
        meta = {
            VERSION_KEY: VERSION,
            CLIENT_KEY: {"name": self._client, "version": __version__},
            CAPABILITIES_KEY: dict(self._capabilities),
        }
        given = {**params, "_meta": {**meta, **params.get("_meta", {})}}
        result = await self._requested(method, given, request_id)
        for _ in range(MAX_ROUNDS):
            if self._on_ask is None or result.get("resultType") != "input_required":
                break
            asked = result.get("inputRequests", {})
            answers = await asyncio.gather(
                *(self._ask_user(one["method"], one.get("params", {})) for one in asked.values())
            )
            retry = {**given, "inputResponses": dict(zip(asked, answers, strict=True))}
            if "requestState" in result:
                retry["requestState"] = result["requestState"]
            # A retry is a request of its own, with an id of its own.
            result = await self._requested(method, retry, None)
        return result

    async def _requested(self, method: str, params: Mapping[str, Any], request_id: RequestId | None) -> Any:
        self._minted += 1
        key = self._minted if request_id is None else request_id
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(waiter)
        try:
            await self._duplex.take(request_message(key, method, params))
            return await waiter
        except asyncio.CancelledError:
            await self.notify("notifications/cancelled", {"requestId": key, "reason": "cancelled"})
            raise
        finally:
            self._waiting[key].remove(waiter)
            if not self._waiting[key]:
                del self._waiting[key]

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification."""
        await self._duplex.take(notification_message(method, params))

    async def heard(self, method: str, count: int = 1) -> list[Notification]:
        """Wait until the server has sent so many notifications of a method, and return them."""

        def found() -> list[Notification]:
            return [item for item in self.notifications if item.method == method]

        async with self._heard:
            await self._heard.wait_for(lambda: len(found()) >= count)
        return found()

    # From the server

    async def _receive(self, message: bytes) -> None:
        received = decode(message, max_depth=self._engine.settings.limits.depth)
        for item in received if isinstance(received, list) else [received]:
            match item:
                case Response():
                    self._settle(item)
                case Notification():
                    await self._note(item)
                case Request():
                    task = asyncio.get_running_loop().create_task(self._answer(item))
                    self._answering[item.id] = task

    def _settle(self, response: Response) -> None:
        error = response.error
        waiters = [waiter for waiter in self._waiting.get(response.id, ()) if not waiter.done()]
        if not waiters:
            return
        # Of two with one id the later one is refused, and the earlier one goes on.
        waiter = waiters[-1] if error is not None and error["code"] == INVALID_REQUEST else waiters[0]
        if error is None:
            waiter.set_result(response.result)
        else:
            waiter.set_exception(McpError(error["code"], error["message"], error.get("data")))

    async def _note(self, notification: Notification) -> None:
        if notification.method == "notifications/cancelled":
            task = self._answering.get(notification.params.get("requestId", ""))
            if task is not None:
                task.cancel()
        async with self._heard:
            self.notifications.append(notification)
            self._heard.notify_all()

    async def _answer(self, request: Request) -> None:
        try:
            answer = await self._answered(request)
            await self._duplex.take(answer)
        finally:
            del self._answering[request.id]

    async def _answered(self, request: Request) -> bytes:
        try:
            if request.method == "ping":
                return result_message(request.id, b"{}")
            return result_message(request.id, encode(await self._ask_user(request.method, request.params)))
        except McpError as error:
            return refusal(request.id, error)
        except Exception as error:  # noqa: BLE001 - the server hears of it, as of any client's failure
            return refusal(request.id, McpError(INTERNAL_ERROR, str(error)))

    async def _ask_user(self, method: str, params: dict[str, Any]) -> object:
        if self._on_ask is None:
            raise MethodNotFound(method)
        result = self._on_ask(method, params)
        return await result if inspect.isawaitable(result) else result
