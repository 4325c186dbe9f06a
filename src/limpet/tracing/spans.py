"""Spans of MCP requests, and the context of a request.

Names and attributes follow the MCP conventions of OpenTelemetry.

The context of a request is in its `_meta`, under the names of W3C (SEP-414): `traceparent`, `tracestate`, `baggage`.
Clients choose these values, so each is checked before OpenTelemetry reads it: its length is bounded and it has the
grammar of its standard. A value that fails the check is ignored, and the request starts its own trace.

A span has no session id, argument, result or error text: they may be private. The correlation id in it is also in the
log, which has the traceback. `mcp.session.id` is therefore not set; `limpet.session` has the short name that the
log uses.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct
from opentelemetry import propagate, trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, Tracer
from opentelemetry.util.types import Attributes

from limpet import __version__
from limpet.errors import McpError
from limpet.protocol.methods import METHODS
from limpet.protocol.quirks import SHOWN_NAME
from limpet.protocol.results import is_tool_error
from limpet.tracing import provider

TOOL_ERROR: Final = "tool_error"
_NAMED: Final = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
"""By method: the attribute with the name in its params."""


class _Grammar(Struct, frozen=True):
    """The form of a value: a list of members, separated by commas."""

    longest: int
    members: int
    member: re.Pattern[str]

    def fits(self, value: object) -> bool:
        if type(value) is not str or len(value) > self.longest:
            return False
        members = value.split(",")
        return len(members) <= self.members and all(
            self.member.fullmatch(one.strip(" \t")) for one in members
        )


_NAME: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_VALUE: Final = r"[!#-+\--:<-\[\]-~]*"
_KEY: Final = r"[a-z][_0-9a-z\-*/]{0,255}|[a-z0-9][_0-9a-z\-*/]{0,240}@[a-z][_0-9a-z\-*/]{0,13}"
_GRAMMAR: Final = {
    "traceparent": _Grammar(
        128, 1, re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?")
    ),
    "tracestate": _Grammar(512, 32, re.compile(rf"({_KEY})=[ -+\--<>-~]{{0,255}}[!-+\--<>-~]")),
    "baggage": _Grammar(8_192, 64, re.compile(rf"{_NAME}={_VALUE}(;{_NAME}(={_VALUE})?)*")),
}
"""The grammar of each value, by its name in `_meta` and in headers. The lengths are those of the standards."""
_NONE: Final = Context()
_PORTS: Final = {"http": 80, "https": 443}


def tracer() -> Tracer:
    """Return the tracer for all spans of this package."""
    return _tracer_of(provider() or trace.get_tracer_provider())


@lru_cache(maxsize=1)
def _tracer_of(given: trace.TracerProvider) -> Tracer:
    return given.get_tracer("limpet", __version__)


def received(carrier: Mapping[str, Any]) -> Context | None:
    """Return the context in `_meta` or the headers of a request; None if they have no valid one."""
    given = {name: carrier[name] for name, grammar in _GRAMMAR.items() if grammar.fits(carrier.get(name))}
    if not given:
        return None
    context = propagate.extract(given, _NONE)
    return context or None


def span_context(context: Context | None) -> SpanContext | None:
    """Return the context of the span in a context; None if there is no valid one."""
    if context is None:
        return None
    found = trace.get_current_span(context).get_span_context()
    return found if found.is_valid else None


def links_to(*contexts: SpanContext | None) -> list[Link]:
    """Return links to the known contexts."""
    return [Link(context) for context in contexts if context is not None]


def name_of(method: str, params: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """Return the name of a request's span, and its attributes.

    A client chooses the names in them, so they are bounded.
    """
    known = method if method in METHODS else "other"
    attributes = {"mcp.method.name": known}
    attribute = _NAMED.get(method)
    name = params.get("name") if attribute is not None else None
    if attribute is None or type(name) is not str:
        return known, attributes
    attributes[attribute] = name[:SHOWN_NAME]
    if method == "tools/call":
        attributes["gen_ai.operation.name"] = "execute_tool"
    return f"{known} {name[:SHOWN_NAME]}", attributes


def fail(span: Span, error: BaseException | str) -> None:
    """Mark a span as failed. The text of the error stays out of it."""
    if not span.is_recording():
        return
    kind = error if isinstance(error, str) else type(error).__name__
    if isinstance(error, McpError):
        kind = str(error.code)
        span.set_attribute("rpc.response.status_code", kind)
        if type(error.data) is dict and type(correlation := error.data.get("correlation")) is str:
            span.set_attribute("limpet.correlation", correlation[:SHOWN_NAME])
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


@contextmanager
def current(span: Span, context: Context | None = None) -> Iterator[Context]:
    """Make a span the current one, end it afterwards, and mark it as failed if an exception leaves the block."""
    within = trace.set_span_in_context(span, context)
    token = attach(within)
    try:
        yield within
    except BaseException as error:
        fail(span, error)
        raise
    finally:
        detach(token)
        span.end()


def started(
    name: str,
    kind: SpanKind,
    attributes: Attributes,
    *,
    context: Context | None = None,
    links: list[Link] | None = None,
) -> Span:
    """Start a span; with a context, below the span in it."""
    return tracer().start_span(name, context, kind, attributes, links)


async def send(
    method: str,
    params: dict[str, Any],
    request: Callable[[dict[str, Any]], Awaitable[Any]],
    *,
    version: str,
    origin: str,
) -> Any:
    """Send a request to a server within its own span; return the result. The context of the span is in `_meta`.

    `origin` is the origin of the server's URL; empty: the server is at the end of a pipe.
    """
    name, attributes = name_of(method, params)
    span = started(name, SpanKind.CLIENT, {**attributes, **_where(origin), "mcp.protocol.version": version})
    with current(span) as context:
        result = await request({**params, "_meta": _with_context(params.get("_meta"), context)})
        failed = result.get("isError") is True if type(result) is dict else is_tool_error(bytes(result))
        if failed:
            fail(span, TOOL_ERROR)
        return result


def _with_context(meta: object, context: Context) -> dict[str, Any]:
    """Return `_meta` with this context, in place of the context that it may have."""
    carrier = (
        {name: value for name, value in meta.items() if name not in _GRAMMAR} if type(meta) is dict else {}
    )
    propagate.inject(carrier, context)
    return carrier


def _where(origin: str) -> dict[str, str | int]:
    """Return the attributes with the address of a server."""
    if not origin:
        return {"network.transport": "pipe"}
    parts = urlsplit(origin)
    port = parts.port or _PORTS.get(parts.scheme, 0)
    where = {
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "server.address": parts.hostname or "",
    }
    return {**where, "server.port": port}
