"""Connections of `limpet serve` in the simulation: the real protocol class on simulated transports, in one process.

Only this way the short path of a plain call is taken: the look after one turn (`answer_nowait`), `submit_nowait` and
`settle_nowait`.

The short path has windows of one pass of the loop. Random times would never meet in one turn. So everything here happens at
multiples of `TICK`, and what arrives waits for a few turns of its process, most of it for the same number of turns: a cut, the
repeat of its request and the end of a handler often meet in one turn.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import httptools
from typing_extensions import override

from limpet.config import Limits
from limpet.fronts.http.front import HttpFront
from limpet.fronts.http.http1.connection import HttpConnection
from limpet.fronts.http.http1.deadlines import Deadlines
from limpet.fronts.http.http1.members import Members
from tests.simulation.loop import Actor, SimLoop
from tests.simulation.network import Call, Headers, Json, Network, Node

TICK: Final = 1 / 128
"""Seconds. A power of two: sums of it are exact, so two ways to one moment meet."""
_TURNS: Final = 9
_TOGETHER: Final = 0.5
"""The share of the bytes of one moment that arrives in the same turn."""


class SocketNode(Node):
    """A server that listens on simulated sockets."""

    def __init__(self, actor: Actor, front: HttpFront, limits: Limits) -> None:
        super().__init__(actor, front)
        self._front = front
        self._limits = limits
        self._members: Members | None = None

    def connect(self, call: "SocketCall") -> None:
        """Accept a connection with one request. Runs as the actor."""
        if self._members is None:
            self._members = Members(self._front.serve, Deadlines(self._limits, 5.0))
        call.protocol = HttpConnection(self._members)
        call.protocol.connection_made(_Transport(call))
        call.protocol.data_received(call.request)


class SocketCall(Call):
    """One connection with one request."""

    def __init__(self, network: "TickNetwork", node: Node, scope: Json, body: bytes) -> None:
        super().__init__(network, node, scope, body)
        lines = [b"%b: %b\r\n" % header for header in scope["headers"]]
        length = b"content-length: %d\r\n\r\n" % len(body)
        self.request: bytes = b"".join(
            [scope["method"].encode(), b" /mcp HTTP/1.1\r\n", *lines, length, body]
        )
        self.protocol: HttpConnection | None = None

    @property
    def is_known_to_be_broken(self) -> bool:
        return self._server_knows

    @override
    def _hear_of_it(self) -> None:
        if not self._server_knows:
            super()._hear_of_it()
            if self.protocol is not None:
                self.protocol.connection_lost(None)

    @override
    def _take(self, message: Json) -> None:
        super()._take(message)
        if self.whole:
            self._network.later(self._hear_of_it, context=self.node.actor.context)

    def put(self, message: Json) -> None:
        """Put a part of the response on the wire."""
        self._arrives = max(self._arrives, self._loop.time() + self._network.delay())
        self._loop.call_at(self._arrives, self._take, message, context=self._network.outside)

    def closed_by_server(self) -> None:
        """End both sides."""
        self._network.later(self.lose)
        self._loop.call_soon(self._hear_of_it, context=self.node.actor.context)


class _Transport(asyncio.Transport):
    """The server's side of a connection. It parses the written bytes, as a client would."""

    def __init__(self, call: SocketCall) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 8000)})
        self._call = call
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._is_closed = False

    @override
    def write(self, data: Any) -> None:
        if not self.is_closing():
            self._parser.feed_data(bytes(data))

    @override
    def is_closing(self) -> bool:
        return self._is_closed or self._call.is_known_to_be_broken

    @override
    def close(self) -> None:
        if not self.is_closing():
            self._is_closed = True
            self._call.closed_by_server()

    abort = close

    @override
    def can_write_eof(self) -> bool:
        return True

    @override
    def write_eof(self) -> None:
        self.close()

    @override
    def pause_reading(self) -> None:
        """Nothing follows the request."""

    resume_reading = pause_reading

    @override
    def get_write_buffer_size(self) -> int:
        return 0

    # Called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        head = {
            "type": "http.response.start",
            "status": self._parser.get_status_code(),
            "headers": self._headers,
        }
        self._call.put(head)

    def on_body(self, body: bytes) -> None:
        self._call.put({"type": "http.response.body", "body": body, "more_body": True})

    def on_message_complete(self) -> None:
        self._call.is_written = True
        self._call.put({"type": "http.response.body", "body": b""})


class TickNetwork(Network):
    """A network whose times are multiples of a tick. Arriving bytes wait for a few passes of the loop."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop)
        self._tick, self._turns = 0.0, 0

    @override
    def delay(self) -> float:
        return TICK * int(self.loop.random.random() * 1.25)

    @override
    def later(self, act: Callable[[], None], *, context: Any = None) -> None:
        context = context or self.outside
        self.loop.call_later(self.delay(), self._arrived, act, context, context=context)

    def _arrived(self, act: Callable[[], None], context: Any) -> None:
        random, now = self.loop.random.random, self.loop.time()
        if self._tick != now:
            self._tick, self._turns = now, int(random() * _TURNS)
        self._hop(self._turns if random() < _TOGETHER else int(random() * _TURNS), act, context)

    def _hop(self, turns: int, act: Callable[[], None], context: Any) -> None:
        if turns:
            self.loop.call_soon(self._hop, turns - 1, act, context, context=context)
        else:
            act()

    @override
    def request(self, node: Node, method: str, headers: Headers, body: bytes = b"") -> SocketCall:
        scope = {"method": method, "headers": headers}
        call = SocketCall(self, node, scope, body)
        self.later(lambda: self._arrive(call), context=node.actor.context)
        return call

    @override
    def _arrive(self, call: Call) -> None:
        if not call._is_open:
            return
        node = call.node
        assert isinstance(node, SocketNode)
        assert isinstance(call, SocketCall)
        node.calls[call] = None
        node.connect(call)
