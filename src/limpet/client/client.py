"""The client: concurrent, with limits, for both eras. It reconnects by itself.

async with Client("https://example.com/mcp", sampling=on_sample) as client:
    result = await client.call_tool("forecast", {"city": "Oslo"})
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from limpet import __version__
from limpet.auth import Principal
from limpet.auth.authorizer import Authorizer, Token, authorizer_of
from limpet.client.base import ClientOptions
from limpet.client.callback_queue import Callback
from limpet.client.handlers import Handlers, OnElicit, OnRoots, OnSample
from limpet.client.in_process import InProcessConnector
from limpet.client.listening import ListeningClient
from limpet.client.prompts import Prompts
from limpet.client.resources import Resources
from limpet.client.targets import ParsedTarget, Target, find
from limpet.client.tools import Tools
from limpet.engine.caller import Caller
from limpet.engine.sessions import ANONYMOUS
from limpet.errors import ConfigError
from limpet.ops.log import LogObserver
from limpet.ports import Clock, Observer, Ports, Random, SystemClock, SystemRandom
from limpet.protocol.listing import Root
from limpet.protocol.params import LoggingLevel
from limpet.protocol.sessionless import TASKS
from limpet.tracing import traced
from limpet.transports.child import ChildOptions
from limpet.upstream.connectors import ChildConnector, Connector, HttpConnector
from limpet.upstream.negotiation import EraMemory
from limpet.upstream.profile import ClientProfile
from limpet.upstream.settings import ClientLimits, ClientTimes


class Client(Tools, Resources, Prompts, ListeningClient):
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
        principal: Principal | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        protocol_version: str = "auto",
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
        sampling, elicitation, roots   answer requests of the server; passing one declares the capability
        on_log, on_notification        receive log messages (from level info on, see `set_log_level`), and every
                                       notification except progress
        auth                           a bearer token, a function that returns one, or an Authorizer
        headers                        headers of every request over HTTP; for a `Server`, `ctx.headers`
        principal                      for a `Server`: the user as whom the client calls, as a verifier would return it
        env, cwd                       for a command
        protocol_version               auto, sessions, sessionless, or one revision and no other
        timeout                        seconds a call may take if it has no `timeout` of its own
        repeat_safe                    repeat calls of tools that are annotated as read-only or idempotent
        max_incoming, in_order         how many requests of the server are handled at once; one at a time, in order
        auto_input                     False: input that the server asks for is returned to the caller
        """
        handlers = Handlers(sampling, elicitation, roots)
        limits = replace(limits, incoming=1 if in_order else max_incoming or limits.incoming)
        times = replace(times, call=timeout or times.call)
        clock, random, observer = ports or (SystemClock(), SystemRandom(), LogObserver())
        given = Ports(clock, random, traced(observer))
        found = find(target, cwd).adding(env or {}, cwd, headers or {})
        connector = _connector(found, principal, authorizer_of(auth), limits, times, given)
        profile = _profile(handlers, capabilities or {}, info or {})
        if on_log is not None or on_notification is not None:
            # 2026-07-28 sends log messages only to a client that asks. A session has this level by default.
            profile.level = "info"
        callbacks = (on_log, on_notification)
        options = ClientOptions(
            connector, handlers, profile, protocol_version, eras, callbacks, auto_input, limits, times, given
        )
        super().__init__(options)
        self._raise_on_error, self._repeat_safe = raise_on_error, repeat_safe

    def __repr__(self) -> str:
        return f"<Client {self._connection}, {self._connection.incoming}>"

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
        """Check that the server answers."""
        if self.agreed.is_sessionless:
            await self.request("server/discover", timeout=timeout, fresh=True)
        else:
            await self.request("ping", timeout=timeout)

    async def set_log_level(self, level: LoggingLevel) -> None:
        """Choose the lowest level of log messages that the server sends; every later session gets it too."""
        self._level = self._profile.level = level
        if not self.agreed.is_sessionless:
            await self.request("logging/setLevel", {"level": level})

    async def roots_changed(self) -> None:
        """Notify the server that the roots have changed."""
        if not self.agreed.is_sessionless:
            await self.notify("notifications/roots/list_changed")


def _connector(
    found: ParsedTarget,
    principal: Principal | None,
    authorizer: Authorizer | None,
    limits: ClientLimits,
    times: ClientTimes,
    ports: Ports,
) -> Connector:
    if found.server is None and principal is not None:
        raise ConfigError(
            "principal= is for a server in this process; over HTTP, auth= carries the user's token"
        )
    if found.url:
        return HttpConnector(
            found.url, authorizer=authorizer, headers=found.headers, limits=limits, times=times, ports=ports
        )
    if found.server is not None:
        if authorizer is not None:
            raise ConfigError("a server in this process checks no token: pass principal= instead of auth=")
        headers = {name.lower(): value for name, value in found.headers.items()}
        caller = Caller(ANONYMOUS if principal is None else principal.key, principal, headers)
        return InProcessConnector(found.server, caller, times.probe, ports.observer)
    options = ChildOptions(env=found.env, cwd=found.cwd, message_bytes=limits.message)
    return ChildConnector(found.command, options, times=times, observer=ports.observer)


def _profile(handlers: Handlers, capabilities: Mapping[str, Any], info: Mapping[str, Any]) -> ClientProfile:
    declared = {**handlers.capabilities(), "extensions": {TASKS: {}}, **capabilities}
    return ClientProfile({"name": "limpet", "version": __version__, **info}, declared)
