"""A server that is made of servers of this process, for tests: each part is a server behind with its own connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from limpet import Client, Context, Server
from limpet.backs.proxy.options import ProxyOptions
from limpet.errors import NotSent
from limpet.server.proxy import Proxy
from limpet.testing import NotingObserver
from limpet.upstream.connectors import Connector
from limpet.upstream.link import Receiver, UpstreamLink
from tests.backs.behind import Behind

ERAS: Final = ("sessions", "sessionless")
PATIENCE: Final = 2.0


class Gate:
    """Whether a part can be reached: `down` refuses connections, `slow` makes each message of it wait."""

    def __init__(self) -> None:
        self.is_down = False
        self.open = asyncio.Event()
        self.open.set()
        self.attempts = 0


class Place(Behind):
    """A server of this process that may be down, or hang while it connects."""

    def __init__(self, server: Server, version: str = "auto") -> None:
        super().__init__(server, version)
        self.gate = Gate()

    def connector(self, client: Any) -> Connector:
        return _Gated(super().connector(client), self.gate)


class _Gated(Connector):
    def __init__(self, inner: Connector, gate: Gate) -> None:
        self._inner = inner
        self._gate = gate
        self.probe_seconds = inner.probe_seconds
        self.answer_seconds = inner.answer_seconds
        self.remembered_as = inner.remembered_as

    async def connect(self, receiver: Receiver) -> UpstreamLink:
        self._gate.attempts += 1
        await self._gate.open.wait()
        if self._gate.is_down:
            raise NotSent("the part is down")
        return await self._inner.connect(receiver)


class Part(Proxy):
    """A part."""

    summary = "a part"

    def __init__(self, server: Server, version: str = "auto", **arguments: Any) -> None:
        self.place = Place(server, version)
        self.server = server
        options = ProxyOptions(included_seconds=PATIENCE)
        super().__init__(self.place, {"options": options, **arguments})  # type: ignore[typeddict-item]


def server_of(name: str, *tools: str) -> Server:
    """Return a server whose components say its name."""
    server = Server(name, instructions=f"I am {name}.")
    for tool in tools:
        server.add_tool(_saying(f"{name}.{tool}"), name=tool)

    @server.resource(f"note://{name}")
    def note() -> str:
        return f"the note of {name}"

    @server.resource(f"{name}://{{topic}}")
    def about(topic: str) -> str:
        return f"{name} about {topic}"

    @server.prompt("ask")
    def ask(topic: str = "") -> str:
        return f"ask {name} about {topic}"

    @server.completion(prompt="ask", argument="topic")
    def topics(value: str) -> list[str]:
        return [f"{name} {value}"]

    return server


def _saying(text: str) -> Any:
    async def say(ctx: Context) -> str:
        return text

    return say


@asynccontextmanager
async def made_of(
    parts: dict[str, Part], own: Server | None = None, *, prefixed: bool = True
) -> AsyncIterator[Server]:
    """Yield a server with these parts; all their connections must be closed afterwards."""
    server = own or Server("all", observer=NotingObserver())
    for name, part in parts.items():
        server.include(part, name if prefixed else None, name=name)
    try:
        yield server
    finally:
        if server.is_built:
            await server.engine.aclose()
    for name, part in parts.items():
        assert part.place.living == 0, name


def client_of(server: Server, era: str, **options: Any) -> Client:
    """Return a client of one era."""
    return Client(server, protocol_version=era, **options)
