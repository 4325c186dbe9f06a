"""The base of all features of the client: one request, in either era, with cache, timeout, input and progress."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from limpet.client.cache import ResultCache, cache_key
from limpet.client.callback_queue import Callback, CallbackQueue
from limpet.client.changes import UnreadChanges, change_of
from limpet.client.handlers import Handlers
from limpet.client.results import InputNeeded
from limpet.errors import (
    HEADER_MISMATCH,
    BadAnswer,
    CallTimeout,
    ClientError,
    InputRefused,
    LimpetError,
    McpError,
    TooManyRounds,
)
from limpet.ports import Ports
from limpet.protocol.idempotency import KEY
from limpet.protocol.methods import REPEATABLE
from limpet.protocol.mirrored_headers import MirroredParameter, headers_of
from limpet.protocol.params import LoggingLevel
from limpet.protocol.sessionless import SUBSCRIPTION_KEY, SUSPENDABLE, TASKS
from limpet.upstream.connection import Callbacks, Connection, ConnectionOptions
from limpet.upstream.connectors import ChildConnector, Connector
from limpet.upstream.link import UpstreamLink
from limpet.upstream.negotiation import Agreed, EraMemory
from limpet.upstream.pending import OnProgress, OutgoingRequest
from limpet.upstream.profile import ClientProfile
from limpet.upstream.settings import ClientLimits, ClientTimes
from limpet.wire.jsonrpc import Notification

Progress = Callable[[float, float | None, str | None], Awaitable[None] | None]
"""Receives the progress of a call: progress, total, message."""
_KEY_BYTES: Final = 16
TOOLS_CHANGED: Final = "notifications/tools/list_changed"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"


class ClientOptions(Struct, frozen=True):
    """The choices of the author of a client."""

    connector: Connector
    handlers: Handlers
    profile: ClientProfile
    version: str
    eras: EraMemory | None
    callbacks: tuple[Callback | None, Callback | None]
    """Receive log messages, and every notification except progress."""
    auto_input: bool
    limits: ClientLimits
    times: ClientTimes
    ports: Ports


class Requester:
    """A client without its features: it connects, requests, listens and closes."""

    def __init__(self, options: ClientOptions) -> None:
        self._limits, self._times, self._ports = options.limits, options.times, options.ports
        self._clock, _, self._observer = options.ports
        self._profile = options.profile
        self._auto_input = options.auto_input
        self._connector = options.connector
        self._connection = Connection(
            options.connector,
            options.profile,
            Callbacks(
                on_request=options.handlers,
                on_notification=self._notified,
                on_reconnected=self._restore,
                mirror=self._mirror,
            ),
            options=ConnectionOptions(version=options.version, limits=options.limits, times=options.times),
            eras=options.eras,
            ports=options.ports,
        )
        self._cache = ResultCache(options.limits.cached, options.limits.kept_bytes)
        self._log_queue, self._notification_queue = map(self.queue, options.callbacks)
        self._mirrored: dict[str, tuple[MirroredParameter, ...]] = {}
        self._listeners: set[UnreadChanges] = set()
        self._subscribers: dict[object, UnreadChanges] = {}
        self._subscribed: Counter[str] = Counter()
        """How many listeners each subscribed resource has."""
        self._subscribing = asyncio.Lock()
        self._level: LoggingLevel | None = None

    # The server

    @property
    def agreed(self) -> Agreed:
        """The result of the negotiation with the server: version, its name, capabilities, instructions.

        Raises:
            ClientError: there is no connection yet.
        """
        if self._connection.agreed is None:
            raise ClientError("the client is not connected: use it in `async with`")
        return self._connection.agreed

    @property
    def stderr(self) -> str:
        """The last part of the stderr of a child process; empty for other servers."""
        child = self._connector.child if isinstance(self._connector, ChildConnector) else None
        return child.stderr if child is not None else ""

    # Requests

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        progress: Progress | None = None,
        idempotent: bool | None = None,
        fresh: bool = False,
    ) -> Any:
        """Send a request and return its result as plain values. Input that the server asks for is answered by handlers.

        `timeout` replaces the client's own; `math.inf` means no limit. `idempotent` says whether the call may be sent
        again when it is unknown whether it was executed. `fresh` does not use the cache. Cancelling this call cancels
        the request.

        Raises:
            McpError: the server answered with an error; OutcomeUnknown if it is unknown whether the call was executed.
            ClientError: there was no usable response (CallTimeout: none in time).
            NotSent: the server could not be reached, and nothing was executed.
        """
        plain = dict(params or {})
        key = cache_key(method, plain)
        if key is not None and not fresh and (kept := self._cache.find(key, self._clock.now())) is not None:
            return kept
        may_repeat = method in REPEATABLE if idempotent is None else idempotent
        queue = self.queue(progress)
        result = await self._within(
            timeout, method, self._rounds(method, plain, queue, may_repeat=may_repeat)
        )
        if queue is not None:
            await queue.drain()
        if key is not None and _kind(result) == "complete":
            self._cache.keep(key, result, self._clock.now())
        return result

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification.

        Raises:
            LinkError: the server did not receive it, or it is unknown whether it did.
        """
        await self._connection.notify(method, params)

    async def _within(self, timeout: float | None, method: str, work: Awaitable[Any]) -> Any:
        seconds = self._times.call if timeout is None else timeout
        bound = asyncio.timeout(None if seconds is None or seconds == float("inf") else seconds)
        try:
            async with bound:
                return await work
        except TimeoutError:
            if not bound.expired():
                raise
            raise CallTimeout(f"no response to {method} within {seconds:g} s") from None

    async def _rounds(
        self, method: str, params: dict[str, Any], queue: CallbackQueue | None, *, may_repeat: bool
    ) -> Any:
        """Send a request, and answer the input that the server asks for until the result is there (2026-07-28)."""
        sent = params
        for _ in range(self._limits.rounds + 1):
            result = await self._send(method, sent, queue, may_repeat=may_repeat)
            self._check_kind(method, result)
            if _kind(result) != "input_required" or not self._auto_input:
                return result
            sent = {**params, **await self._inputs(result)}
        raise TooManyRounds(
            f"the server asked for input more than {self._limits.rounds} times for one {method}"
        )

    def _check_kind(self, method: str, result: Any) -> None:
        """Check that a result is of a kind that this request may have.

        Raises:
            BadAnswer: it is not. Extensions that the caller has declared may define other kinds.
        """
        kind, extensions = _kind(result), self._profile.capabilities.get("extensions") or {}
        allowed = {
            "complete": True,
            "input_required": method in SUSPENDABLE,
            "task": method == "tools/call" and TASKS in extensions,
        }
        if allowed.get(kind, bool(extensions.keys() - {TASKS})):
            return
        if kind == "input_required":
            raise BadAnswer(f"the server asks for input during {method}, which the protocol does not allow")
        if self.agreed.is_sessionless:
            raise BadAnswer(f"the server answered {method} with a result of an unknown kind, {kind[:50]!r}")

    async def _inputs(self, result: dict[str, Any]) -> dict[str, Any]:
        """Answer the input requests of a result; return the params that the retry adds."""
        asked = result.get("inputRequests")
        back: dict[str, Any] = {}
        if isinstance(asked, dict):
            back["inputResponses"] = await self.answer_inputs(asked)
        if isinstance(result.get("requestState"), str):
            back["requestState"] = result["requestState"]
        return back

    async def answer_inputs(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Answer input requests by this client's handlers, all at once within the limit.

        Raises:
            InputRefused: no handler answers one of them.
        """

        async def one(key: str, request: Any) -> tuple[str, object]:
            method = request.get("method") if isinstance(request, dict) else None
            params = request.get("params") if isinstance(request, dict) else None
            try:
                return key, await self._connection.incoming.run(
                    str(method), params if isinstance(params, dict) else {}
                )
            except McpError as error:
                raise InputRefused(f"the server asks for {method}: {error}") from error

        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(one(key, request)) for key, request in asked.items()]
        try:
            return dict(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def _send(
        self, method: str, params: dict[str, Any], queue: CallbackQueue | None, *, may_repeat: bool
    ) -> Any:
        report = _reporter(queue) if queue is not None else None
        if method == "tools/call" and not may_repeat and self._connection.takes_keys:
            params = self._with_key(params)
        try:
            return await self._connection.request(method, params, on_progress=report, may_repeat=may_repeat)
        except McpError as error:
            if error.code != HEADER_MISMATCH or method != "tools/call":
                raise
        # The tool's schema has changed, and with it the headers that repeat its parameters.
        await self._relearn_tools()
        return await self._connection.request(method, params, on_progress=report, may_repeat=may_repeat)

    def _with_key(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return the params of a call with an idempotency key. One that the caller has chosen stays."""
        return {**params, "_meta": {KEY: self._ports.random.token(_KEY_BYTES), **params.get("_meta", {})}}

    async def _relearn_tools(self) -> None:
        """Read the tools' schemas again; `Tools` implements it."""

    def _doubt_tools(self) -> None:
        """Note that the tools' schemas may have changed; `Tools` implements it."""

    def _mirror(self, method: str, params: dict[str, Any]) -> dict[str, str]:
        mirrored = self._mirrored.get(params.get("name", "")) if method == "tools/call" else None
        return headers_of(mirrored, params.get("arguments")) if mirrored else {}

    # Notifications

    def queue(self, callback: Callback | None) -> CallbackQueue | None:
        """Return the queue of messages for a callback."""
        if callback is None:
            return None
        limits = self._limits
        return CallbackQueue(callback, limits.behind, limits.kept_bytes, observer=self._observer)

    def _notified(self, notification: Notification, _origin: OutgoingRequest | None) -> None:
        self._cache.invalidate(notification.method, notification.params)
        if notification.method == TOOLS_CHANGED:
            self._doubt_tools()
        if notification.method == "notifications/message" and self._log_queue is not None:
            self._log_queue.put(notification.params)
        mine = self._subscriber(notification)
        if mine is not None:
            if notification.method == ACKNOWLEDGED:
                self._compare(mine, notification.params.get("notifications"))
            mine.acknowledge()
        change = change_of(notification.method, notification.params)
        if change is not None:
            for listener in {mine} if mine is not None else set(self._listeners):
                listener.offer(change)
        if self._notification_queue is not None:
            self._notification_queue.put(notification.method, notification.params)

    def _compare(self, listener: UnreadChanges, honoured: object) -> None:
        """Note the changes that the server will not report, although the listener asked for them."""
        missing = listener.missing_in(honoured if isinstance(honoured, dict) else {})
        if missing:
            self._observer.note("client.listen_reduced", missing=missing)

    def _subscriber(self, notification: Notification) -> UnreadChanges | None:
        """Return the listener whose `subscriptions/listen` the notification belongs to."""
        meta = notification.params.get("_meta")
        subscription = meta.get(SUBSCRIPTION_KEY) if isinstance(meta, dict) else None
        return self._subscribers.get(subscription) if isinstance(subscription, int | str) else None

    async def _restore(self, link: UpstreamLink) -> None:
        """Restore in a new session the settings of the lost one: log level and subscriptions."""
        self._cache.clear()
        self._doubt_tools()
        for listener in self._listeners:
            listener.missed()
        if link.is_sessionless:
            return
        wanted: list[tuple[str, dict[str, Any]]] = [
            ("resources/subscribe", {"uri": uri}) for uri in self._subscribed
        ]
        if self._level is not None:
            wanted.append(("logging/setLevel", {"level": self._level}))
        for method, params in wanted:
            try:
                await link.request(self._connection.outgoing(link, method, params))
            except LimpetError as error:
                self._observer.note("client.not_restored", method=method, error=error)

    # Open and close

    async def _open(self) -> None:
        try:
            await self._within(None, "the handshake", self._connection.open())
        except BaseException:
            await self._connection.aclose()
            raise

    async def aclose(self) -> None:
        """Close: stop answering the server, delete the session, stop the child process."""
        for listener in list(self._listeners):
            listener.fail(ClientError("the client is closed"))
        await self._connection.aclose()
        for queue in (self._log_queue, self._notification_queue):
            if queue is not None:
                queue.close()


def _reporter(queue: CallbackQueue) -> OnProgress:
    return lambda params: queue.put(params.get("progress"), params.get("total"), params.get("message"))


def _kind(result: Any) -> str:
    """Return the kind of a result; one without a kind is complete, and one that is no text is of none."""
    kind = result.get("resultType", "complete") if isinstance(result, dict) else "complete"
    return kind if isinstance(kind, str) else ""


def input_required(result: Any) -> InputNeeded | None:
    """Return the input that a result asks for; None if it asks for none."""
    if _kind(result) != "input_required":
        return None
    requests, state = result.get("inputRequests"), result.get("requestState")
    return InputNeeded(
        requests=requests if isinstance(requests, dict) else {},
        state=state if isinstance(state, str) else None,
    )
