"""The client: concurrent, bounded, both eras, and it recovers by itself.

async with Client("https://example.com/mcp", sampling=on_sample) as client:
    result = await client.call_tool("forecast", {"city": "Oslo"})
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from holdfast import __version__
from holdfast.auth.authorizer import Authorizer, Bearer, Token
from holdfast.client.base import REMEMBERED, Options
from holdfast.client.connection import EraMemory
from holdfast.client.dialers import Route
from holdfast.client.feed import Callback
from holdfast.client.handlers import Handlers, OnElicit, OnRoots, OnSample
from holdfast.client.hello import Hello
from holdfast.client.resources import Resources
from holdfast.client.settings import ClientLimits, ClientTimes
from holdfast.client.targets import Target, find
from holdfast.client.tools import Tools
from holdfast.engine.observe import LogObserver
from holdfast.errors import ConfigError
from holdfast.ports import Clock, Observer, Random, SystemClock, SystemRandom
from holdfast.protocol.listing import Root
from holdfast.protocol.params import LoggingLevel
from holdfast.protocol.sessionless import TASKS, VERSION
from holdfast.protocol.versions import REVISIONS
from holdfast.transports.child import ChildOptions

VERSIONS = ("auto", "modern", "legacy", VERSION, *REVISIONS)


class Client(Tools, Resources):
    """A client of one MCP server: a URL, a command, a file of a server, or a `Server` in this process."""

    def __init__(  # noqa: PLR0913 - everything has a default
        self,
        target: Target,
        *,
        sampling: OnSample | None = None,
        elicitation: OnElicit | None = None,
        roots: OnRoots | Sequence[Root | str] | None = None,
        on_log: Callback | None = None,
        on_notification: Callback | None = None,
        auth: Token | Authorizer | None = None,
        headers: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        version: str = "auto",
        timeout: float | None = None,
        raise_on_error: bool = True,
        repeat_safe: bool = False,
        max_incoming: int | None = None,
        in_order: bool = False,
        auto_input: bool = True,
        capabilities: Mapping[str, Any] | None = None,
        info: Mapping[str, Any] | None = None,
        limits: ClientLimits = ClientLimits(),  # noqa: B008 - frozen
        times: ClientTimes = ClientTimes(),  # noqa: B008 - frozen
        eras: EraMemory | None = None,
        ports: tuple[Clock, Random, Observer] | None = None,
    ) -> None:
        """Describe the client; `async with` connects it.

        target                         a URL; a command, as words or as one line; the path of a .py or .js file;
                                       {"mcpServers": {...}} with one server; or a `Server`
        sampling, elicitation, roots   answer what the server asks; giving one declares the capability
        on_log, on_notification        told of log messages, and of every notification
        auth                           a bearer token, a function that gives one, or an Authorizer
        env, cwd                       for a command
        version                        auto, modern, legacy, or one revision and no other
        timeout                        seconds a call may take unless it says otherwise
        repeat_safe                    repeat calls of tools that call themselves read-only or idempotent
        max_incoming, in_order         how many of the server's requests are handled at once; one by one
        auto_input                     False: what the server wants to know comes back to the caller
        """
        handlers = Handlers(sampling, elicitation, roots)
        hello = _hello(handlers, capabilities or {}, info or {})
        callbacks = (on_log, on_notification)
        options = Options(handlers, hello, _checked(version), eras or REMEMBERED, callbacks, auto_input)
        found = find(target, cwd)
        route = Route(
            target=found,
            authorizer=Bearer(auth) if isinstance(auth, str) or callable(auth) else auth,
            headers={**found.headers, **(headers or {})},
            child=ChildOptions(
                env={**found.env, **(env or {})}, cwd=cwd or found.cwd, message_bytes=limits.message
            ),
            limits=replace(limits, incoming=1 if in_order else max_incoming or limits.incoming),
            times=replace(times, call=timeout or times.call),
            ports=ports or (SystemClock(), SystemRandom(), LogObserver()),
        )
        super().__init__(route, options)
        self._raise_on_error, self._repeat_safe = raise_on_error, repeat_safe

    def __repr__(self) -> str:
        return f"<Client {self._connection}, {self._incoming}>"

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            NotSent: the server cannot be reached.
            VersionRefused: there is no protocol version in common.
        """
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def ping(self, *, timeout: float | None = None) -> None:
        """See that the server is there."""
        if self.agreed.is_modern:
            await self.request("server/discover", timeout=timeout, fresh=True)
        else:
            await self.request("ping", timeout=timeout)

    async def set_log_level(self, level: LoggingLevel) -> None:
        """Say which log messages are wanted; it is said again to every later session."""
        self._level = self._hello.level = level
        if not self.agreed.is_modern:
            await self.request("logging/setLevel", {"level": level})

    async def roots_changed(self) -> None:
        """Tell the server that the roots are others now."""
        if not self.agreed.is_modern:
            await self.notify("notifications/roots/list_changed")


def _checked(version: str) -> str:
    if version not in VERSIONS:
        raise ConfigError(f"version is one of {', '.join(VERSIONS)}; not {version!r}")
    return version


def _hello(handlers: Handlers, capabilities: Mapping[str, Any], info: Mapping[str, Any]) -> Hello:
    declared = {**handlers.capabilities(), "extensions": {TASKS: {}}, **capabilities}
    return Hello({"name": "holdfast", "version": __version__, **info}, declared)
