"""One conversation with the server behind us, and the clients that it serves.

An upstream belongs to one session, or to the 2026-07-28 clients of one principal that declared the same capabilities, or,
if the operator has chosen it (`shared`), to all clients of a principal or of several named ones. A shared server
declares no client capabilities and may not ask: it is not known for which of its clients a question is.

Which era does it speak with a server that has both? The era of its client: a session uses a session of the server, and a
client of 2026-07-28 uses 2026-07-28. So both sides mean the same, and nothing has to be translated. An upstream that serves
clients of both eras (`shared`, `home="any"`) uses 2026-07-28.

To which exchange does a message of the server belong? If the server does not name it, and several calls are in flight or
none, a notification goes to the session's standalone stream; for a client of 2026-07-28 it is dropped. For questions see
questions.py.

After the server has lost our session, or its process has ended, the connection opens another one: for the next call, and
for a lost session of a URL also without a call (reconnection.py). Each call that was in
flight has ended with one error. Before the next call, the new session gets the log level and the subscriptions of the old
one, and the client receives `list_changed` for every list, and an update of every subscribed resource: the new process may
offer something else, and a change may have been missed. With `strict` the client's session is closed instead.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Coroutine, Mapping
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from holdfast.backs.proxy.call import Call, MakeHeaders, silent, unreachable, unusable
from holdfast.backs.proxy.lists import Key as ListKey
from holdfast.backs.proxy.lists import Lists, list_key
from holdfast.backs.proxy.mirrors import Mirrors
from holdfast.backs.proxy.options import ProxyOptions
from holdfast.backs.proxy.outbox import Outbox, Space
from holdfast.backs.proxy.questions import Questions
from holdfast.backs.proxy.reconnection import Reconnection
from holdfast.backs.proxy.silence import Silence
from holdfast.backs.proxy.slots import Slots
from holdfast.backs.proxy.subscriptions import Subscriptions
from holdfast.backs.proxy.target import Target, UpstreamClient
from holdfast.backs.proxy.translation import (
    SessionlessForm,
    client_info,
    error_for,
    for_sessions,
    without_subscription,
    without_tasks,
)
from holdfast.backs.proxy.turns import Turns, needs_turns
from holdfast.engine.back import Outside
from holdfast.engine.exchange import Exchange
from holdfast.errors import (
    BadAnswer,
    ClientError,
    HoldfastError,
    McpError,
    NotSent,
    VersionRefused,
)
from holdfast.ports import Ports
from holdfast.protocol.mirrored_headers import PARAM_PREFIX
from holdfast.protocol.params import LOGGING_LEVELS, LoggingLevel
from holdfast.protocol.subscriptions import LISTS, REPORTED, TOPICS, Change, all_changes, list_kinds
from holdfast.protocol.versions import SESSIONLESS
from holdfast.stores.base import SessionRecord
from holdfast.upstream.connection import Callbacks, Connection, ConnectionOptions
from holdfast.upstream.link import EndReason, LinkEnd, UpstreamLink
from holdfast.upstream.negotiation import Agreed, ServerEra
from holdfast.upstream.pending import NO_HEADERS, OutgoingRequest
from holdfast.upstream.profile import ClientProfile
from holdfast.wire.jsonrpc import Notification

_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"


class Upstream:
    """A connection to the server behind us, with the calls that run on it. Call `open` first, `aclose` last."""

    _is_over = False

    def __init__(
        self,
        target: Target,
        client: UpstreamClient,
        options: ProxyOptions,
        outside: Outside,
        space: Space,
        ports: Ports,
    ) -> None:
        self._passing = target.passing
        self.client: UpstreamClient = replace(client, passed=target.passing.of(client.caller.headers))
        self.record: SessionRecord | None = None
        """The session of this upstream, after it was stored."""
        self.sessions: set[str] = set()
        """The keys of the sessions that share it."""
        self.principals: set[str] = {client.caller.key}
        """The keys of the principals that have used it."""
        self.calls: set[Call] = set()
        self.used_at: float = 0.0
        """When its last call ended."""
        self._waiting = 0
        self._unused: asyncio.Event | None = None
        self._options = options
        self._outside = outside
        self._clock, _, self._observer = ports
        self._profile = _profile(client)
        self._turns = Turns(options.queued) if needs_turns(target, client) else None
        self._questions = Questions(self._turns, outside, lambda: self.record, is_shared=client.is_shared)
        self._connection = self._connection_to(target, ports)
        self._reconnection = Reconnection(self._connection.link, ports)
        self._had_channel = False
        self._slots = Slots(options.concurrency, options.queued) if options.concurrency else None
        self._silence = Silence(options.call_seconds)
        self._space = space
        self._outbox = Outbox(self._send_outside, space, self._observer)
        self.subscriptions: Subscriptions = Subscriptions(
            self._connection, self._control, self._clock, self._observer
        )
        self._agreed: Agreed | None = None
        self._headers: MakeHeaders | None = None
        self.lists: Lists = Lists(options.list_bytes, self._clock, lambda: self._connection.channel)
        self._mirrors = Mirrors(self._tools, self._observer)
        self._form: SessionlessForm | None = None

    def _connection_to(self, target: Target, ports: Ports) -> Connection:
        return Connection(
            target.connector(self.client),
            self._profile,
            Callbacks(
                on_request=self._questions.answer,
                on_notification=self._on_notification,
                on_end=self._on_end,
                on_reconnected=self._on_reconnected,
                on_missed=self._resources_changed,
            ),
            options=ConnectionOptions(
                version=target.version,
                first=ServerEra.SESSION if self.client.session else ServerEra.SESSIONLESS,
                raw_results=True,
                reconnect=not self._options.strict,
                limits=target.limits,
                times=target.times,
            ),
            eras=target.eras,
            ports=ports,
        )

    def __repr__(self) -> str:
        return f"<Upstream {len(self.calls)} calls, {self._connection!r}>"

    @property
    def is_used(self) -> bool:
        """True if a call runs on it."""
        return bool(self._waiting)

    async def unused(self) -> None:
        """Wait until no call runs on it."""
        while self._waiting:
            self._unused = asyncio.Event()
            await self._unused.wait()

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
        """Connect and negotiate. Call `aclose` also if this raises or is cancelled.

        Raises:
            McpError: the server cannot be reached, or its answer is not usable.
        """
        try:
            agreed = await self._connection.open()
        except NotSent as error:
            self._observer.note("upstream.unreachable", error=error)
            raise unreachable(error) from error
        except (ClientError, VersionRefused) as error:
            raise unusable(error) from error
        self._use(agreed)
        await self.subscriptions.ready()
        self.used_at = self._clock.now()

    def _use(self, agreed: Agreed) -> None:
        self._agreed = agreed
        self._headers = self._make_headers if agreed.is_sessionless or self._passing.names else None
        self._form = SessionlessForm(agreed.server)
        self.subscriptions.start(agreed)

    async def aclose(self) -> None:
        """End the conversation."""
        for part in (self._reconnection, self.subscriptions, self._outbox, self._silence):
            part.close()
        await self._connection.aclose()

    # Calls

    async def call(self, exchange: Exchange) -> bytes:
        """Let the server answer an exchange; return the result in the form of the client's era.

        Raises:
            McpError: the server's error, or ours in its place.
        """
        call = Call(
            exchange,
            silence=self._silence,
            space=self._space,
            observer=self._observer,
            headers=self._headers,
        )
        method = exchange.request.method
        key = list_key(method, exchange.request.params, self._passed(exchange)) if method in LISTS else None
        if key is None:
            result = await self._run(call)
        else:
            result = await self.lists.get(key, self.agreed, partial(self._list, key, call))
        return self._in_form(exchange, result)

    async def _run(self, call: Call) -> bytes:
        self._waiting += 1
        try:
            if self._turns is not None and call.may_ask and self._may_be_unclear():
                return await self._in_turn(call, self._turns)
            return await self._in_slot(call)
        except McpError as error:
            if call.exchange.session.revision is not SESSIONLESS or self.agreed.is_sessionless:
                raise
            raise error_for(call.exchange.request.method, error) from error
        finally:
            self._waiting -= 1
            if self._unused is not None and not self._waiting:
                self._unused.set()
            self.calls.discard(call)
            self._questions.ended(call)
            self.used_at = self._clock.now()

    async def _in_turn(self, call: Call, turns: Turns) -> bytes:
        await turns.take()
        try:
            return await self._in_slot(call)
        finally:
            turns.release()

    def _in_slot(self, call: Call) -> Coroutine[Any, Any, bytes]:
        """Send a call when it may run. A plain function: usually no other coroutine is needed around a call."""
        return self._sent(call) if self._slots is None else self._waiting_for_slot(call, self._slots)

    async def _waiting_for_slot(self, call: Call, slots: Slots) -> bytes:
        async with slots.of(call.exchange.caller.owner):
            return await self._sent(call)

    def _may_be_unclear(self) -> bool:
        """True if the server can ask without naming the call: in 2025, on pipes and on the standalone stream of a URL."""
        self._had_channel = self._had_channel or self._connection.channel is not None
        return self._had_channel and not self.agreed.is_sessionless

    def _sent(self, call: Call) -> Coroutine[Any, Any, bytes]:
        self.calls.add(call)
        return call.run(self._connection, sessionless=self.agreed.is_sessionless)

    async def _list(self, key: ListKey, call: Call) -> bytes:
        page = await self._run(call)
        if key[:2] == ("tools/list", "") and self.agreed.is_sessionless:
            self._mirrors.learn(page)
        return page

    async def _tools(self, cursor: str) -> bytes:
        """Return a page of the tools, for our own use."""
        params = {"cursor": cursor} if cursor else {}
        # A copy: a call with another token may come before the request is sent.
        passed = dict(self.client.passed)
        key = list_key("tools/list", params, passed)

        async def ask() -> bytes:
            return bytes(
                await self._connection.request("tools/list", params, headers=passed, may_repeat=True)
            )

        return await ask() if key is None else await self.lists.get(key, self.agreed, ask)

    async def _make_headers(self, exchange: Exchange, *, is_refused: bool = False) -> Mapping[str, str]:
        """Return the client's headers that are passed on (passing.py), and those that repeat parameters (mirrors.py)."""
        passed = self._passed(exchange)
        request = exchange.request
        if request.method != "tools/call" or not self.agreed.is_sessionless:
            return passed
        if not is_refused and self._mirrors.has_none(request.params.get("name")):
            return passed
        return {**passed, **await self._mirrored(exchange, is_refused=is_refused)}

    def _passed(self, exchange: Exchange) -> Mapping[str, str]:
        if not self._passing.names:
            return NO_HEADERS
        passed = self._passing.of(exchange.headers)
        if passed != self.client.passed:
            # A session, whose client has another token now. A shared upstream has clients with equal headers.
            self.client.passed.clear()
            self.client.passed.update(passed)
        return passed

    async def _mirrored(self, exchange: Exchange, *, is_refused: bool) -> Mapping[str, str]:
        request = exchange.request
        is_sessionless = exchange.session.revision is SESSIONLESS
        if not self.client.is_single:
            sent = exchange.headers if is_sessionless else NO_HEADERS
            return await self._mirrors.headers(request.params, sent, fresh=is_refused)
        # Reading the list would cost more than the call. The client has the list, and the server checks its headers.
        return {name: value for name, value in exchange.headers.items() if name.startswith(PARAM_PREFIX)}

    def _in_form(self, exchange: Exchange, result: bytes) -> bytes:
        wants_sessionless = exchange.session.revision is SESSIONLESS
        if wants_sessionless == self.agreed.is_sessionless:
            return result
        if not result.lstrip().startswith(b"{"):
            raise unusable(BadAnswer(f"the result of {exchange.request.method} is not an object"))
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
            await self._control("logging/setLevel", {"level": level})

    async def _control(self, method: str, params: dict[str, Any]) -> object:
        """Send a request of our own to the server. It has the same deadline as a call.

        Raises:
            McpError: the server's error, or ours in its place.
        """
        seconds = self._options.call_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._connection.request(method, params)
        except TimeoutError:
            raise silent(method, seconds) from None
        except NotSent as error:
            raise unreachable(error) from error
        except ClientError as error:
            raise unusable(error) from error

    def leave(self, session: str) -> None:
        """Forget a session that has shared this upstream."""
        self.sessions.discard(session)
        self.subscriptions.leave(session, self.agreed)

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification of the client to the server. It is dropped if the server's era does not know it."""
        if not self.agreed.is_sessionless:
            with contextlib.suppress(HoldfastError):
                await self._connection.notify(method, params)

    # From the server

    def _parent(self, origin: OutgoingRequest | None) -> Call | None:
        """Return the call of a message of the server; None if it is not known."""
        if origin is not None:
            owner = origin.owner
            return owner if isinstance(owner, Call) and owner in self.calls else None
        candidates = [call for call in self.calls if call.may_ask]
        return candidates[0] if len(candidates) == 1 else None

    def _on_notification(self, notification: Notification, origin: OutgoingRequest | None) -> None:
        method, params = notification.method, notification.params
        if method == _ACKNOWLEDGED:
            if self.subscriptions.acknowledged():
                self._all_changed(self.agreed)
        elif method == "notifications/cancelled":
            return  # the connection has cancelled the question
        elif (kind := REPORTED.get(method)) is not None:
            detail = without_subscription(params)
            uri = detail.pop("uri", "") if TOPICS[kind].name else ""
            self._changed(Change(kind, str(uri), detail))
        elif (call := self._parent(origin)) is not None:
            call.send(method, params)
        elif self.record is not None:
            self._outbox.put(method, params)

    def _changed(self, change: Change) -> None:
        """Report a change to the session, or to the sessions and listeners that share this upstream."""
        self.lists.changed(change.kind)
        if change.kind == "tools":
            self._mirrors.forget()
        if self.record is not None:
            self._outside.changed_for(self.record.key, change)
        elif not self.client.session and (not change.name or self.subscriptions.has(change.name)):
            for session in self.subscriptions.sessions(change.name):
                self._outside.changed_for(session, change)
            for principal in self.principals:
                self._outside.changed(change, principal)

    async def _send_outside(self, method: str, params: msgspec.Raw) -> None:
        """Send a message that belongs to no call to the session."""
        if self.record is not None:
            await self._outside.notify(self.record.key, method, params)

    # The end of a link, and the next one

    def _on_end(self, end: LinkEnd) -> None:
        if end.reason is EndReason.CLOSED:
            return
        self._observer.note("upstream.ended", reason=end.reason.value, status=end.exit_status)
        if not self._options.strict:
            if end.reason is EndReason.SESSION_GONE and self._has_listener:
                self._reconnection.soon()
            return
        self._is_over = True
        if self.record is not None:
            self._outside.close(self.record.key)
        for session in self.sessions:
            self._outside.close(session)

    async def _on_reconnected(self, link: UpstreamLink) -> None:
        """Give the server's new session the log level and subscriptions of the old one, and report that its lists may differ."""
        agreed = self._connection.agreed
        if agreed is None:
            return
        self._use(agreed)
        try:
            await self._restore_at(link, agreed)
        finally:
            self._all_changed(agreed)

    async def restore(self, record: SessionRecord, uris: list[str]) -> None:
        """Give the server the settings that a session had at its former home: the log level and the subscriptions.

        The client receives `list_changed` for every list, because another upstream may offer something else, and an update of
        every resource that it subscribed to, because a change may have been missed.
        """
        self.record = record
        if record.level:
            request = self.set_level(record.level)  # type: ignore[arg-type]
            await self._in_time(self._noting("logging/setLevel", request))
        await self._in_time(self._subscribe(record.key, uris))
        self._all_changed(self.agreed)

    async def _in_time(self, restoring: Coroutine[Any, Any, None]) -> None:
        """Restore settings; give up after `times.patience`, because the calls of the session wait for it."""
        try:
            async with asyncio.timeout(self._connection.times.patience):
                await restoring
        except TimeoutError as error:
            self._observer.note("upstream.not_restored", error=error)

    async def join(self, session: str, uris: list[str] | None) -> None:
        """Let a session share this upstream; one that had another upstream before brings its subscriptions.

        It receives the same messages as in `restore`.
        """
        self.sessions.add(session)
        if uris is not None:
            await self._in_time(self._subscribe(session, uris))
            for change in all_changes(list_kinds(self.agreed.capabilities), uris):
                self._outside.changed_for(session, change)

    async def _subscribe(self, session: str, uris: list[str]) -> None:
        for uri in uris:
            await self._noting("resources/subscribe", self.subscriptions.add(uri, self.agreed, session))

    async def _noting(self, method: str, request: Awaitable[object]) -> None:
        """Send a request; if it fails, note it and continue."""
        try:
            await request
        except HoldfastError as error:
            self._observer.note("upstream.not_restored", method=method, error=error)

    async def _restore_at(self, link: UpstreamLink, agreed: Agreed) -> None:
        if not agreed.is_sessionless:
            level = self._profile.level
            if level is not None and "logging" in agreed.capabilities:
                await self._restored(link, "logging/setLevel", {"level": level})
            for uri in self.subscriptions.uris:
                await self._restored(link, "resources/subscribe", {"uri": uri})

    @property
    def _has_listener(self) -> bool:
        """True if a client may wait for changes."""
        return bool(self.client.session or self._outside.listened(self.client.caller.key))

    def _resources_changed(self) -> None:
        """Report a change of every subscribed resource. Not of lists: some servers' streams break every minute."""
        for change in all_changes((), self.subscriptions.uris):
            self._changed(change)

    def _all_changed(self, agreed: Agreed) -> None:
        """Report a change of every list, and of every resource that is subscribed to: one may have been missed."""
        for change in all_changes(list_kinds(agreed.capabilities), self.subscriptions.uris):
            self._changed(change)

    async def _restored(self, link: UpstreamLink, method: str, params: dict[str, Any]) -> None:
        await self._noting(method, link.request(self._connection.outgoing(link, method, params)))


def _profile(client: UpstreamClient) -> ClientProfile:
    return ClientProfile(
        client_info(client.info),
        without_tasks(client.capabilities, extension=not client.session),
        repeats_extensions=not client.session,
    )
