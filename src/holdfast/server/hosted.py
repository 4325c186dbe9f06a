"""`Hosted`: an object of another Python framework, served by Holdfast in this process."""

from typing import Unpack

from holdfast.backs.hosted.target import HostedTarget
from holdfast.server.proxy import Proxy, ProxyArguments
from holdfast.upstream.settings import ClientLimits, ClientTimes


class Hosted(Proxy):
    """An unmodified object of `mcp` 1, `mcp` 2 or fastmcp 4, served by Holdfast. Each session has its own run."""

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
        protocol_version     the era between Holdfast and the object: sessions, so that its handlers can ask the client
                             in the middle of a call; or sessionless, for handlers that return `input_required` themselves

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
