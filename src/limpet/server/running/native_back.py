"""The native back: functions of this process answer exchanges, by one table from method to handler.

A result stays a Struct until it is encoded, once, at the end.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from limpet.core.lifecycle import SessionInput
from limpet.engine.access import Access
from limpet.engine.back import Outside
from limpet.engine.caller import Caller
from limpet.engine.exchange import Exchange
from limpet.engine.observed_store import unobserved
from limpet.engine.session import Session
from limpet.engine.sessionless_client import SessionlessClient
from limpet.errors import ConfigError, InvalidParams, MethodNotFound, ResourceNotFound
from limpet.protocol.methods import NOT_IN_SESSIONS, NOT_SESSIONLESS
from limpet.protocol.mirrored_headers import MirroredParameter
from limpet.protocol.older import fit
from limpet.protocol.sessionless import RequestMeta
from limpet.protocol.subscriptions import Filter, Kind, list_kinds
from limpet.protocol.types import Implementation
from limpet.protocol.versions import LATEST, SESSIONLESS
from limpet.server.authoring.completions import check_completers
from limpet.server.authoring.included_servers import check_unguarded
from limpet.server.authoring.middleware import Handler, surround
from limpet.server.authoring.registration import Registration
from limpet.server.catalog.catalog import View
from limpet.server.context.session_view import SessionView
from limpet.server.running.description import describe, has_tasks, sessionless_capabilities
from limpet.server.running.method_handlers import MethodHandlers
from limpet.server.running.scope_rules import find_resource
from limpet.server.running.sessionless_results import SessionlessResults
from limpet.stores.base import NoState, NoTasks, SessionRecord, refuse_state, refuse_tasks
from limpet.wire.jsonrpc import Request, encode

if TYPE_CHECKING:
    from limpet.server.authoring.lifespan import Lifespan


class NativeBack:
    """Answers exchanges with the functions of a server."""

    __slots__ = ("_encode_sessionless", "_outside", "_server", "access", "handlers")

    def __init__(self, server: Registration) -> None:
        self._server = server
        self._outside: Outside | None = None
        self._encode_sessionless = SessionlessResults(server.info).encode
        self.access: Access = server.scopes.access
        self.handlers: Mapping[str, Handler] = {}
        """The handler of each method."""
        self.compose()

    def compose(self, *, middleware: bool = True) -> None:
        """Put the middleware of the server around the handlers; or not, if it is around more than them."""
        handlers, chain = MethodHandlers(self._server).table(), self._server.declared.middleware
        self.handlers = surround(handlers, chain, self._server) if chain and middleware else handlers

    async def start(self, outside: Outside) -> None:
        """Enter the lifespans: the server's, then those that it includes.

        Raises:
            ConfigError: an included server is guarded, the store lacks a part that the server needs, or a completion is
                for a prompt that does not exist.
        """
        server = self._server
        if server.is_built:
            store = unobserved(server.engine.store)
            if server.settings.state == "principal" and isinstance(store, NoState):
                refuse_state(store)
            if has_tasks(server) and isinstance(store, NoTasks):
                refuse_tasks(store)
        check_unguarded(server.declared.all_included())
        entered: list[Lifespan] = []
        try:
            for part in (server, *server.declared.all_included()):
                await part.declared.lifespan.enter(outside.failed)
                entered.append(part.declared.lifespan)
            # A lifespan may register components.
            server.declared.declare_tools()
            self._check_collect()
            check_completers(
                server.declared.completers(),
                server.prompts.entries,
                {**server.resources.entries, **server.templates.entries},
            )
        except BaseException:
            for lifespan in reversed(entered):
                await lifespan.leave(outside.failed)
            raise
        self._outside = outside
        server.declared.list_changes.start()

    def _check_collect(self) -> None:
        """Refuse a tool with the name of the tool that collects results."""
        server = self._server
        if not server.is_built or not server.engine.hand_over.is_on:
            return
        name = server.engine.hand_over.collect
        if any(server.name_for_clients("tools", tool) == name for tool in server.tools.entries):
            raise ConfigError(
                f"tool {name}: hand-over has a tool with this name; rename one of them (collect_tool=…, --collect-tool NAME)"
            )

    async def stop(self) -> None:
        """Leave the lifespans, the last one first."""
        self._server.declared.list_changes.stop()
        outside, self._outside = self._outside, None
        for part in reversed((self._server, *self._server.declared.all_included())):
            if outside is not None:
                await part.declared.lifespan.leave(outside.failed)

    def initialize(self, record: SessionRecord, caller: Caller) -> dict[str, Any]:  # noqa: ARG002
        """Return the server's description in the format of the session's revision."""
        described = describe(self._server)
        return {**described, "serverInfo": fit(record.version, described["serverInfo"])}

    async def dropped(self, record: SessionRecord) -> None:
        """Do nothing: this back keeps no data for a session."""

    @property
    def server_info(self) -> Implementation:
        return self._server.info

    def mirrored(self, request: Request, meta: RequestMeta, caller: Caller) -> tuple[MirroredParameter, ...]:  # noqa: ARG002
        """Return the parameters of the called tool that HTTP headers repeat."""
        tools, name = self._server.tools, request.params.get("name")
        if request.method != "tools/call" or type(name) is not str:
            return ()
        entry = tools.entries.get(name)
        if entry is None or not entry.mirrored:
            return ()
        # A header that does not fit must not show that the tool exists.
        return entry.mirrored if tools.get(name, View(caller)) is not None else ()

    def lists(self, key: str) -> list[Kind]:  # noqa: ARG002 - all sessions of a server have the same lists
        return list_kinds(describe(self._server)["capabilities"])

    async def honoured(self, client: SessionlessClient, wanted: Filter, caller: Caller) -> Filter:
        """Return the part of a listener's filter that it gets notifications for: declared, and visible to it."""
        server = self._server
        honoured = wanted.within(sessionless_capabilities(server))
        uris = honoured.names.get("resource", ())
        tasks = await server.engine.tasks.known(honoured.names.get("task", ()), client.record.principal)
        view = View(caller)
        shown = [uri for uri in uris if find_resource(server, uri, view) is not None]
        return honoured.only("resource", shown).only("task", tasks)

    async def handle(self, exchange: Exchange) -> bytes:
        """Find the handler, call it, encode its result."""
        request, revision = exchange.inner, exchange.session.revision
        handler = self.handlers.get(request.method)
        if handler is None or request.method in (
            NOT_SESSIONLESS if revision is SESSIONLESS else NOT_IN_SESSIONS
        ):
            raise MethodNotFound(request.method[:100])
        if revision is LATEST:
            return encode(await handler(exchange, request.params))
        if revision is not SESSIONLESS:
            return encode(fit(revision.name, await handler(exchange, request.params)))
        try:
            return self._encode_sessionless(await handler(exchange, request.params))
        except ResourceNotFound as error:
            # 2026-07-28 has no code for an unknown resource: it is an invalid parameter.
            raise InvalidParams(error.message, error.data) from error

    async def notify(self, session: Session, method: str, params: dict[str, Any]) -> None:  # noqa: ARG002
        """Process a notification of a client; unknown ones are ignored."""
        if method == "notifications/roots/list_changed":
            await self._call("roots_changed", session)

    @property
    def hears_opened(self) -> bool:
        """True if the server, or one that it includes, has a listener of `opened`."""
        declared = self._server.declared
        return declared.listeners.has("opened") or (
            bool(declared.included)
            and any(part.declared.listeners.has("opened") for part in declared.all_included())
        )

    async def opened(self, session: Session) -> None:
        await self._call("opened", session)

    async def detached(self, session: Session) -> None:
        await self._call("detached", session)

    async def reattached(self, session: Session) -> None:
        await self._call("reattached", session)

    async def closed(self, session: Session, reason: SessionInput) -> None:
        """Call the listeners, and forget the visibility of components for this session."""
        server = self._server
        await self._call("closed", session, reason.value)
        for catalog in (server.tools, server.resources, server.templates, server.prompts):
            catalog.forget(session.record.key)

    async def _call(self, event: str, session: Session, *reason: str) -> None:
        """Call the listeners of an event."""
        server = self._server
        for part in (server, *server.declared.all_included()):
            await part.declared.listeners.call(
                event, SessionView(session, server), *reason, observer=server.engine.observer
            )

    @property
    def has_home(self) -> bool:
        """Return False: any replica answers any request."""
        return False

    async def moved(self, record: SessionRecord) -> None:
        """Do nothing: sessions have no home."""

    async def serve(self, record: SessionRecord, caller: Caller) -> None:
        """Do nothing: sessions have no home."""

    async def left(self, key: str) -> None:
        """Do nothing: sessions have no home."""
