"""How a link to a server is opened: to a URL, or to a child process. `client/in_process.py` has the third way."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from limpet.auth.authorizer import Authorizer
from limpet.auth.urls import origin
from limpet.errors import HttpRefused
from limpet.ports import Observer, Ports
from limpet.transports.child import Child, ChildOptions
from limpet.transports.http import HttpClientOptions, HttpTransport
from limpet.upstream.duplex_link import DuplexLink
from limpet.upstream.http_link import HttpLink
from limpet.upstream.http_server import HttpServer
from limpet.upstream.link import Receiver, UpstreamLink
from limpet.upstream.settings import ClientLimits, ClientTimes
from limpet.upstream.sse_duplex import SseDuplex


class Connector(ABC):
    """Opens links to one server."""

    remembered_as: str = ""
    """The key under which the server's eras are remembered; empty: they are not remembered."""
    origin: str = ""
    """The origin of the server's URL; empty: it is not at a URL."""
    probe_seconds: float | None = None
    """How long `server/discover` may stay unanswered; None for HTTP, where a status code answers it."""
    answer_seconds: float | None = None
    """How long the whole negotiation may take; None: no limit of its own."""

    @property
    def last_words(self) -> str:
        """Details about a server that does not answer, for error messages; empty if nothing is known."""
        return ""

    @abstractmethod
    async def connect(self, receiver: Receiver) -> UpstreamLink:
        """Return a new link on which nothing has been sent.

        Raises:
            NotSent: the server cannot be reached.
        """

    async def connect_older(self, receiver: Receiver) -> UpstreamLink:  # noqa: ARG002 - only a URL can have it
        """Return a new link over the transport of 2024-11-05 for URLs.

        Raises:
            HttpRefused: the server does not have it.
            NotSent: the server cannot be reached.
        """
        raise HttpRefused(0, "the server is not behind a URL")

    async def aclose(self) -> None:  # noqa: B027 - most connectors have nothing to release
        """Release everything that the links shared. A link closes its own parts itself."""


class HttpConnector(Connector):
    """Links to a URL. They share a pool of connections.

    Several connectors may share one pool: pass it as `transport`, and close it yourself.
    """

    def __init__(
        self,
        url: str,
        *,
        authorizer: Authorizer | None = None,
        headers: Mapping[str, str] | None = None,
        limits: ClientLimits = ClientLimits(),  # noqa: B008 - frozen
        times: ClientTimes = ClientTimes(),  # noqa: B008 - frozen
        ports: Ports,
        transport: HttpTransport | None = None,
    ) -> None:
        self.remembered_as: str = url
        self.origin: str = origin(url)
        self._is_shared = transport is not None
        self._http = transport or HttpTransport(HttpClientOptions(connect_seconds=times.connect))
        lowered = {name.lower(): value for name, value in (headers or {}).items()}
        self._server = HttpServer(url, self._http, authorizer, lowered, limits, times, ports)

    async def connect(self, receiver: Receiver) -> UpstreamLink:
        """Return a new link. Nothing is sent yet."""
        return HttpLink(self._server, receiver)

    async def connect_older(self, receiver: Receiver) -> UpstreamLink:
        """Open the stream of HTTP+SSE."""
        duplex = SseDuplex(self._server, receiver.keep)
        await duplex.open()
        return DuplexLink(duplex, receiver, self._server.observer)

    async def aclose(self) -> None:
        """Close every connection, unless the pool is shared."""
        if not self._is_shared:
            await self._http.aclose()


class ChildConnector(Connector):
    """Links to a child process. Each link starts a process and stops it."""

    def __init__(
        self,
        command: Sequence[str],
        options: ChildOptions = ChildOptions(),  # noqa: B008 - frozen
        *,
        times: ClientTimes = ClientTimes(),  # noqa: B008 - frozen
        observer: Observer,
    ) -> None:
        self.probe_seconds: float | None = times.probe
        self.answer_seconds: float | None = times.connect
        self._command = command
        self._options = options
        self._observer = observer
        self.child: Child | None = None
        """The present child process."""

    async def connect(self, receiver: Receiver) -> UpstreamLink:
        """Start the process."""
        self.child = Child(self._command, self._options, receiver.reserve)
        await self.child.start()
        return DuplexLink(self.child, receiver, self._observer)

    @property
    def last_words(self) -> str:
        """The exit status of the child, if it has exited, and the last lines of its stderr."""
        return self.child.last_words if self.child is not None else ""
