"""A proxy back in front of a server of this process: one engine in front of another."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from limpet import Client, Server, Settings
from limpet.backs.components import ComponentTable
from limpet.backs.proxy.back import ProxyBack
from limpet.backs.proxy.options import ProxyOptions
from limpet.backs.proxy.target import Target, UpstreamClient
from limpet.backs.shown import shown_back
from limpet.client.in_process import InProcessConnector
from limpet.engine.caller import Caller
from limpet.engine.engine import Engine
from limpet.engine.sessions import ANONYMOUS
from limpet.ports import Ports, SystemRandom
from limpet.testing import NotingObserver
from limpet.upstream.connectors import Connector
from limpet.upstream.link import Receiver, UpstreamLink
from limpet.upstream.settings import ClientLimits, ClientTimes
from tests.support import LoopClock

TIMES = ClientTimes(patience=2.0, backoff=(0.005, 0.02), probe=2.0)


class Behind(Target):
    """A server of this process as a target. `break_links` ends its connections as a crash would."""

    def __init__(self, server: Server, version: str = "auto", *, names_calls: bool = False) -> None:
        super().__init__("behind", version=version, limits=ClientLimits(), times=TIMES)
        self.names_calls = names_calls
        self.server = server
        self.clients: list[UpstreamClient] = []
        """For whom connectors were made, in order."""
        self.links: list[UpstreamLink] = []
        self.stopped = False

    def connector(self, client: UpstreamClient) -> Connector:
        self.clients.append(client)
        return _Connector(self, self.ports)

    def key(self, client: UpstreamClient) -> bytes:
        return client.caller.headers.get("x-key", "").encode()

    async def stop(self) -> None:
        self.stopped = True

    async def break_links(self) -> None:
        """End every connection from the server's side."""
        for link in self.links:
            if not link.lost:
                # The reader of the duplex ends, as at the end of a process.
                link._duplex._closed = True  # type: ignore[attr-defined]
                link._duplex._arrived.put_nowait(b"")  # type: ignore[attr-defined]

    @property
    def living(self) -> int:
        """How many connections are open."""
        return sum(not link.lost for link in self.links)


class _Connector(InProcessConnector):
    def __init__(self, behind: Behind, ports: Ports) -> None:
        super().__init__(behind.server, Caller(ANONYMOUS), TIMES.probe, ports.observer)
        self._behind = behind

    async def connect(self, receiver: Receiver) -> UpstreamLink:
        link = await super().connect(receiver)
        self._behind.links.append(link)
        return link


class Front:
    """The engine in front. Clients of this process connect to it."""

    def __init__(
        self,
        behind: Behind,
        options: ProxyOptions,
        settings: Settings,
        components: ComponentTable | None = None,
    ) -> None:
        self.notes = NotingObserver()
        self.clock = LoopClock()
        self.back = ProxyBack(behind, options, Ports(self.clock, SystemRandom(), self.notes))
        naming = None if components is None else components.naming()
        shown = shown_back(self.back, naming, self.back.is_hidden, self.notes)
        self.engine = Engine(shown, settings, clock=self.clock, observer=self.notes)

    def client(self, version: str = "auto", **options: Any) -> Client:
        return Client(self, protocol_version=version, **options)


@asynccontextmanager
async def in_front(
    behind: Behind,
    options: ProxyOptions | None = None,
    settings: Settings | None = None,
    components: ComponentTable | None = None,
) -> AsyncIterator[Front]:
    """Serve a target; every connection to it must be closed afterwards."""
    front = Front(behind, options or ProxyOptions(), settings or Settings(), components)
    await front.engine.ensure_started()
    try:
        yield front
    finally:
        await front.engine.aclose()
    assert behind.living == 0
    assert behind.stopped
