"""Spans of a server: request, handler, ask and store. The parts of a `TracedEngine` make them.

    tools/call NAME        SERVER    from the arrival of the request to its end; of 2026-07-28 one for each round
    ├─ store claim         CLIENT    commands of a store that other processes share
    └─ handler NAME        INTERNAL  the author's function, or the back that passes the request on; one for all rounds
       ├─ (author's spans)           the handler's span is the current one
       ├─ elicitation/create  CLIENT a question to the client
       ├─ store append     CLIENT
       └─ tools/call NAME  CLIENT    a request to the server behind (`tracing/spans.py`)

The source of a request's context. First `_meta`, as SEP-414 says. Without it, the span that is current when the
request arrives, which belongs to the web framework that hosts us; then the headers. If `_meta` has a context, the
other one becomes a link. A forwarded request includes its `_meta` and headers, so the replica that runs it finds the
same context.

How later work finds earlier work. The name of a session's stream ends with the context of the request that began it. The stream's name is in
the claim, in each event id and in the answer to a duplicate, on every replica, so nothing more is written. A resume
(GET) and a repeated POST link to that context. It is the context of our own span, which the client may know.
The state of an interactive call that starts again (`InputRequired`) has it sealed; a retry of a call that is parked
finds the call itself.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, ClassVar, Final, cast

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, SpanKind, TraceFlags
from typing_extensions import override

from holdfast.config import Settings
from holdfast.core.admission import Admission
from holdfast.core.rounds import Asked, Given
from holdfast.core.stream import Position
from holdfast.engine.back import Back
from holdfast.engine.caller import Caller
from holdfast.engine.claims import Repeat
from holdfast.engine.engine import Engine
from holdfast.engine.exchange import Exchange, SessionExchange
from holdfast.engine.exchanges import Exchanges, SubmitRequest
from holdfast.engine.inner import InnerExchange
from holdfast.engine.outcome import Outcome
from holdfast.engine.reader import Reader
from holdfast.engine.readers import Readers
from holdfast.engine.rounds import RoundWriter
from holdfast.engine.session import Channel
from holdfast.engine.sessionless import AwaitedCall, SessionlessCalls
from holdfast.engine.sessions import Opened, Sessions
from holdfast.errors import ParkedElsewhere
from holdfast.ops.store_watch import store_kind
from holdfast.protocol.results import is_tool_error
from holdfast.protocol.sessionless import RequestMeta
from holdfast.stores.base import Duplicate, Refusal, Store
from holdfast.tracing.spans import (
    TOOL_ERROR,
    current,
    fail,
    links_to,
    name_of,
    received,
    span_context,
    started,
)
from holdfast.wire.jsonrpc import Request

_MAX_ID: Final = 128
_CARRIED: Final = re.compile(r"[0-9a-f]{24}-([\w-]{32})(?:~.*)?", re.ASCII)
"""The name of a stream that carries a context: random, then trace id and span id, then the mark of scopes (`engine/access.py`)."""
_TRACE_BYTES: Final = 16


class RequestSpan:
    """The span of one request, and the context in which its work runs."""

    __slots__ = ("context", "handler", "is_bound", "span")

    def __init__(self, span: Span, parent: Context | None) -> None:
        self.span: Span = span
        self.context: Context = trace.set_span_in_context(span, parent)
        self.handler: Context | None = None
        """The context of the handler, once it runs."""
        self.is_bound: bool = False
        """True if it has its exchange. The handler's context still has this object in `_arriving`."""

    def __repr__(self) -> str:
        return f"<RequestSpan {self.span!r}>"

    def end(self, error: BaseException | str | None = None) -> None:
        """End the span, unless it has ended."""
        if self.span.is_recording():
            if error is not None:
                fail(self.span, error)
            self.span.end()


_arriving: ContextVar[RequestSpan | None] = ContextVar("holdfast.arriving", default=None)
"""The span of the request that is about to become an exchange."""
_CALLS: Final[dict[Exchange, list[RequestSpan]]] = {}
"""By exchange that has not ended: the span of its first request, then those of retries that wait for the present round."""


def _arrived() -> RequestSpan | None:
    """Return the span of the request that arrives in this context; None if every span here has its exchange."""
    arriving = _arriving.get()
    return None if arriving is None or arriving.is_bound else arriving


def begin(
    caller: Caller, request: Request, version: str = "", *, server: str = "", ambient: bool = True
) -> RequestSpan:
    """Start the span of a request. `server` is the name of the server for operators."""
    meta = request.params.get("_meta")
    own = received(meta) if type(meta) is dict else None
    around = Context()
    if ambient and caller.headers:
        around = trace.set_span_in_context(trace.get_current_span(), around)
    other = around if span_context(around) is not None else received(caller.headers)
    parent = own or other
    name, attributes = name_of(request.method, request.params)
    is_http = bool(caller.headers)
    span = started(
        name,
        SpanKind.SERVER,
        {
            **attributes,
            "jsonrpc.request.id": str(request.id)[:_MAX_ID],
            "network.transport": "tcp" if is_http else "pipe",
            **({"network.protocol.name": "http"} if is_http else {}),
            **({"mcp.protocol.version": version} if version else {}),
            **({"holdfast.server": server} if server else {}),
        },
        context=parent if parent is not None else Context(),
        links=links_to(span_context(other)) if own is not None else [],
    )
    return RequestSpan(span, parent)


def bind(exchange: Exchange, request: RequestSpan) -> None:
    """Attach a span to an exchange, as that of its first request."""
    _CALLS[exchange] = [request]
    request.is_bound = True
    client = exchange.session
    request.span.set_attribute("mcp.protocol.version", client.record.version)
    if isinstance(exchange, SessionExchange):
        request.span.set_attribute("holdfast.session", client.name)
    if exchange.store.is_shared:
        request.span.set_attribute("holdfast.replica", exchange.store.replica)
    # A class of the same layout, instead of one more check in each plain call.
    exchange.__class__ = _AskingSession if isinstance(exchange, SessionExchange) else _Asking


def end(exchange: Exchange, outcome: Outcome, failure: BaseException | None = None) -> None:
    """End the spans of an exchange that has ended."""
    error: BaseException | str | None = failure or outcome.error
    if error is None and is_tool_error(outcome.result):
        error = TOOL_ERROR
    for request in _CALLS.pop(exchange, ()):
        request.end(error)


# The context in the name of a stream


def _carried(span: SpanContext) -> str:
    packed = span.trace_id.to_bytes(_TRACE_BYTES) + span.span_id.to_bytes(8)
    return urlsafe_b64encode(packed).decode()


def carried_by(stream: str) -> SpanContext | None:
    """Return the context in the name of a stream; None if it has none."""
    found = _CARRIED.fullmatch(stream)
    return _unpacked(found[1]) if found is not None else None


def _unpacked(text: str) -> SpanContext | None:
    packed = urlsafe_b64decode(text)
    trace_id, span_id = int.from_bytes(packed[:_TRACE_BYTES]), int.from_bytes(packed[_TRACE_BYTES:])
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return context if context.is_valid else None


# Asks


@contextmanager
def _asking(exchange: Exchange, method: str) -> Iterator[None]:
    """Make a span for a question, below the author's own span or that of the handler."""
    calls = _CALLS.get(exchange)
    context = calls[0].handler or calls[0].context if calls else None
    here = trace.get_current_span().get_span_context()
    known = span_context(context)
    if context is None or (known is not None and here.trace_id == known.trace_id):
        context = None
    name, attributes = name_of(method, {})
    with current(started(name, SpanKind.CLIENT, attributes, context=context), context):
        yield


class _Asks:
    """The questions of an exchange, with spans."""

    __slots__ = ()

    async def ask(self: Any, method: str, params: object, **options: Any) -> Any:
        """Ask the client."""
        with _asking(self, method):
            return await Exchange.ask(self, method, params, **options)


class _Asking(_Asks, Exchange):
    __slots__ = ()


class _AskingSession(_Asks, SessionExchange):
    __slots__ = ()


# The parts of the engine


class _TracedBack:
    """A back whose handlers have spans. All other members are the back's own."""

    def __init__(self, back: Back) -> None:
        self._back = back

    def __getattr__(self, name: str) -> Any:
        return getattr(self._back, name)

    async def handle(self, exchange: Exchange) -> bytes:
        """Return the encoded result of the back."""
        calls = _CALLS.get(exchange.outer or exchange if isinstance(exchange, InnerExchange) else exchange)
        if calls is None:
            return await self._back.handle(exchange)
        request = calls[0]
        method, _, name = name_of(exchange.request.method, exchange.request.params)[0].partition(" ")
        span = started(f"handler {name or method}", SpanKind.INTERNAL, {}, context=request.context)
        with current(span, request.context) as request.handler:
            result = await self._back.handle(exchange)
            if is_tool_error(result):
                fail(span, TOOL_ERROR)
            return result


class _TracedStore:
    """A store whose commands have spans where they belong to a request. All other members are the store's own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._system = store_kind(store)

    def __repr__(self) -> str:
        return repr(self._store)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not iscoroutinefunction(found):
            return found
        attributes = {"db.system.name": self._system, "db.operation.name": name}

        @wraps(found)
        async def command(*args: Any, **named: Any) -> Any:
            if not trace.get_current_span().is_recording():
                return await found(*args, **named)
            with current(started(f"store {name}", SpanKind.CLIENT, attributes)):
                return await found(*args, **named)

        self.__dict__[name] = command
        return command


class _Named:
    """A part of an engine that begins spans."""

    server: str = ""
    """The name of the server for operators; empty: spans have none."""


class _TracedExchanges(Exchanges, _Named):
    """Exchanges of sessions, each with the span of its request."""

    @override
    def submit_now(
        self, key: str, caller: Caller, request: Request, digest: bytes, *, streams: bool
    ) -> SessionExchange | Duplicate | Refusal | None:
        """Do nothing: all requests go through `submit`, which begins the span."""
        return None

    def around(self, submit: SubmitRequest) -> SubmitRequest:
        """Return a function that submits a request like the given one, within the span of the request."""

        async def submitted(
            key: str, caller: Caller, request: Request, digest: bytes = b"", *, streams: bool = True
        ) -> SessionExchange | Repeat:
            arrived = begin(caller, request, server=self.server)
            before = _arriving.set(arrived)
            try:
                with trace.use_span(arrived.span, record_exception=False, set_status_on_exception=False):
                    submitted = await submit(key, caller, request, digest, streams=streams)
            except BaseException as error:
                arrived.end(error)
                raise
            finally:
                _arriving.reset(before)
            if isinstance(submitted, Repeat):
                _link(arrived.span, carried_by(submitted.stream))
                arrived.end()
            elif submitted not in _CALLS:
                # Its home has answered it.
                arrived.end()
            return submitted

        return submitted

    @override
    def stream_name(self) -> str:
        name, arriving = super().stream_name(), _arrived()
        return name if arriving is None else f"{name}-{_carried(arriving.span.get_span_context())}"

    @override
    def _enter(self, exchange: SessionExchange, *, has_slot: bool = False) -> Admission:
        if has_slot:
            # It entered before, and has its span.
            return super()._enter(exchange, has_slot=True)
        arriving = _arrived()
        if arriving is None:
            # Another replica has forwarded the request.
            arriving = begin(exchange.caller, exchange.request, server=self.server, ambient=False)
            _link(arriving.span, carried_by(exchange.claim.stream))
        bind(exchange, arriving)
        return super()._enter(exchange)

    @override
    def settle_now(self, exchange: SessionExchange, outcome: Outcome) -> bool:
        if not super().settle_now(exchange, outcome):
            return False
        end(exchange, outcome)
        return True

    @override
    async def settle(self, exchange: SessionExchange, outcome: Outcome) -> None:
        calls = _CALLS.get(exchange)
        if exchange.has_ended or calls is None:
            await super().settle(exchange, outcome)
            return
        try:
            with trace.use_span(calls[0].span, record_exception=False, set_status_on_exception=False):
                await super().settle(exchange, outcome)
        except BaseException as error:
            end(exchange, outcome, error)
            raise
        end(exchange, outcome)


def _link(span: Span, context: SpanContext | None) -> None:
    if context is not None:
        span.add_link(context)


class _TracedSessionlessCalls(SessionlessCalls, _Named):
    """Sessionless calls, each round with the span of its request."""

    _retried: RequestSpan | None = None
    """The span of the retry that arrives now."""

    @override
    def start(
        self, meta: RequestMeta, caller: Caller, request: Request, given: Given | None = None
    ) -> AwaitedCall:
        arriving = self._retried or begin(caller, request, meta.version, server=self.server)
        try:
            awaited = super().start(meta, caller, request, given)
        except BaseException as error:
            arriving.end(error)
            raise
        bind(awaited.exchange, arriving)
        return awaited

    @override
    def go_on(self, meta: RequestMeta, caller: Caller, request: Request) -> AwaitedCall:
        arriving = self._retried = begin(caller, request, meta.version, server=self.server)
        try:
            awaited = super().go_on(meta, caller, request)
        except ParkedElsewhere:
            # The replica that has the call makes the span.
            raise
        except BaseException as error:
            arriving.end(error)
            raise
        finally:
            self._retried = None
        calls = _CALLS.get(awaited.exchange)
        if calls is not None and not arriving.is_bound:
            _link(arriving.span, calls[0].span.get_span_context())
            calls.append(arriving)
        if calls is None or awaited.outcome is not None:
            # A repeat: its answer is known.
            arriving.end()
        return awaited

    @override
    def _start_again(
        self, origin: str, meta: RequestMeta, caller: Caller, request: Request, given: Given
    ) -> AwaitedCall:
        if self._retried is not None:
            _link(self._retried.span, _unpacked(origin))
        return super()._start_again(origin, meta, caller, request, given)

    @override
    def _park(self, exchange: Exchange, writer: RoundWriter, number: int, asked: dict[str, Asked]) -> bytes:
        encoded = super()._park(exchange, writer, number, asked)
        calls = _CALLS.get(exchange, [])
        for request in calls:
            request.end()
        del calls[1:]
        return encoded

    @override
    def _origin_of(self, exchange: Exchange) -> str:
        calls = _CALLS.get(exchange)
        return _carried(calls[0].span.get_span_context()) if calls else ""

    @override
    def settle_now(self, exchange: Exchange, outcome: Outcome) -> bool:
        if not super().settle_now(exchange, outcome):
            return False
        end(exchange, outcome)
        return True

    @override
    async def settle(self, exchange: Exchange, outcome: Outcome) -> None:
        try:
            await super().settle(exchange, outcome)
        finally:
            end(exchange, outcome)


class _TracedReaders(Readers):
    """Readers; a reader that resumes a request's stream has a span that links to the request."""

    @override
    async def attach(
        self, key: str, principal: str, stream: str | None = None, cursor: Position | None = None
    ) -> Reader:
        earlier = carried_by(stream) if stream is not None and cursor is not None else None
        if earlier is None:
            return await super().attach(key, principal, stream, cursor)
        span = started("resume", SpanKind.SERVER, {})
        with current(span):
            reader = await super().attach(key, principal, stream, cursor)
            # Not before: a client can send any event id.
            _link(span, earlier)
            span.set_attribute("holdfast.session", reader.session.name)
            return reader


class _TracedSessions(Sessions, _Named):
    """Sessions; `initialize` has a span."""

    @override
    def opening(
        self, caller: Caller, params: dict[str, Any], *, channel: Channel | None = None
    ) -> Opened | Awaitable[Opened]:
        if channel is None and self._runtime.settings.stateless:
            # The session of a single request, which has its own span.
            return super().opening(caller, params)
        return self._traced(caller, params, channel)

    async def _traced(self, caller: Caller, params: dict[str, Any], channel: Channel | None) -> Opened:
        request = begin(caller, Request("", "initialize", params), server=self.server)
        with current(request.span, request.context):
            opening = super().opening(caller, params, channel=channel)
            opened = opening if isinstance(opening, Opened) else await opening
            request.span.set_attribute("mcp.protocol.version", opened.session.record.version)
            request.span.set_attribute("holdfast.session", opened.session.name)
            return opened


class TracedEngine(Engine):
    """An engine that makes spans. Its arguments are those of `Engine`, and the name of the server for operators."""

    exchanges_type: ClassVar[type[Exchanges]] = _TracedExchanges
    sessions_type: ClassVar[type[Sessions]] = _TracedSessions
    sessionless_type: ClassVar[type[SessionlessCalls]] = _TracedSessionlessCalls
    readers_type: ClassVar[type[Readers]] = _TracedReaders

    def __init__(
        self,
        back: Back,
        settings: Settings = Settings(),
        *,
        store: Store | None = None,
        server: str = "",
        **ports: Any,
    ) -> None:
        if store is not None and store.is_shared:
            store = cast("Store", _TracedStore(store))
        super().__init__(cast("Back", _TracedBack(back)), settings, store=store, **ports)
        self.exchanges.submit = cast("_TracedExchanges", self.exchanges).around(self.exchanges.submit)
        for part in (self.exchanges, self.sessions, self.sessionless):
            cast("_Named", part).server = server
