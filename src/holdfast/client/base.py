"""What every feature of the client stands on: one request, in either era, with everything around it."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from holdfast.client.cache import Cache, cache_key
from holdfast.client.calls import Call
from holdfast.client.carry import Carrier
from holdfast.client.connection import Connection, EraMemory
from holdfast.client.dialers import PipeDialer, Route, dialer_for
from holdfast.client.eras import Agreed
from holdfast.client.feed import Callback, Feed
from holdfast.client.handlers import Handlers
from holdfast.client.hello import Hello
from holdfast.client.incoming import Incoming
from holdfast.client.link import Link, Receiver
from holdfast.client.listening import Listener, change_of
from holdfast.client.results import InputNeeded
from holdfast.errors import (
    BadAnswer,
    CallTimeout,
    ClientError,
    HoldfastError,
    InputRefused,
    McpError,
    TooManyRounds,
)
from holdfast.protocol.mirror import Mirrored, encode_value, values_of
from holdfast.protocol.params import LoggingLevel
from holdfast.protocol.sessionless import HEADER_MISMATCH, SUSPENDABLE, UNSUPPORTED_VERSION
from holdfast.wire.jsonrpc import Notification, notification_message

Progress = Callable[[float, float | None, str | None], Awaitable[None] | None]
"""Told how far a call is: progress, total, message."""
HARMLESS: Final = frozenset(
    {
        "ping",
        "server/discover",
        "tools/list",
        "prompts/list",
        "prompts/get",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "completion/complete",
        "logging/setLevel",
        "tasks/get",
        "tasks/result",
        "tasks/list",
        "tasks/cancel",
        "tasks/update",
    }
)
"""Requests that may be sent twice by what the protocol says of them."""
TOOLS_CHANGED: Final = "notifications/tools/list_changed"
REMEMBERED: Final = EraMemory()
"""Shared by all clients of a process unless they bring their own."""


class Options(Struct, frozen=True):
    """What a client was told about itself."""

    handlers: Handlers
    hello: Hello
    version: str
    eras: EraMemory
    callbacks: tuple[Callback | None, Callback | None]
    """Told of log messages, and of every notification."""
    auto_input: bool


class Requester:
    """A client without its features: it connects, requests, listens and closes."""

    def __init__(self, route: Route, options: Options) -> None:
        self._limits, self._times, self._ports = route.limits, route.times, route.ports
        self._clock, _, self._observer = route.ports
        self._hello = options.hello
        self._auto_input = options.auto_input
        self._incoming = Incoming(
            options.handlers, route.limits.incoming, route.limits.incoming_queued, self._observer
        )
        self._dialer = dialer_for(route, self._new_receiver)
        self._connection = Connection(
            self._dialer, options.hello, options.version, options.eras, route.times, route.ports
        )
        self._connection.on_found = self._restore
        self._carrier = Carrier(
            self._connection, options.hello, self._mirror, route.limits, route.times, route.ports
        )
        self._cache = Cache(route.limits.cached)
        self._log_feed, self._notification_feed = map(self._feed, options.callbacks)
        self._mirrored: dict[str, tuple[Mirrored, ...]] = {}
        self._listeners: set[Listener] = set()
        self._subscribers: dict[object, Listener] = {}
        self._subscribed: Counter[str] = Counter()
        self._level: LoggingLevel | None = None

    # Who we talk to

    @property
    def agreed(self) -> Agreed:
        """What was settled with the server: version, its name, capabilities, instructions.

        Raises:
            ClientError: there is no connection yet.
        """
        if self._connection.agreed is None:
            raise ClientError("the client is not connected: use it in `async with`")
        return self._connection.agreed

    @property
    def stderr(self) -> str:
        """The end of what a child process has written to stderr; empty for other servers."""
        child = self._dialer.child if isinstance(self._dialer, PipeDialer) else None
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
        """Send a request and return its result as it came, answering on the way what the server asks.

        `timeout` replaces the client's own; `math.inf` waits for ever. `idempotent` says whether the call may
        be repeated when nobody knows what became of it. Cancelling this cancels the request.

        Raises:
            McpError: the server answered with an error; OutcomeUnknown if the call's fate is not known.
            ClientError: there was no usable answer (CallTimeout: none in time).
            NotSent: the server could not be reached, and nothing was executed.
        """
        plain = dict(params or {})
        key = cache_key(method, plain)
        if key is not None and not fresh and (kept := self._cache.find(key, self._clock.now())) is not None:
            return kept
        may_repeat = method in HARMLESS if idempotent is None else idempotent
        feed = self._feed(progress)
        result = await self._within(timeout, method, self._rounds(method, plain, feed, may_repeat=may_repeat))
        if feed is not None:
            await feed.drain()
        if key is not None and _kind(result) == "complete":
            self._cache.keep(key, result, self._clock.now())
        return result

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification.

        Raises:
            LinkError: it did not arrive, or nobody knows.
        """
        link = await self._connection.link()
        await link.notify(notification_message(method, params))

    async def _within(self, timeout: float | None, method: str, work: Awaitable[Any]) -> Any:
        seconds = self._times.call if timeout is None else timeout
        bound = asyncio.timeout(None if seconds is None or seconds == float("inf") else seconds)
        try:
            async with bound:
                return await work
        except TimeoutError:
            if not bound.expired():
                raise
            raise CallTimeout(f"no answer to {method} within {seconds:g} s") from None

    async def _rounds(
        self, method: str, params: dict[str, Any], feed: Feed | None, *, may_repeat: bool
    ) -> Any:
        """Send a request and go on answering until its result is there (2026-07-28)."""
        sent = params
        for _ in range(self._limits.rounds + 1):
            result = await self._carry(method, sent, feed, may_repeat=may_repeat)
            if _kind(result) != "input_required" or not self._auto_input:
                return result
            if method not in SUSPENDABLE:
                raise BadAnswer(f"the server asks for input to {method}, which may not")
            sent = {**params, **await self._inputs(result)}
        raise TooManyRounds(
            f"the server asked for input more than {self._limits.rounds} times for one {method}"
        )

    async def _inputs(self, result: dict[str, Any]) -> dict[str, Any]:
        """Answer what a result asks for; what goes back with the retry."""
        asked = result.get("inputRequests")
        back: dict[str, Any] = {}
        if isinstance(asked, dict):
            back["inputResponses"] = await self.answer_inputs(asked)
        if isinstance(result.get("requestState"), str):
            back["requestState"] = result["requestState"]
        return back

    async def answer_inputs(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Answer input requests by this client's handlers, all at once within its bound.

        Raises:
            InputRefused: one of them nobody here answers.
        """

        async def one(key: str, request: Any) -> tuple[str, object]:
            method = request.get("method") if isinstance(request, dict) else None
            params = request.get("params") if isinstance(request, dict) else None
            try:
                return key, await self._incoming.run(str(method), params if isinstance(params, dict) else {})
            except McpError as error:
                raise InputRefused(f"the server asks for {method}: {error}") from error

        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(one(key, request)) for key, request in asked.items()]
        try:
            return dict(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def _carry(
        self, method: str, params: dict[str, Any], feed: Feed | None, *, may_repeat: bool
    ) -> Any:
        try:
            return await self._carrier.carry(method, params, feed=feed, may_repeat=may_repeat)
        except McpError as error:
            if not await self._is_mended(method, error):
                raise
        return await self._carrier.carry(method, params, feed=feed, may_repeat=may_repeat)

    async def _is_mended(self, method: str, error: McpError) -> bool:
        """Find out whether a refusal came from knowing too little of the server, which is now known."""
        if error.code == UNSUPPORTED_VERSION:
            self._connection.distrust(await self._connection.link())
            return True
        if error.code == HEADER_MISMATCH and method == "tools/call":
            await self._relearn_tools()
            return True
        return False

    async def _relearn_tools(self) -> None:
        """Read the tools' schemas again; the client's tools do."""

    def _doubt_tools(self) -> None:
        """Take note that the tools' schemas may have changed; the client's tools do."""

    def _mirror(self, method: str, params: dict[str, Any]) -> dict[str, str]:
        mirrored = self._mirrored.get(params.get("name", "")) if method == "tools/call" else None
        if not mirrored:
            return {}
        values = values_of(mirrored, params.get("arguments"))
        return {header: encode_value(value) for header, value in values if isinstance(value, str | int)}

    # What comes by itself

    def _new_receiver(self) -> Receiver:
        return Receiver(self._incoming, self._hear, self._limits.depth, self._observer)

    def _feed(self, callback: Callback | None) -> Feed | None:
        return Feed(callback, self._limits.behind, self._observer) if callback is not None else None

    def _hear(self, notification: Notification, subscription: object) -> None:
        self._cache.invalidate(notification.method, notification.params)
        if notification.method == TOOLS_CHANGED:
            self._doubt_tools()
        if notification.method == "notifications/message" and self._log_feed is not None:
            self._log_feed.put(notification.params)
        mine = self._subscribers.get(subscription) if isinstance(subscription, int | str) else None
        if mine is not None:
            mine.acknowledge()
        change = change_of(notification.method, notification.params)
        if change is not None:
            for listener in {mine} if mine is not None else set(self._listeners):
                listener.offer(change)
        if self._notification_feed is not None:
            self._notification_feed.put(notification.method, notification.params)

    async def _restore(self, link: Link) -> None:
        """Give a new session what the lost one had: log level and subscriptions."""
        self._cache.clear()
        self._doubt_tools()
        for listener in self._listeners:
            listener.missed()
        if link.is_modern:
            return
        wanted: list[tuple[str, dict[str, Any]]] = [
            ("resources/subscribe", {"uri": uri}) for uri in self._subscribed
        ]
        if self._level is not None:
            wanted.append(("logging/setLevel", {"level": self._level}))
        for method, params in wanted:
            try:
                await link.request(Call(self._connection.number(), method, params, None), {})
            except HoldfastError as error:
                self._observer.note("client.not_restored", method=method, error=error)

    # Life

    async def _open(self) -> None:
        try:
            await self._within(None, "the handshake", self._connection.open())
        except BaseException:
            await self._connection.aclose()
            raise

    async def aclose(self) -> None:
        """Close: answers under way are abandoned, the session is ended, children are stopped."""
        for listener in list(self._listeners):
            listener.fail(ClientError("the client is closed"))
        await self._incoming.aclose()
        await self._connection.aclose()
        for feed in (self._log_feed, self._notification_feed):
            if feed is not None:
                feed.close()


def _kind(result: Any) -> str:
    kind = result.get("resultType", "complete") if isinstance(result, dict) else "complete"
    return kind if isinstance(kind, str) else "complete"


def input_required(result: Any) -> InputNeeded | None:
    """Return what a result asks for, if it does."""
    if _kind(result) != "input_required":
        return None
    requests, state = result.get("inputRequests"), result.get("requestState")
    return InputNeeded(
        requests=requests if isinstance(requests, dict) else {},
        state=state if isinstance(state, str) else None,
    )
