"""`Hosted`: an object of another Python framework, served by Limpet in this process.

Each upstream connection is a run of the object.
"""

from collections.abc import Callable
from typing import Any, Unpack

from limpet.backs.hosted.frameworks import core_of, major_version
from limpet.backs.hosted.guards import Guards
from limpet.backs.hosted.lifespan import Lifespan
from limpet.backs.hosted.run import Dialect, HostedLink, HostedRun
from limpet.backs.proxy.target import Target, UpstreamClient
from limpet.engine.caller import Caller
from limpet.errors import ConfigError, LifespanEnded
from limpet.ports import Observer, Ports
from limpet.server.proxy import Proxy, ProxyArguments
from limpet.transports.threads import OWNER
from limpet.upstream.connectors import Connector
from limpet.upstream.link import Receiver, UpstreamLink
from limpet.upstream.settings import ClientLimits, ClientTimes


class HostedTarget(Target):
    """An object and its lifespan."""

    names_calls: bool = True
    needs_credentials: bool = True

    def __init__(
        self, found: object, *, place: str, version: str, limits: ClientLimits, times: ClientTimes
    ) -> None:
        self._server: Any = core_of(found, place=place)
        super().__init__(str(self._server.name), version=version, limits=limits, times=times)
        self._running: tuple[Dialect, Lifespan] | None = None
        self._guards: Guards | None = None

    async def start(self, ports: Ports, failed: Callable[[LifespanEnded], None]) -> None:
        """Enter the lifespan of the object.

        Raises:
            ConfigError: the author's code failed.
        """
        await super().start(ports, failed)
        dialect = Dialect(major_version("mcp"), in_sessions=self.version == "sessions")
        lifespan = Lifespan(self._server, ports.observer, failed)
        await lifespan.start()
        self._running = dialect, lifespan
        self._guards = Guards(self._server, ports.observer)
        self._guards.set()

    def connector(self, client: UpstreamClient) -> Connector:
        if self._running is None:
            raise ConfigError("the target has not been started")
        return HostedConnector(self._server, *self._running, client.caller, self.times, self.ports.observer)

    async def stop(self) -> None:
        """Leave the lifespan, and restore the handlers."""
        if self._guards is not None:
            self._guards.remove()
        if self._running is not None:
            await self._running[1].stop()
            self._running = None


class HostedConnector(Connector):
    """Links to one hosted object: each is a new run. A run that had a client is never given to another one."""

    def __init__(
        self,
        server: Any,
        dialect: Dialect,
        lifespan: Lifespan,
        caller: Caller,
        times: ClientTimes,
        observer: Observer,
    ) -> None:
        self.probe_seconds: float | None = times.probe
        self.answer_seconds: float | None = times.connect
        self.remembered_as: str = str(server.name)
        self._server = server
        self._dialect = dialect
        self._lifespan = lifespan
        self._caller = caller
        self._observer = observer

    async def connect(self, receiver: Receiver) -> UpstreamLink:
        """Start a run.

        Raises:
            NotSent: the lifespan of the object has ended.
        """
        context = self._lifespan.context
        # `mcp` 1 runs every handler in the context of the run, which serves one principal only.
        context.run(self._dialect.identity.variable.set, self._dialect.user_of_run(self._caller))
        context.run(OWNER.set, self._caller.owner)
        duplex = HostedRun(self._server, self._dialect, receiver, context, self._observer)
        duplex.link = HostedLink(duplex, receiver, self._observer)
        return duplex.link


class Hosted(Proxy):
    """An unmodified object of `mcp` 1, `mcp` 2 or fastmcp 4, served by Limpet. Each session has its own run."""

    is_hosted: bool = True

    def __init__(
        self,
        found: object,
        *,
        place: str = "app.py",
        protocol_version: str = "sessions",
        **shared: Unpack[ProxyArguments],
    ) -> None:
        """Describe the hosted object. Its lifespan is entered when the process begins to serve.

        found                the object: FastMCP, MCPServer or lowlevel.Server
        place                the file of the object, for error texts
        protocol_version     the era between Limpet and the object: sessions, so that its handlers can ask the client
                             in the middle of a call; or sessionless, for handlers that return `input_required`
                             themselves

        The other arguments are those of `ProxyArguments`.

        Raises:
            ConfigError: the object cannot be hosted, or an option is invalid.
        """
        target = HostedTarget(
            found,
            place=place,
            version=protocol_version,
            limits=shared.get("limits", ClientLimits()),
            times=shared.get("times", ClientTimes()),
        )
        super().__init__(target, shared)
        self._class = type(found).__qualname__

    @property
    def summary(self) -> str:
        """The class of the object."""
        return f"hosts an object of the class {self._class}"
