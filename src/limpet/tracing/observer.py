"""The observer of a traced process: the events of another one, and spans of requests, handlers, questions, stores.

    tools/call NAME        SERVER    from the arrival of the request to its end; of 2026-07-28 one for each round
    ├─ store claim         CLIENT    commands of a store that other processes share
    └─ handler NAME        INTERNAL  the author's function, or the back that passes the request on; one for all rounds
       ├─ (author's spans)           the handler's span is the current one
       ├─ elicitation/create  CLIENT a question to the client
       ├─ store append     CLIENT
       └─ tools/call NAME  CLIENT    a request to the server behind

The source of a request's context. First `_meta`, as SEP-414 says. Without it, the span that is current when the
request arrives, which belongs to the web framework that hosts us; then the headers. If `_meta` has a context, the
other one becomes a link. A forwarded request includes its `_meta` and headers, so the replica that runs it finds the
same context.

How later work finds earlier work. The name of a session's stream ends with the mark of the request that began it: trace
id and span id. The stream's name is in the claim, in each event id and in the answer to a duplicate, on every replica,
so nothing more is written. A resume (GET) and a repeated POST link to that context. It is the context of our own span,
which the client may know. The state of an interactive call that starts again (`InputRequired`) has the mark sealed; a
retry of a call that is parked finds the call itself.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, SpanKind, TraceFlags

from limpet.errors import ParkedElsewhere
from limpet.ports import IncomingRequest, Observer
from limpet.protocol.results import is_tool_error
from limpet.tracing.spans import (
    TOOL_ERROR,
    current,
    fail,
    links_to,
    name_of,
    received,
    send,
    span_context,
    started,
)

_MAX_ID: Final = 128
_MARK: Final = re.compile(r"(?:[0-9a-f]{24}-)?([\w-]{32})(?:~.*)?", re.ASCII)
"""A mark, or the name of a stream that ends with one: random, then the mark, then the mark of scopes
(`engine/access.py`)."""
_TRACE_BYTES: Final = 16
_FACTS: Final = {
    "version": "mcp.protocol.version",
    "session": "limpet.session",
    "replica": "limpet.replica",
}
"""By fact: the attribute that shows it."""


class RequestSpan:
    """The span of one request, and the context in which the work of its call runs."""

    __slots__ = ("_later", "context", "handler_context", "is_bound", "span")

    def __init__(self, span: Span, parent: Context | None) -> None:
        self.span: Span = span
        self.context: Context = trace.set_span_in_context(span, parent)
        self.handler_context: Context | None = None
        """The context of the handler, once it runs."""
        self._later: list[RequestSpan] = []
        """The spans of retries that wait for the present round."""
        self.is_bound: bool = False
        """True if a call ends it."""

    @property
    def mark(self) -> str:
        """Trace id and span id, as 32 letters."""
        found = self.span.get_span_context()
        packed = found.trace_id.to_bytes(_TRACE_BYTES) + found.span_id.to_bytes(8)
        return urlsafe_b64encode(packed).decode()

    def describe(self, **facts: str) -> None:
        for fact, value in facts.items():
            self.span.set_attribute(_FACTS[fact], value)

    def link(self, name: str) -> None:
        if (context := _marked(name)) is not None:
            self.span.add_link(context)

    def bind(self) -> None:
        self.is_bound = True

    def join(self, later: "RequestSpan") -> None:
        later.bind()
        self._later.append(later)

    @contextmanager
    def handler(self, request: IncomingRequest) -> Iterator[Callable[[bytes], None]]:
        method, _, name = name_of(request.method, request.params)[0].partition(" ")
        span = started(f"handler {name or method}", SpanKind.INTERNAL, {}, context=self.context)
        with current(span, self.context) as self.handler_context:
            yield lambda result: fail(span, TOOL_ERROR) if is_tool_error(result) else None

    @contextmanager
    def ask(self, method: str) -> Iterator[None]:
        """Make a span for a question, below the author's own span or that of the handler."""
        context: Context | None = self.handler_context or self.context
        here, known = trace.get_current_span().get_span_context(), span_context(context)
        if known is not None and here.trace_id == known.trace_id:
            context = None
        name, attributes = name_of(method, {})
        with current(started(name, SpanKind.CLIENT, attributes, context=context), context):
            yield

    @contextmanager
    def settling(self, error: Exception | None, result: bytes) -> Iterator[None]:
        """Make it the current span of the block, and end it after the block."""
        try:
            with trace.use_span(self.span, record_exception=False, set_status_on_exception=False):
                yield
        except BaseException as failure:
            self.end(failure)
            raise
        self.end(error, result)

    def end(self, error: BaseException | None = None, result: bytes = b"") -> None:
        """End the span and those that have joined it, unless they have ended."""
        reason = TOOL_ERROR if error is None and is_tool_error(result) else error
        for one in (self, *self._later):
            if one.span.is_recording():
                if reason is not None:
                    fail(one.span, reason)
                one.span.end()
        self._later.clear()


class TracedObserver:
    """An observer with spans. It is its own `spans`."""

    def __init__(self, observer: Observer, server: str = "") -> None:
        """`server`: the name of the server for operators; empty: spans have none."""
        self.note: Final = observer.note
        self._server = server

    @property
    def spans(self) -> "TracedObserver":
        """The part that makes spans."""
        return self

    @contextmanager
    def request(
        self, request: IncomingRequest, headers: Mapping[str, str], version: str = ""
    ) -> Iterator[RequestSpan]:
        arrived = self._begin(request, headers, version=version)
        try:
            with trace.use_span(arrived.span, record_exception=False, set_status_on_exception=False):
                yield arrived
        except ParkedElsewhere:
            # The replica that has the call makes the span.
            raise
        except BaseException as error:
            arrived.end(error)
            raise
        if not arrived.is_bound:
            arrived.end()

    def forwarded(self, request: IncomingRequest, headers: Mapping[str, str], stream: str) -> RequestSpan:
        """Begin the span of a request that another replica has forwarded; it links to the span of that replica."""
        arrived = self._begin(request, headers, is_ambient=False)
        arrived.link(stream)
        return arrived

    def _begin(
        self,
        request: IncomingRequest,
        headers: Mapping[str, str],
        *,
        version: str = "",
        is_ambient: bool = True,
    ) -> RequestSpan:
        meta = request.params.get("_meta")
        own = received(meta) if type(meta) is dict else None
        around = Context()
        if is_ambient and headers:
            around = trace.set_span_in_context(trace.get_current_span(), around)
        other = around if span_context(around) is not None else received(headers)
        parent = own or other
        name, attributes = name_of(request.method, request.params)
        is_http = bool(headers)
        span = started(
            name,
            SpanKind.SERVER,
            {
                **attributes,
                "jsonrpc.request.id": str(request.id)[:_MAX_ID],
                "network.transport": "tcp" if is_http else "pipe",
                **({"network.protocol.name": "http"} if is_http else {}),
                **({"mcp.protocol.version": version} if version else {}),
                **({"limpet.server": self._server} if self._server else {}),
            },
            context=parent if parent is not None else Context(),
            links=links_to(span_context(other)) if own is not None else [],
        )
        return RequestSpan(span, parent)

    def resume(self, stream: str) -> AbstractContextManager[RequestSpan] | None:
        """Make a span for a request that resumes a stream with a mark."""
        return _resuming() if _marked(stream) is not None else None

    @staticmethod
    def command(system: str, name: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        attributes = {"db.system.name": system, "db.operation.name": name}

        @wraps(call)
        async def command(*args: Any, **named: Any) -> Any:
            if not trace.get_current_span().is_recording():
                return await call(*args, **named)
            with current(started(f"store {name}", SpanKind.CLIENT, attributes)):
                return await call(*args, **named)

        return command

    send: Final = staticmethod(send)


@contextmanager
def _resuming() -> Iterator[RequestSpan]:
    span = started("resume", SpanKind.SERVER, {})
    with current(span):
        yield RequestSpan(span, None)


def _marked(name: str) -> SpanContext | None:
    """Return the context of a mark, or of the mark in the name of a stream; None if it has none."""
    found = _MARK.fullmatch(name)
    if found is None:
        return None
    packed = urlsafe_b64decode(found[1])
    trace_id, span_id = int.from_bytes(packed[:_TRACE_BYTES]), int.from_bytes(packed[_TRACE_BYTES:])
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return context if context.is_valid else None
