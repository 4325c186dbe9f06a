"""The three ways to a server: a URL, a command, or a server in this process."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from holdfast.auth.authorizer import Authorizer
from holdfast.client.eras import origin
from holdfast.client.http_link import HttpLink, Surroundings
from holdfast.client.inside import InsidePipe
from holdfast.client.link import Link, Receiver
from holdfast.client.pipe_link import Pipe, PipeLink
from holdfast.client.settings import ClientLimits, ClientTimes
from holdfast.client.targets import Found
from holdfast.errors import ConfigError
from holdfast.ports import Clock, Observer, Random
from holdfast.transports.child import Child, ChildOptions

NewReceiver = Callable[[], Receiver]


class Route(Struct, frozen=True, kw_only=True):
    """How to go where the target says."""

    target: Found
    authorizer: Authorizer | None
    headers: Mapping[str, str]
    child: ChildOptions
    limits: ClientLimits
    times: ClientTimes
    ports: tuple[Clock, Random, Observer]


class HttpDialer:
    """Links to a URL. They share their connections."""

    def __init__(self, route: Route, new_receiver: NewReceiver) -> None:
        self.probe_seconds: float | None = None
        self.answer_seconds: float | None = None
        try:
            from holdfast.transports.http import HttpOptions, HttpTransport  # noqa: PLC0415 - aiohttp is an extra
        except ImportError:
            raise ConfigError("a client of a URL needs aiohttp: pip install 'holdfast[client]'") from None
        self.remembered_as: str = origin(route.target.url)
        self._new_receiver = new_receiver
        self._http = HttpTransport(HttpOptions(connect_seconds=route.times.connect))
        headers = {name.lower(): value for name, value in route.headers.items()}
        self._around = Surroundings(
            route.target.url, self._http, route.authorizer, headers, route.limits, route.times, route.ports
        )

    async def dial(self) -> Link:
        """Return a new link; nothing is sent yet."""
        return HttpLink(self._around, self._new_receiver())

    @property
    def last_words(self) -> str:
        """Nothing is known of a server behind a URL."""
        return ""

    async def aclose(self) -> None:
        """Drop every connection."""
        await self._http.aclose()


class PipeDialer:
    """Links over a pipe each: a child, or a conversation with a server in this process."""

    def __init__(self, route: Route, new_receiver: NewReceiver) -> None:
        self.remembered_as = ""
        self.probe_seconds: float | None = route.times.probe
        # A server of this process may take its time to start.
        self.answer_seconds: float | None = route.times.connect if route.target.command else None
        self._route = route
        self._new_receiver = new_receiver
        self.child: Child | None = None
        """The present child, where there is one."""

    async def dial(self) -> Link:
        """Start the child, or the conversation."""
        return PipeLink(await self._pipe(), self._new_receiver(), self._route.ports[2])

    async def _pipe(self) -> Pipe:
        route = self._route
        if route.target.server is not None:
            inside = InsidePipe(route.target.server.engine)
            await inside.start()
            return inside
        self.child = Child(route.target.command, route.child)
        await self.child.start()
        return self.child

    @property
    def last_words(self) -> str:
        """What a child that says nothing has done so far."""
        return self.child.last_words if self.child is not None else ""

    async def aclose(self) -> None:
        """Nothing is left: every link closes its own pipe."""


def dialer_for(route: Route, new_receiver: NewReceiver) -> HttpDialer | PipeDialer:
    """Return the dialer for a target."""
    if route.target.url:
        return HttpDialer(route, new_receiver)
    return PipeDialer(route, new_receiver)
