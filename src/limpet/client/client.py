"""The client: concurrent, with limits, for both eras. It reconnects by itself.

async with Client("https://example.com/mcp", sampling=on_sample) as client:
    result = await client.call_tool("forecast", {"city": "Oslo"})
"""

from collections.abc import AsyncIterator, Mapping, Sequence
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
from limpet.client.paging import Pages
from limpet.client.results import typed
from limpet.client.targets import ParsedTarget, Target, find
from limpet.client.tools import Tools
from limpet.engine.caller import Caller
from limpet.engine.sessions import ANONYMOUS
from limpet.errors import ConfigError
from limpet.ops.log import LogObserver
from limpet.ports import Clock, Observer, Ports, Random, SystemClock, SystemRandom
from limpet.protocol.content import ResourceContents
from limpet.protocol.listing import Prompt, Resource, ResourceTemplate, Root
from limpet.protocol.params import LoggingLevel, PromptReference, ResourceReference
from limpet.protocol.results import (
    CompleteResult,
    Completion,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
)
from limpet.protocol.sessionless import TASKS
from limpet.tracing import traced
from limpet.transports.child import ChildOptions
from limpet.upstream.connectors import ChildConnector, Connector, HttpConnector
from limpet.upstream.negotiation import EraMemory
from limpet.upstream.profile import ClientProfile
from limpet.upstream.settings import ClientLimits, ClientTimes


class Client(Tools, ListeningClient):
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

    # Resources

    async def list_resources(self, *, fresh: bool = False) -> list[Resource]:
        """Return every resource, over all pages."""
        return [resource async for resource in self.resources(fresh=fresh)]

    async def resources(self, *, fresh: bool = False) -> AsyncIterator[Resource]:
        """Yield every resource, requesting the next page when it is needed."""
        async for page in Pages(self, "resources/list", ListResourcesResult, fresh=fresh):
            for resource in page.resources:
                yield resource

    async def list_resource_templates(self, *, fresh: bool = False) -> list[ResourceTemplate]:
        """Return every resource template, over all pages."""
        return [template async for template in self.resource_templates(fresh=fresh)]

    async def resource_templates(self, *, fresh: bool = False) -> AsyncIterator[ResourceTemplate]:
        """Yield every resource template, requesting the next page when it is needed."""
        pages = Pages(self, "resources/templates/list", ListResourceTemplatesResult, fresh=fresh)
        async for page in pages:
            for template in page.resource_templates:
                yield template

    async def read_resource(
        self, uri: str, *, timeout: float | None = None, fresh: bool = False
    ) -> list[ResourceContents]:
        """Return a resource's contents."""
        result = await self.request("resources/read", {"uri": uri}, timeout=timeout, fresh=fresh)
        return typed(result, ReadResourceResult, "resources/read").contents

    # Prompts

    async def list_prompts(self, *, fresh: bool = False) -> list[Prompt]:
        """Return every prompt, over all pages."""
        return [prompt async for prompt in self.prompts(fresh=fresh)]

    async def prompts(self, *, fresh: bool = False) -> AsyncIterator[Prompt]:
        """Yield every prompt, requesting the next page when it is needed."""
        async for page in Pages(self, "prompts/list", ListPromptsResult, fresh=fresh):
            for prompt in page.prompts:
                yield prompt

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> GetPromptResult:
        """Return a prompt's messages."""
        params: dict[str, Any] = {"name": name}
        if arguments:
            params["arguments"] = dict(arguments)
        return typed(
            await self.request("prompts/get", params, timeout=timeout), GetPromptResult, "prompts/get"
        )

    async def complete(
        self,
        ref: PromptReference | ResourceReference,
        argument: str,
        value: str = "",
        *,
        known: Mapping[str, str] | None = None,
    ) -> Completion:
        """Return completions for the beginning of an argument; `known` are the arguments that are given already."""
        params: dict[str, Any] = {"ref": ref, "argument": {"name": argument, "value": value}}
        if known:
            params["context"] = {"arguments": dict(known)}
        result = await self.request("completion/complete", params)
        return typed(result, CompleteResult, "completion/complete").completion

    # The connection

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
