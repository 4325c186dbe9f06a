"""`Hosted`: an object of another Python framework, served by Holdfast in this process."""

from holdfast.auth import Verifier
from holdfast.backs.hosted.target import HostedTarget
from holdfast.backs.proxy.options import ProxyOptions
from holdfast.config import Settings
from holdfast.ports import Observer
from holdfast.server.proxies import Proxy, overridden
from holdfast.stores.base import Store
from holdfast.upstream.settings import ClientLimits, ClientTimes


class Hosted(Proxy):
    """An unmodified object of `mcp` 1, `mcp` 2 or fastmcp 4, served by Holdfast. Each session has a run of its own."""

    def __init__(  # noqa: PLR0913 - everything but the object has a default
        self,
        found: object,
        *,
        place: str = "app.py",
        concurrency: int | None = None,
        strict: bool = False,
        options: ProxyOptions = ProxyOptions(),  # noqa: B008 - frozen
        protocol_version: str = "legacy",
        limits: ClientLimits = ClientLimits(),  # noqa: B008 - frozen
        times: ClientTimes = ClientTimes(),  # noqa: B008 - frozen
        settings: Settings = Settings(),
        store: Store | str | None = None,
        namespace: str | None = None,
        verifier: Verifier | None = None,
        observer: Observer | None = None,
    ) -> None:
        """Describe what is hosted. Its lifespan is entered when the process begins to serve.

        found                the object: FastMCP, MCPServer or lowlevel.Server
        place                the file of the object, for error texts
        concurrency          how many calls of one run are handled at once; None: no limit
        strict               close a session when its run fails
        options              the limits of a proxy; the arguments above override its members
        protocol_version     what we speak with the object: legacy, so that its handlers can ask the client in the
                             middle of a call; or modern, for handlers that return `input_required` themselves
        limits, times        of the connections to the object

        The other arguments are those of `Server`.

        Raises:
            ConfigError: the object cannot be hosted, or an option is invalid.
        """
        target = HostedTarget(found, place=place, version=protocol_version, limits=limits, times=times)
        super().__init__(
            target,
            overridden(options, concurrency=concurrency, strict=strict),
            settings=settings,
            store=store,
            namespace=namespace,
            verifier=verifier,
            observer=observer,
        )
        self._class = type(found).__qualname__

    @property
    def summary(self) -> str:
        """The class of the object."""
        return f"hosts a {self._class} object"
