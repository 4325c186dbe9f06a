"""The `Back` contract over upstreams: most requests go to the server behind us, a few are answered here.

The back answers requests that concern only the conversation between one client and us: `ping`, `server/discover`, the
log level, and subscriptions (each era has different requests for them). Our conversation with the server has separate
ones.

`home="any"`: the server keeps nothing between two calls, so any upstream of a principal can answer any of its calls. A
session then has no own upstream: it uses those of 2026-07-28 clients (`upstreams.py`); each process has its own.

    concerns                      with `home="any"`
    ──────────────────────────    ──────────────────────────────────────────────────────────────────────────
    a question during a call      reaches the client of the call
    a question outside of calls   refused at once
    the log level                 kept with the session, and set at the upstream of each process before a call;
                                  messages of a call are filtered by its session's level
    resources/subscribe           refused and not declared: an upstream may end while the session lives
    list_changed                  sent to the sessions of the principal, by each process that has an upstream for it
    a client's notification       not passed on, except cancellations
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from limpet import __version__
from limpet.backs.proxy.options import ProxyOptions
from limpet.backs.proxy.outbox import ACCOUNT, Space
from limpet.backs.proxy.scopes import NO_TABLE, ScopeTable, TableRules
from limpet.backs.proxy.target import Target, UpstreamClient
from limpet.backs.proxy.translation import (
    error_for,
    without_subscriptions,
    without_tasks,
)
from limpet.backs.proxy.turns import TurnTaken
from limpet.backs.proxy.upstream import Upstream
from limpet.backs.proxy.upstreams import Upstreams, session_key_of, shared_key_of
from limpet.core.lifecycle import SessionInput
from limpet.core.names import NameKind
from limpet.engine.access import Access
from limpet.engine.back import Outside
from limpet.engine.caller import Caller
from limpet.engine.exchange import Exchange
from limpet.engine.session import Session
from limpet.engine.sessionless_client import SessionlessClient
from limpet.errors import (
    InvalidParams,
    LimpetError,
    MethodNotFound,
    SessionGone,
    UpstreamUnavailable,
    UrlElicitationRequired,
)
from limpet.ports import Ports
from limpet.protocol.idempotency import declared
from limpet.protocol.methods import METHODS, NOT_IN_SESSIONS, NOT_SESSIONLESS
from limpet.protocol.mirrored_headers import MirroredParameter
from limpet.protocol.params import LOGGING_LEVELS
from limpet.protocol.sessionless import SERVER_KEY, SUPPORTED, RequestMeta
from limpet.protocol.subscriptions import LIST_KINDS, Filter, Key, Kind, list_kinds
from limpet.protocol.versions import SESSIONLESS
from limpet.stores.base import SessionRecord
from limpet.upstream.negotiation import Agreed
from limpet.wire.jsonrpc import Request, encode

UPSTREAM_BYTES: Final = 32 * 1024
"""The memory of a connection to the server behind, without its lists (measured with a URL: 30 KB)."""
_EMPTY: Final = b"{}"
_FORWARDED: Final = frozenset(
    name
    for name, method in METHODS.items()
    if method.capability.split(".")[0] in {"tools", "resources", "prompts", "completions"}
    and not method.notification
) - {"resources/subscribe", "resources/unsubscribe"}
"""The requests that the server behind us answers."""
_TASKS: Final = frozenset(name for name in METHODS if name.startswith("tasks/"))
"""The requests of 2026-07-28 about tasks. They pass if the server behind us speaks 2026-07-28 too."""


class ProxyBack:
    """Answers exchanges through the server behind us."""

    def __init__(
        self, target: Target, options: ProxyOptions, ports: Ports, scopes: ScopeTable = NO_TABLE
    ) -> None:
        self._target = target
        self._options = options
        self._ports = ports
        self._outside: Outside | None = None
        self._space = Space(options.notifications, options.notification_bytes, options.all_notification_bytes)
        self._upstreams = Upstreams(
            self._make, options, self._listened, self._confirm_home, ports.clock, ports.observer
        )
        self._together = frozenset(options.shared_between)
        self._server_info: dict[str, Any] = {"name": target.name, "version": ""}
        self.has_home: bool = options.home == "session"
        """True if the upstream of a session, its own or a shared one, lives in one process."""
        self.shares_anonymous: bool = True
        """False if clients of other machines may call without a principal: each of their calls has its own upstream."""
        self.access: Access = scopes.access()
        rules = self.access.rules
        self.is_hidden: Callable[[NameKind, str, Caller], bool] | None = (
            rules.is_hidden if isinstance(rules, TableRules) and rules.hides else None
        )
        """Returns True for a component that is hidden from a caller (`backs/shown.py`); None: there are none."""
        self._passes_tasks = not isinstance(rules, TableRules) or rules.passes_tasks
        self._own: Mapping[str, Callable[[Exchange], Awaitable[bytes]]] = {
            "ping": self._ping,
            "server/discover": self._discover,
            "logging/setLevel": self._set_level,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }

    async def start(self, outside: Outside) -> None:
        """Get ready to connect. The server itself is contacted by the first client."""
        self._outside = outside
        self._space.charge = outside.charge(Caller(ACCOUNT), 0)
        await self._target.start(self._ports, outside.failed)
        self._upstreams.start()

    async def probe(self) -> Agreed:
        """Connect to the server once, and end the connection; return the server's description of itself.

        Raises:
            McpError: the server cannot be reached, or its answer is not usable.
        """
        async with self._upstreams.single(_own_client()) as upstream:
            agreed = upstream.agreed
        self._server_info = agreed.server or self._server_info
        if self._options.upstreams == 1:
            await self._upstreams.settled()  # The first client needs the only place.
        return agreed

    async def find_components(self) -> bool:
        """Connect to the server once, and end the connection; return True if it lists a component.

        Raises:
            McpError: the server cannot be reached, or its answer is not usable.
        """
        async with self._upstreams.single(_own_client()) as upstream:
            return await upstream.find_components()

    async def stop(self) -> None:
        """End every upstream."""
        await self._upstreams.stop()
        await self._target.stop()

    @property
    def upstreams(self) -> Upstreams:
        """The connections to the server behind us."""
        return self._upstreams

    def _make(self, client: UpstreamClient) -> Upstream:
        if self._outside is None:
            raise RuntimeError("the back has not been started")
        charge = self._outside.charge(client.caller, UPSTREAM_BYTES)
        if charge is None:
            raise UpstreamUnavailable(
                "Busy: no memory is left for another connection to the server behind; try again later",
                retry_after=30,
            )
        return Upstream(self._target, client, self._options, self._outside, self._space, self._ports, charge)

    def _listened(self, principal: str) -> set[Key]:
        return self._outside.listened(principal) if self._outside is not None else set()

    @property
    def needs_credentials(self) -> bool:
        """True if the server behind gets credentials of clients. Then they must reach the process that answers."""
        return self._target.needs_credentials

    async def _confirm_home(self, key: str) -> bool:
        return self._outside is None or await self._outside.confirm_home(key)

    # Which upstream

    @property
    def server_info(self) -> dict[str, Any]:
        """Name and version that the server behind us sent last; before that, its configured name."""
        return self._server_info

    async def initialize(self, record: SessionRecord, caller: Caller) -> dict[str, Any]:
        """Connect to the server for a new session, and return the server's description of itself."""
        try:
            async with self._upstream(record, caller, is_stored=False) as upstream:
                agreed = upstream.agreed
        except BaseException:
            # Also if the client has given up: no other call will name this session.
            self._leave(record.key)
            raise
        self._server_info = agreed.server or self._server_info
        capabilities = without_tasks(agreed.capabilities)
        described: dict[str, Any] = {
            **agreed.others,
            "capabilities": capabilities if self.has_home else without_subscriptions(capabilities),
            "serverInfo": self._server_info,
        }
        return (
            described if agreed.instructions is None else {**described, "instructions": agreed.instructions}
        )

    def _client(self, record: SessionRecord, caller: Caller) -> UpstreamClient:
        """Return the client of an upstream: with a session if the session has its own upstream."""
        # An upstream lives for long: it must not keep the charge of the message that opened it.
        caller = caller if caller.charge is None else replace(caller, charge=None)
        if self._options.shared and not self._is_for_one_call(caller):
            return UpstreamClient(caller, record.client, {}, is_shared=True)
        capabilities = record.capabilities if self._passes_tasks else without_tasks(record.capabilities)
        if not self.has_home:
            return UpstreamClient(caller, record.client, capabilities)
        return UpstreamClient(caller, record.client, capabilities, record.key, record.meta)

    async def _upstream_of(self, client: UpstreamClient) -> Upstream:
        key = shared_key_of(client, self._target.key(client), self._together)
        upstream = await self._upstreams.get(key, client)
        upstream.clients.principals.add(client.caller.key)
        return upstream

    @contextlib.asynccontextmanager
    async def _upstream(
        self, record: SessionRecord, caller: Caller, *, is_stored: bool = True
    ) -> AsyncIterator[Upstream]:
        if not self._is_for_one_call(caller, record):
            yield await self._lasting(record, caller, is_stored=is_stored)
            return
        async with self._single(record, caller) as upstream:
            yield upstream

    def _single(
        self, record: SessionRecord, caller: Caller
    ) -> contextlib.AbstractAsyncContextManager[Upstream]:
        """Return an upstream for one exchange."""
        # A task would end with the upstream of the call that created it.
        capabilities = without_tasks(record.capabilities)
        return self._upstreams.single(UpstreamClient(caller, record.client, capabilities, is_single=True))

    async def _lasting(self, record: SessionRecord, caller: Caller, *, is_stored: bool = True) -> Upstream:
        """Return the upstream of a session, or of a principal."""
        wanted = self._client(record, caller)
        if not wanted.session:
            upstream = self._upstream_shared_by(record.key) or await self._upstream_of(wanted)
            if wanted.is_shared and record.key and record.key not in upstream.clients.sessions:
                await upstream.join(record.key, await self._uris(record) if is_stored else None)
            return upstream
        # If a request opens the upstream, and not the initialization, it is not the first upstream of its session.
        restore = partial(self._restore, record) if is_stored else None
        upstream = await self._upstreams.get(session_key_of(record.key), wanted, restore)
        if is_stored:
            upstream.clients.record = record
        return upstream

    async def _restore(self, record: SessionRecord, upstream: Upstream) -> None:
        """Prepare the upstream of a session whose former home is gone."""
        await upstream.restore(record, await self._uris(record))

    async def _uris(self, record: SessionRecord) -> list[str]:
        """Return the resources that a session is subscribed to."""
        return await self._outside.subscriptions(record.key) if self._outside is not None else []

    def _upstream_shared_by(self, session: str) -> Upstream | None:
        """Return the upstream that a session shares, if it depends on values of the request that opened the session."""
        if not session or not self._options.shared or not self._target.needs_credentials:
            return None
        sharing = (
            one for one in self._upstreams.opened() if session in one.clients.sessions and not one.is_over
        )
        return next(sharing, None)

    def _is_for_one_call(self, caller: Caller, record: SessionRecord | None = None) -> bool:
        """True if each request of a client without a session has its own upstream."""
        if self.shares_anonymous or caller.key or caller.conversation:
            return False
        return record is None or not (record.key and self.has_home)

    def _offered(self, agreed: Agreed, caller: Caller) -> dict[str, Any]:
        """Return the capabilities that the server offers to a client of 2026-07-28."""
        tasks = agreed.is_sessionless and self._passes_tasks and not self._is_for_one_call(caller)
        return declared(without_tasks(agreed.capabilities, extension=tasks))

    # Requests

    def handle(self, exchange: Exchange) -> Coroutine[Any, Any, bytes]:
        """Answer here, or let the server answer.

        A plain function: a call of a session whose upstream is open goes straight to it, without a coroutine in
        between.
        """
        session, method = exchange.session, exchange.request.method
        if method in _FORWARDED and session.revision is not SESSIONLESS:
            record = session.record
            upstream = self._upstreams.of_session.get(record.key)
            if upstream is not None and not upstream.is_over:
                upstream.clients.record = record
                return upstream.calls.run(exchange)
        return self._handle(exchange)

    async def _handle(self, exchange: Exchange) -> bytes:
        method = exchange.request.method
        is_sessionless = exchange.session.revision is SESSIONLESS
        if method in (NOT_SESSIONLESS if is_sessionless else NOT_IN_SESSIONS):
            raise MethodNotFound(method[:100])
        own = self._own.get(method)
        if own is None and method not in _FORWARDED and not self._is_passing(method):
            raise MethodNotFound(method[:100])
        record, caller = exchange.session.record, exchange.caller
        try:
            if own is not None:
                return await own(exchange)
            if not self._is_for_one_call(caller, record):
                # The usual case, without the cost of a context manager.
                try:
                    return await self._forward(exchange, await self._lasting(record, caller))
                except TurnTaken:
                    self._ports.observer.note("upstream.turn_taken")
            async with self._single(record, caller) as upstream:
                return await self._forward(exchange, upstream)
        except UrlElicitationRequired as error:
            if not is_sessionless:
                raise
            raise error_for(method, error) from error

    def _is_passing(self, method: str) -> bool:
        """True if an unknown request goes to the server: an extension may define it.

        No scope can be demanded for it.
        """
        if method.startswith("tasks/"):
            return method in _TASKS
        return method not in METHODS and self.access.rules is None

    async def _forward(self, exchange: Exchange, upstream: Upstream) -> bytes:
        method = exchange.request.method
        if method in _TASKS and not self._passes_tasks:
            raise MethodNotFound(f"{method}: tools of this server need scopes, and a task names no tool")
        if method in _TASKS and not upstream.agreed.is_sessionless:
            raise MethodNotFound(
                f"{method}: the server behind this one speaks {upstream.agreed.version}, whose tasks do not pass to 2026-07-28"
            )
        if not upstream.client.session and (level := exchange.session.record.level):
            # A server that refuses the level can still answer the call.
            with contextlib.suppress(LimpetError):
                await upstream.set_level(level)  # type: ignore[arg-type]
        return await upstream.calls.run(exchange)

    async def _ping(self, exchange: Exchange) -> bytes:  # noqa: ARG002
        return _EMPTY

    async def _discover(self, exchange: Exchange) -> bytes:
        async with self._upstream(exchange.session.record, exchange.caller) as upstream:
            agreed = upstream.agreed
        result: dict[str, Any] = {
            **agreed.others,
            "resultType": "complete",
            "ttlMs": 0,
            "cacheScope": "private",
            "supportedVersions": list(SUPPORTED),
            "capabilities": self._offered(agreed, exchange.caller),
            "_meta": {**agreed.others.get("_meta", {}), SERVER_KEY: agreed.server},
        }
        if agreed.instructions is not None:
            result["instructions"] = agreed.instructions
        return encode(result)

    async def _set_level(self, exchange: Exchange) -> bytes:
        level = exchange.request.params.get("level")
        if level not in LOGGING_LEVELS:
            raise InvalidParams(f"Invalid params: level is one of {', '.join(LOGGING_LEVELS)}")
        record = exchange.session.record
        await exchange.store.change(record.key, level=level)
        async with self._upstream(record, exchange.caller) as upstream:
            await upstream.set_level(level)
        return _EMPTY

    async def _subscribe(self, exchange: Exchange) -> bytes:
        if not self.has_home:
            raise MethodNotFound("resources/subscribe: the server behind is declared stateless")
        uri, record = _uri(exchange.inner), exchange.session.record
        asked = _uri(exchange.request)
        async with self._upstream(record, exchange.caller) as upstream, upstream.subscriptions.turn:
            if record.key in upstream.subscriptions.sessions(uri):
                return _EMPTY
            if not await exchange.store.subscribe(record.key, asked):
                raise InvalidParams("Too many subscriptions: unsubscribe from one first")
            try:
                await upstream.subscriptions.add_in_turn(uri, upstream.agreed, record.key)
            except BaseException:
                if record.key not in upstream.subscriptions.sessions(uri):
                    # Refused or cancelled: it must not count against the limit, and a new home must not ask for it
                    # again.
                    await exchange.store.unsubscribe(record.key, asked)
                raise
        return _EMPTY

    async def _unsubscribe(self, exchange: Exchange) -> bytes:
        if not self.has_home:
            return _EMPTY
        uri, record = _uri(exchange.inner), exchange.session.record
        async with self._upstream(record, exchange.caller) as upstream, upstream.subscriptions.turn:
            await exchange.store.unsubscribe(record.key, _uri(exchange.request))
            await upstream.subscriptions.remove_in_turn(uri, upstream.agreed, record.key)
        return _EMPTY

    # Questions of the engine besides requests

    def mirrored(self, request: Request, meta: RequestMeta, caller: Caller) -> tuple[MirroredParameter, ...]:  # noqa: ARG002
        """Return no parameters: the call checks them when its upstream and so the server's tools are known."""
        return ()

    def lists(self, key: str) -> list[Kind]:
        """Return the lists of the session's server; all, if this process has no connection to it."""
        upstream = self._upstreams.find(session_key_of(key))
        return list(LIST_KINDS) if upstream is None else list_kinds(upstream.agreed.capabilities)

    async def honoured(self, client: SessionlessClient, wanted: Filter, caller: Caller) -> Filter:
        """Return the part of a listener's filter that the server reports, and subscribe to it at the server."""
        if self._is_for_one_call(caller):
            # The upstream of such a client ends with each call: it reports no change afterwards.
            return wanted.within({})
        upstream = await self._upstream_of(self._client(client.record, caller))
        await upstream.subscriptions.ready()
        # Changes of tasks are not reported: clients ask for them with tasks/get.
        honoured = wanted.within(without_tasks(upstream.agreed.capabilities))
        for uri in honoured.names.get("resource", ()):
            await upstream.subscriptions.add(uri, upstream.agreed)
        return honoured

    async def notify(self, session: Session, method: str, params: dict[str, Any]) -> None:
        """Pass a client's notification on."""
        upstream = self._upstreams.find(session_key_of(session.record.key))
        if upstream is not None and method != "notifications/initialized":
            await upstream.notify(method, params)

    # Lifecycle

    @property
    def hears_opened(self) -> bool:
        """Return True."""
        return True

    async def opened(self, session: Session) -> None:
        """Send messages of the server that belong to no call to the session from now on."""
        upstream = self._upstreams.find(session_key_of(session.record.key))
        if upstream is not None:
            upstream.clients.record = session.record

    async def detached(self, session: Session) -> None:
        """Do nothing: the upstream lives as long as the session."""

    async def reattached(self, session: Session) -> None:
        """Do nothing: the upstream stayed open."""

    async def closed(self, session: Session, reason: SessionInput) -> None:  # noqa: ARG002
        """End the session's upstream; after the calls that were handed over, if it has some."""
        key = session_key_of(session.record.key)
        upstream = self._upstreams.find(key)
        if upstream is not None and any(not call.exchange.has_ended for call in upstream.calls.running):
            self._upstreams.leave(key)
        self._leave(session.record.key)

    def _leave(self, key: str) -> None:
        """End the upstream of a session, or release the shared one."""
        self._upstreams.end(session_key_of(key))
        self._stop_sharing(key)

    def _stop_sharing(self, key: str) -> None:
        if self._options.shared:
            for upstream in self._upstreams.opened():
                upstream.leave(key)

    async def moved(self, record: SessionRecord) -> None:
        """Serve a session here from now on.

        Its next request opens an upstream and restores the settings of the record.
        """
        if self._options.strict:
            raise SessionGone(
                f"the replica that had session {record.key[:8]} is gone, and sessions are strict"
            )

    async def serve(self, record: SessionRecord, caller: Caller) -> None:
        """Open the upstream of a session that has moved here."""
        await self._lasting(record, caller)

    async def left(self, key: str) -> None:
        """End the upstream of a session that is closed or has another home, after the calls that run on it."""
        self._upstreams.leave(session_key_of(key))
        self._stop_sharing(key)

    async def dropped(self, record: SessionRecord) -> None:
        """End the upstream of a session that was not stored."""
        self._leave(record.key)


def _own_client() -> UpstreamClient:
    """Return the client of a connection that no exchange uses."""
    return UpstreamClient(Caller(""), {"name": "limpet", "version": __version__}, {}, is_single=True)


def _uri(request: Request) -> str:
    uri = request.params.get("uri")
    if type(uri) is not str:
        raise InvalidParams("Invalid params: uri must be a string")
    return uri
