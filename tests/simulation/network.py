"""HTTP between simulated clients and servers: requests take time, arrive in order, and can be cut from either side.

The server is a real ASGI application that runs as an actor. Data that it sends to a client that has disconnected
is lost without an error, as on a real network, until it notices the disconnect.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from math import inf
from typing import Any

from limpet.engine.wake import Wake
from tests.simulation.loop import Actor, SimLoop

Application = Callable[..., Awaitable[None]]
Json = MutableMapping[str, Any]
Headers = list[tuple[bytes, bytes]]


class Lost(Exception):
    """The connection broke, or was never made."""


class Node:
    """A server's address and the application that listens there."""

    def __init__(self, actor: Actor, application: Application) -> None:
        self.actor = actor
        self.application = application
        self.calls: dict[Call, None] = {}
        """Open connections."""
        self.failures: list[BaseException] = []
        """Exceptions of the application."""
        self.is_listening = True

    def __repr__(self) -> str:
        return f"<Node {self.actor.name}>"


class Call:
    """One request and its response, seen from both ends."""

    def __init__(self, network: "Network", node: Node, scope: Json, body: bytes) -> None:
        self._network = network
        self._loop = network.loop
        self._body: bytes | None = body
        self._arrives = 0.0
        self.node = node
        self.scope = scope
        self.status: int = 0
        """0 until the head of the response is here."""
        self.headers: dict[bytes, bytes] = {}
        self.whole: bool = False
        """The response was complete."""
        self.is_written: bool = False
        """The server wrote the whole response before it knew of a break."""
        self._is_open = True
        self._inbox: deque[bytes] = deque()
        self._wake = Wake()
        self._disconnected: asyncio.Future[None] | None = None
        self._server_knows = False
        self.known_gone_at: float = inf
        """When the server learned that the client had disconnected."""
        self.serving: asyncio.Task[None] | None = None
        """The server's work on it, once it has arrived."""

    # The client's end

    async def chunk(self) -> bytes | None:
        """Return the next part of the response's body; None after the last.

        Raises:
            Lost: the connection broke first.
        """
        while not self._inbox:
            if self.whole:
                return None
            if not self._is_open:
                raise Lost
            self._wake.clear()
            await self._wake.wait()
        return self._inbox.popleft()

    def cut(self) -> None:
        """Disconnect; the server notices it later."""
        if self._is_open:
            self.lose()
            self._network.later(self._hear_of_it, context=self.node.actor.context)

    def lose(self) -> None:
        """Notice that the other end is gone."""
        self._is_open = False
        self.node.calls.pop(self, None)
        self._wake.set()

    def _take(self, message: Json) -> None:
        if not self._is_open:
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = dict(message["headers"])
        else:
            if message.get("body"):
                self._inbox.append(message["body"])
            if not message.get("more_body"):
                self.whole = True
                self.lose()
        self._wake.set()

    # The server's end

    def _hear_of_it(self) -> None:
        self._server_knows = True
        self.known_gone_at = self._loop.time()
        if self._disconnected is not None and not self._disconnected.done():
            self._disconnected.set_result(None)

    async def receive(self) -> Json:
        """Return the request, then its client's end."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        if not self._server_knows:
            self._disconnected = self._loop.create_future()
            await self._disconnected
        return {"type": "http.disconnect"}

    async def send(self, message: Json) -> None:
        """Put a part of the response on the wire; parts arrive in order.

        Raises:
            OSError: the server has noticed that the client is gone.
        """
        if self._server_knows:
            raise ConnectionResetError
        self.is_written = message["type"] == "http.response.body" and not message.get("more_body")
        self._arrives = max(self._arrives, self._loop.time() + self._network.delay())
        self._loop.call_at(self._arrives, self._take, message, context=self._network.outside)

    async def serve(self) -> None:
        """Let the application answer."""
        try:
            await self.node.application(self.scope, self.receive, self.send)
        except Exception as error:
            self.node.failures.append(error)
            self._network.later(self.lose)


class Network:
    """Carries requests to nodes."""

    def __init__(self, loop: SimLoop, latency: float = 0.02) -> None:
        self.loop = loop
        self._latency = latency
        self.outside: contextvars.Context = Actor("network").context

    def delay(self) -> float:
        """Return how long something is on its way."""
        return self.loop.random.random() * self._latency

    def later(self, act: Callable[[], None], *, context: Any = None) -> None:
        """Do something after the time it takes to cross the network."""
        self.loop.call_later(self.delay(), act, context=context or self.outside)

    def request(self, node: Node, method: str, headers: Headers, body: bytes = b"") -> Call:
        """Send a request; the response comes into the call."""
        scope = {
            "type": "http",
            "method": method,
            "path": "/mcp",
            "headers": headers,
            "client": ("127.0.0.1", 1),
        }
        call = Call(self, node, scope, body)
        self.later(lambda: self._arrive(call))
        return call

    def _arrive(self, call: Call) -> None:
        if not call._is_open:
            return
        if not (call.node.actor.is_alive and call.node.is_listening):
            self.later(call.lose)
            return
        call.node.calls[call] = None
        call.serving = self.loop.spawn(call.node.actor, call.serve())

    def kill(self, node: Node) -> None:
        """Kill a server; its clients hear of it."""
        self.loop.kill(node.actor)
        for call in list(node.calls):
            self.later(call.lose)
