"""The connection to one server, through all its links.

    user  ──request──▶  Connection  ──▶  UpstreamLink  ──▶  server     (after a failure: retries.py)
    user  ◀─callbacks─  Connection  ◀──  Receiver  ◀─────────┘

The connection has at most one working link. `link()` returns it. If it has ended, the first task that asks opens and
negotiates the next one, and every other task waits for the same one: so a lost session is replaced once, even if many
requests notice the loss. Requests that were in flight on the old link end there, on their own streams or with an error.
Ids are never used twice, so a late response cannot reach a newer request.

The users are `Client`, and the backs in front of another server. The connection does not read results:
it returns them as plain values, or, with `raw_results`, as JSON text (`msgspec.Raw`) that was checked and not decoded.
It never answers an `input_required` result (2026-07-28): the caller gets it and sends the request again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from functools import partial
from itertools import count
from typing import Any, Final

from msgspec import Struct

from limpet.errors import (
    UNSUPPORTED_VERSION,
    Broken,
    ClientError,
    ConfigError,
    HttpRefused,
    McpError,
    NotSent,
    OutcomeUnknown,
    Unauthorized,
)
from limpet.ports import Ports, spans_of
from limpet.protocol.idempotency import takes_keys
from limpet.upstream.backoff import Backoff
from limpet.upstream.connectors import Connector
from limpet.upstream.incoming import ChargeRequest, IncomingRequests, OnRequest, charge_nothing
from limpet.upstream.link import LinkEnd, OnEnd, OnNotification, Overloaded, Receiver, UpstreamLink
from limpet.upstream.negotiation import (
    VERSIONS,
    Agreed,
    DiedOfProbe,
    EraMemory,
    Negotiation,
    ServerEra,
)
from limpet.upstream.pending import NO_HEADERS, OnProgress, OutgoingRequest
from limpet.upstream.profile import ClientProfile
from limpet.upstream.retries import Failures
from limpet.upstream.settings import ClientLimits, ClientTimes
from limpet.wire.jsonrpc import decode, decode_raw, notification_message
from limpet.wire.lines import Reserve

Headers = Mapping[str, str]
MirrorHeaders = Callable[[str, dict[str, Any]], Headers]
"""Returns the headers that repeat parameters of a request (2026-07-28), by method and params."""
REMEMBERED: Final = EraMemory()
"""Shared by all connections of a process unless they bring their own."""


def no_mirror(method: str, params: dict[str, Any]) -> Headers:  # noqa: ARG001 - the signature is MirrorHeaders
    """Repeat nothing."""
    return NO_HEADERS


class Callbacks(Struct, frozen=True, kw_only=True):
    """The functions of a connection's user for messages of the server."""

    on_request: OnRequest
    on_notification: OnNotification
    on_end: OnEnd | None = None
    """Called exactly once for each link that was negotiated, when it ends."""
    on_reconnected: Callable[[UpstreamLink], Awaitable[None]] | None = None
    """Restores on a new link the settings of the old session. No other request uses the link before this returns, or
    before
    `times.patience` is over: then it is cancelled."""
    on_missed: Callable[[], None] | None = None
    """Called when messages outside of requests may have been missed: their stream broke and could not be resumed."""
    mirror: MirrorHeaders = no_mirror
    reserve: Reserve | None = None
    """As in `Receiver`."""
    charge: ChargeRequest = charge_nothing
    """For requests of the server."""


class ConnectionOptions(Struct, frozen=True, kw_only=True):
    """How a connection behaves."""

    version: str = "auto"
    """One of `VERSIONS`."""
    first: ServerEra = ServerEra.SESSIONLESS
    """The era to use with a server that speaks both, for "auto"."""
    raw_results: bool = False
    """Return results as JSON text (`msgspec.Raw`)."""
    reconnect: bool = True
    """Open another link when one has ended. False: every later request raises NotSent with the reason of the end."""
    limits: ClientLimits = ClientLimits()
    times: ClientTimes = ClientTimes()


class Connection:
    """A connection to one server. Call `open` first, `aclose` last."""

    def __init__(
        self,
        connector: Connector,
        profile: ClientProfile,
        callbacks: Callbacks,
        *,
        options: ConnectionOptions = ConnectionOptions(),  # noqa: B008 - frozen
        eras: EraMemory | None = None,
        ports: Ports,
    ) -> None:
        if options.version not in VERSIONS:
            raise ConfigError(
                f"the protocol version is one of {', '.join(VERSIONS)}; not {options.version!r}"
            )
        self._connector = connector
        self._profile = profile
        self._callbacks = callbacks
        self._reconnect = options.reconnect
        self.times: ClientTimes = options.times
        self._clock, self._random, self._observer = ports
        self._spans = spans_of(ports.observer)
        memory = (REMEMBERED if eras is None else eras), connector.remembered_as
        self._negotiation = Negotiation(
            profile, options.version, options.first, memory, self._ask, self._observer
        )
        limits = options.limits
        self._failures = partial(Failures, limits=limits, times=options.times, ports=ports)
        self._decode = partial(decode_raw if options.raw_results else decode, max_depth=limits.depth)
        self.incoming: IncomingRequests = IncomingRequests(
            callbacks.on_request, limits, self._observer, callbacks.charge
        )
        self._numbers: Iterator[int] = count(1)
        self._link: UpstreamLink | None = None
        self._finding: asyncio.Task[UpstreamLink] | None = None
        self._closed = False
        self.agreed: Agreed | None = None
        """The result of the last negotiation; None before the first."""

    def __repr__(self) -> str:
        return f"<Connection {self._link}>"

    # Messages

    def request(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        on_progress: OnProgress | None = None,
        headers: Headers = NO_HEADERS,
        may_repeat: bool = False,
        owner: object = None,
    ) -> Coroutine[Any, Any, Any]:
        """Send a request and return its result, with as many attempts and links as are allowed.

        Values in `params` may be `msgspec.Raw`. `_meta` goes to the server as it is, plus the members that the era
        requires; with `on_progress` the progress token in it is replaced by the id of the request. `headers` go with
        this request only (HTTP). `owner` is given back in callbacks, as `origin.owner`. Cancelling this call cancels
        the request at the server; `Task.cancel(reason)` sends the reason with it.

        Raises:
            McpError: the server answered with an error; OutcomeUnknown if it is unknown whether it was executed.
            NotSent: the server could not be reached, and nothing was executed.
            ClientError: the server's response is not usable.
        """
        plain = params if params is not None else {}
        if self._spans is not None:
            again = partial(
                self._request,
                method,
                on_progress=on_progress,
                headers=headers,
                may_repeat=may_repeat,
                owner=owner,
            )
            version = self.agreed.version if self.agreed is not None else ""
            return self._spans.send(method, plain, again, version=version, origin=self._connector.origin)
        return self._request(
            method, plain, on_progress=on_progress, headers=headers, may_repeat=may_repeat, owner=owner
        )

    async def _request(
        self,
        method: str,
        plain: dict[str, Any],
        *,
        on_progress: OnProgress | None,
        headers: Headers,
        may_repeat: bool,
        owner: object,
    ) -> Any:
        """Send a request and return its result."""
        began, failures, is_replaced = self._clock.now(), None, False
        while True:
            try:
                link = self._link
                if link is None or link.lost:
                    link = await self.link()
            except NotSent as error:
                if failures is not None:
                    failures.raise_doubt(error)
                raise
            sent = self._with_mirror(method, plain, headers) if link.is_sessionless else headers
            outgoing = self.outgoing(link, method, plain, headers=sent, on_progress=on_progress, owner=owner)
            try:
                return await link.request(outgoing)
            except (NotSent, Broken, OutcomeUnknown) as error:
                if failures is None:
                    has_key = self.takes_keys and bool(outgoing.key)
                    failures = self._failures(method, began, may_repeat=may_repeat, has_key=has_key)
                await failures.add(error, link)
            except McpError as error:
                if error.code != UNSUPPORTED_VERSION or not self._reconnect:
                    raise
                # The server was replaced by one with other versions, and has executed nothing. Another link is
                # negotiated.
                link.lost = True
                if is_replaced:
                    raise
                is_replaced = True

    @property
    def takes_keys(self) -> bool:
        """True if the server does not run a call twice that has an idempotency key."""
        agreed = self.agreed
        return agreed is not None and agreed.is_sessionless and takes_keys(agreed.capabilities)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification.

        Raises:
            LinkError: the server did not receive it, or it is unknown whether it did.
        """
        link = await self.link()
        await link.notify(notification_message(method, params))

    def outgoing(
        self,
        link: UpstreamLink,
        method: str,
        params: dict[str, Any],
        *,
        headers: Headers = NO_HEADERS,
        on_progress: OnProgress | None = None,
        owner: object = None,
    ) -> OutgoingRequest:
        """Return a request with a new id and the `_meta` of the link's era, for one `link.request`.

        `request` does this and more. Use this one if the id must be known before the request is sent.
        """
        number = next(self._numbers)
        if link.is_sessionless or on_progress is not None or self._profile.repeats_extensions:
            params = self._profile.stamp(
                params,
                version=link.version,
                is_sessionless=link.is_sessionless,
                progress_token=None if on_progress is None else number,
            )
        return OutgoingRequest(number, method, params, headers=headers, on_progress=on_progress, owner=owner)

    def _with_mirror(self, method: str, params: dict[str, Any], own: Headers) -> Headers:
        mirrored = self._callbacks.mirror(method, params)
        return {**own, **mirrored} if own else mirrored

    async def _ask(self, link: UpstreamLink, method: str, params: dict[str, Any]) -> Any:
        return await link.request(self.outgoing(link, method, params))

    # Links

    async def open(self) -> Agreed:
        """Connect for the first time and return the negotiated values.

        Raises:
            NotSent: the server cannot be reached. There is only one attempt.
            VersionRefused: there is no protocol version in common.
        """
        link, agreed = await self._connect()
        self._use(link)
        return agreed

    async def link(self) -> UpstreamLink:
        """Return a working link, and open one if no link works.

        Raises:
            LimpetError: no link could be opened.
        """
        link = self._link
        if link is not None and not link.lost:
            return link
        if self._closed:
            raise ClientError("the client is closed")
        if not self._reconnect:
            raise NotSent(f"the connection has ended: {_words(link)}")
        if self._finding is None:
            self._finding = asyncio.get_running_loop().create_task(self._find(link))
            self._finding.add_done_callback(self._end_finding)
        finding = self._finding
        # Cancelling this call does not cancel the task: others may wait for it too. Only `aclose` cancels it.
        await asyncio.wait({finding})
        if finding.cancelled():
            raise ClientError("the client is closed")
        return finding.result()

    @property
    def standalone(self) -> object | None:
        """The standalone stream, on which the server reports changes now; None if none is open.

        See `Receiver.standalone`.
        """
        link = self._link
        return None if link is None or link.lost else link.receiver.standalone

    async def aclose(self) -> None:
        """End the conversation: stop answering the server, delete the session, stop the process."""
        self._closed = True
        await self.incoming.aclose()
        if self._finding is not None:
            self._finding.cancel()
            await asyncio.wait({self._finding})
        if self._link is not None:
            await self._link.aclose()
        await self._connector.aclose()

    def _use(self, link: UpstreamLink) -> None:
        self._link = link
        link.receiver.when_ended(self._report_end)

    def _report_end(self, end: LinkEnd) -> None:
        self._observer.note("client.link_ended", reason=end.reason.value)
        if self._callbacks.on_end is not None:
            self._callbacks.on_end(end)

    def _end_finding(self, finding: asyncio.Task[UpstreamLink]) -> None:
        self._finding = None
        if not finding.cancelled():
            # Every waiting task has received the exception. Read it, or asyncio logs it once more.
            finding.exception()

    async def _find(self, lost: UpstreamLink | None) -> UpstreamLink:
        if lost is not None:
            await lost.aclose(goodbye=False)
        backoff = Backoff(self._random, self.times.backoff)
        deadline = self._clock.now() + self.times.patience
        while True:
            try:
                link, _ = await self._connect()
            except NotSent as error:
                pause = backoff.pause(error.retry_after)
                if self._clock.now() + pause > deadline:
                    raise
                await asyncio.sleep(pause)
                continue
            await self._restore(link)
            self._use(link)
            self._observer.note("client.reconnected", version=link.version)
            return link

    async def _restore(self, link: UpstreamLink) -> None:
        """Let the user restore its settings. A server that does not answer must not keep all requests waiting."""
        restore = self._callbacks.on_reconnected
        if restore is None:
            return
        try:
            async with asyncio.timeout(self.times.patience):
                await restore(link)
        except TimeoutError as error:
            self._observer.note("client.not_restored", error=error)
        except BaseException:
            # `aclose` knows only the link before this one.
            await link.aclose(goodbye=False)
            raise

    async def _connect(self) -> tuple[UpstreamLink, Agreed]:
        """Return a new, negotiated link.

        Raises:
            NotSent: the server cannot be reached, or the negotiation broke. No request of the caller was sent.
        """
        negotiation = self._negotiation
        negotiate = partial(negotiation.negotiate, probe_seconds=self._connector.probe_seconds)
        found = await self._connect_older() if negotiation.expects_older else None
        try:
            found = found or await self._negotiate(negotiate)
        except DiedOfProbe as error:
            self._observer.note("client.died_of_probe", error=error)
            found = await self._negotiate(partial(negotiate, died=error.era))
        except HttpRefused as error:
            if isinstance(error, Unauthorized) or not negotiation.may_be_older:
                raise
            found = await self._connect_older()
            if found is None:
                raise
            negotiation.learn_older()
        self.agreed = found[1]
        return found

    async def _connect_older(self) -> tuple[UpstreamLink, Agreed] | None:
        """Return a link over the transport of 2024-11-05; None if the server does not have it."""
        try:
            return await self._negotiate(self._negotiation.initialize, is_older=True)
        except HttpRefused as error:
            self._observer.note("client.no_older_transport", error=error)
            return None

    async def _negotiate(
        self, negotiate: Callable[[UpstreamLink], Awaitable[Agreed]], *, is_older: bool = False
    ) -> tuple[UpstreamLink, Agreed]:
        bound = asyncio.timeout(self._connector.answer_seconds)
        on_notification = self._callbacks.on_notification
        receiver = Receiver(self.incoming, on_notification, self._decode, self._observer)
        receiver.reserve, receiver.on_missed = self._callbacks.reserve, self._callbacks.on_missed
        connect = self._connector.connect_older if is_older else self._connector.connect
        link = await connect(receiver)
        try:
            async with bound:
                return link, await negotiate(link)
        except BaseException as error:
            failure = self._failure(error, is_late=bound.expired())
            await link.aclose(goodbye=False)
            if failure is not None:
                raise failure from error
            raise

    def _failure(self, error: BaseException, *, is_late: bool) -> NotSent | None:
        """Return the error that the caller gets for a broken negotiation; None: the error itself."""
        if is_late and isinstance(error, TimeoutError):
            seconds = self._connector.answer_seconds
            return NotSent(
                f"the server did not answer within {seconds:g} s of its start (ClientTimes.connect, --start-timeout); "
                f"{self._connector.last_words}"
            )
        if isinstance(error, Broken):
            wait = error.retry_after if isinstance(error, Overloaded) else None
            return NotSent(f"cannot connect: {error}", wait)
        return None


def _words(link: UpstreamLink | None) -> str:
    end = link.receiver.end if link is not None else None
    if end is None:
        return "it was never opened"
    return f"{end.reason.value}; {end.message}" if end.message else end.reason.value
