"""One conversation with the server behind us, and the clients that it serves.

An upstream belongs to one session, or to the 2026-07-28 clients of one principal that declared the same capabilities.

To which exchange does a message of the server belong? HTTP and hosted servers say it: the message came on the
response to a request, or names the request. On pipes and on the standalone stream it is not known. Then:

    calls in flight      client has a session                      client of 2026-07-28
    ─────────────────    ──────────────────────────────────────    ──────────────────────────────────────────
    exactly one          that call                                 that call
    several              the session's standalone stream           does not occur for questions: calls of clients
                                                                   that can be asked run one at a time
    no call              the session's standalone stream           a question is refused, a message is dropped

After the server has lost our session, or its process has ended, the connection opens another one. Each call that was in
flight has ended with one error. Before the next call, the new session gets the log level and the subscriptions of the old
one, and the client receives `list_changed` for every list: the new process may offer something else. With `strict`
the client's session is closed instead.
"""

import contextlib
from typing import Any, Final

from holdfast.backs.proxy.call import ASKS, Call, unasked, unreachable, unusable
from holdfast.backs.proxy.options import ProxyOptions
from holdfast.backs.proxy.outbox import Outbox
from holdfast.backs.proxy.subscriptions import Subscriptions, change_kind, list_kinds
from holdfast.backs.proxy.target import Ports, Target, UpstreamClient
from holdfast.backs.proxy.translation import (
    SessionlessForm,
    client_capabilities,
    client_info,
    error_for,
    for_sessions,
)
from holdfast.engine.back import Outside
from holdfast.engine.exchange import Exchange
from holdfast.errors import (
    INVALID_REQUEST,
    AskError,
    ClientError,
    HoldfastError,
    McpError,
    MethodNotFound,
    NotSent,
    VersionRefused,
)
from holdfast.protocol.params import LOGGING_LEVELS, LoggingLevel
from holdfast.protocol.subscriptions import TOPICS, Change
from holdfast.protocol.versions import SESSIONLESS
from holdfast.stores.base import SessionRecord
from holdfast.upstream.connection import Callbacks, Connection, ConnectionOptions
from holdfast.upstream.link import EndReason, LinkEnd, UpstreamLink
from holdfast.upstream.negotiation import Agreed
from holdfast.upstream.pending import OutgoingRequest
from holdfast.upstream.profile import ClientProfile
from holdfast.upstream.slots import Slots
from holdfast.wire.jsonrpc import Notification

_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_FREE: Final = contextlib.nullcontext()


class Upstream:
    """A connection to the server behind us, with the calls that run on it. Call `open` first, `aclose` last."""

    def __init__(
        self, target: Target, client: UpstreamClient, options: ProxyOptions, outside: Outside, ports: Ports
    ) -> None:
        self.client: UpstreamClient = client
        self.record: SessionRecord | None = None
        """The session that it belongs to, once that exists."""
        self.calls: set[Call] = set()
        self.used_at: float = 0.0
        """When its last call ended."""
        self._waiting = 0
        self._options = options
        self._outside = outside
        self._clock, _, self._observer = ports
        self._profile = ClientProfile(
            client_info(client.info), client_capabilities(client.capabilities, tasks=not client.session)
        )
        self._connection = Connection(
            target.connector(client),
            self._profile,
            Callbacks(
                on_request=self._on_request,
                on_notification=self._on_notification,
                on_end=self._on_end,
                on_reconnected=self._on_reconnected,
            ),
            options=ConnectionOptions(
                version=target.version,
                raw_results=True,
                reconnect=not options.strict,
                limits=target.limits,
                times=target.times,
            ),
            ports=ports,
        )
        may_be_asked = bool({"sampling", "elicitation", "roots"} & client.capabilities.keys())
        one_at_a_time = not target.names_calls and not client.session and may_be_asked
        self._turn = Slots(1, options.queued) if one_at_a_time else None
        at_once = options.concurrency
        self._slots = Slots(at_once, options.queued) if at_once is not None else None
        self._outbox = Outbox(self._send_outside, options.notifications, self._observer)
        self.subscriptions: Subscriptions = Subscriptions(self._connection, self._clock, self._observer)
        self._agreed: Agreed | None = None
        self._is_over = False
        self._form: SessionlessForm | None = None

    def __repr__(self) -> str:
        return f"<Upstream {len(self.calls)} calls, {self._connection!r}>"

    @property
    def is_used(self) -> bool:
        """True if a call runs on it."""
        return bool(self._waiting)

    @property
    def is_over(self) -> bool:
        """True if its connection has ended and will not be opened again."""
        return self._is_over

    @property
    def agreed(self) -> Agreed:
        """The result of the negotiation with the server."""
        if self._agreed is None:
            raise NotSent("the upstream is not open")
        return self._agreed

    async def open(self) -> None:
        """Connect and negotiate.

        Raises:
            McpError: the server cannot be reached, or its answer is not usable.
        """
        try:
            agreed = await self._connection.open()
        except BaseException as error:
            await self._connection.aclose()
            if isinstance(error, NotSent):
                raise unreachable(error) from error
            if isinstance(error, ClientError | VersionRefused):
                raise unusable(error) from error
            raise
        self._use(agreed)
        await self.subscriptions.ready()
        self.used_at = self._clock.now()

    def _use(self, agreed: Agreed) -> None:
        self._agreed = agreed
        self._form = SessionlessForm(agreed.server)
        self.subscriptions.start(agreed)

    async def aclose(self) -> None:
        """End the conversation."""
        self.subscriptions.close()
        self._outbox.close()
        await self._connection.aclose()

    # Calls

    async def call(self, exchange: Exchange) -> bytes:
        """Let the server answer an exchange; return the result in the form of the client's era.

        Raises:
            McpError: the server's error, or ours in its place.
        """
        options = self._options
        call = Call(
            exchange,
            seconds=options.call_seconds,
            messages=options.notifications,
            observer=self._observer,
        )
        self._waiting += 1
        try:
            async with (self._turn if call.may_ask else None) or _FREE, self._slots or _FREE:
                self.calls.add(call)
                result = await call.run(self._connection, sessionless=self.agreed.is_sessionless)
        except McpError as error:
            if exchange.session.revision is not SESSIONLESS or self.agreed.is_sessionless:
                raise
            raise error_for(exchange.request.method, error) from error
        finally:
            self._waiting -= 1
            self.calls.discard(call)
            self.used_at = self._clock.now()
        return self._in_form(exchange, result)

    def _in_form(self, exchange: Exchange, result: bytes) -> bytes:
        wants_sessionless = exchange.session.revision is SESSIONLESS
        if wants_sessionless == self.agreed.is_sessionless:
            return result
        if wants_sessionless and self._form is not None:
            return self._form.of(exchange.request.method, result)
        return for_sessions(result)

    async def set_level(self, level: LoggingLevel) -> None:
        """Ask the server for log messages of this level and above. A shared upstream never asks for fewer than before."""
        present = self._profile.level
        if (
            not self.client.session
            and present is not None
            and LOGGING_LEVELS[present] <= LOGGING_LEVELS[level]
        ):
            return
        self._profile.level = level
        if not self.agreed.is_sessionless and "logging" in self.agreed.capabilities:
            await self._connection.request("logging/setLevel", {"level": level})

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification of the client to the server. One that its era does not know is dropped."""
        if not self.agreed.is_sessionless:
            with contextlib.suppress(HoldfastError):
                await self._connection.notify(method, params)

    # From the server

    def _parent(self, origin: OutgoingRequest | None) -> Call | None:
        """Return the call that a message of the server belongs to; None if that is not known."""
        if origin is not None:
            owner = origin.owner
            return owner if isinstance(owner, Call) and owner in self.calls else None
        candidates = [call for call in self.calls if call.may_ask]
        return candidates[0] if len(candidates) == 1 else None

    async def _on_request(
        self, method: str, params: dict[str, Any], origin: OutgoingRequest | None
    ) -> object:
        if method not in ASKS:
            raise MethodNotFound(method[:100])
        call = self._parent(origin)
        if call is not None:
            return await call.ask(method, params)
        if self.record is None:
            raise McpError(
                INVALID_REQUEST, f"{method} belongs to no call, and this client has no other channel"
            )
        try:
            return await self._outside.ask(self.record, method, params)
        except AskError as error:
            raise unasked(error) from error

    def _on_notification(self, notification: Notification, origin: OutgoingRequest | None) -> None:
        method, params = notification.method, notification.params
        if method == _ACKNOWLEDGED:
            self.subscriptions.acknowledged()
        elif method == "notifications/cancelled":
            return  # the connection has cancelled the question
        elif change_kind(method) is not None:
            # A 2026-07-28 server names the subscription, which is ours.
            params = {name: value for name, value in params.items() if name != "_meta"}
            self._outbox.put(method, params)
        elif (call := self._parent(origin)) is not None:
            call.send(method, params)
        elif self.record is not None:
            self._outbox.put(method, params)

    async def _send_outside(self, method: str, params: dict[str, Any]) -> None:
        """Send a message that belongs to no call: to the session, or to the listeners of the principal."""
        if self.record is not None:
            await self._outside.notify(self.record.key, method, params)
            return
        kind = change_kind(method)
        if kind is not None and not self.client.session:
            name = params.get("uri", "") if TOPICS[kind].name else ""
            await self._outside.changed(Change(kind, str(name)), self.client.caller.key)

    # The end of a link, and the next one

    def _on_end(self, end: LinkEnd) -> None:
        if end.reason is EndReason.CLOSED:
            return
        self._observer.note("upstream.ended", reason=end.reason.value, status=end.exit_status)
        if not self._options.strict:
            return
        self._is_over = True
        if self.record is not None:
            self._outside.close(self.record.key)

    async def _on_reconnected(self, link: UpstreamLink) -> None:
        """Give the server's new session the log level and subscriptions of the old one, and report that its lists may differ."""
        agreed = self._connection.agreed
        if agreed is None:
            return
        self._use(agreed)
        if not agreed.is_sessionless:
            level = self._profile.level
            if level is not None and "logging" in agreed.capabilities:
                await self._restored(link, "logging/setLevel", {"level": level})
            for uri in self.subscriptions.uris:
                await self._restored(link, "resources/subscribe", {"uri": uri})
        for kind in list_kinds(agreed.capabilities):
            self._outbox.put(TOPICS[kind].method, {})

    async def _restored(self, link: UpstreamLink, method: str, params: dict[str, Any]) -> None:
        try:
            await link.request(self._connection.outgoing(link, method, params))
        except HoldfastError as error:
            self._observer.note("upstream.not_restored", method=method, error=error)
