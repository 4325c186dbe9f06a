"""Middleware: an author's functions around every request except initialize.

The chain is composed when a middleware is added. Without middleware, requests do not pass through this module.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from holdfast.protocol.types import Result
from holdfast.server.catalog.server_controls import ServerControls
from holdfast.server.context.context import Context
from holdfast.server.functions.client_errors import failed_call, failed_request
from holdfast.wire.jsonrpc import Request

if TYPE_CHECKING:
    from holdfast.backs.native import Handler
    from holdfast.engine.exchange import Exchange


class MiddlewareRequest(Struct, frozen=True):
    """The request that a middleware gets. To change its params, pass a `msgspec.structs.replace` of it to `call_next`."""

    method: str
    """The method, such as `tools/call`."""
    params: dict[str, Any]
    """The params as the client sent them; of an included server, with its own names."""
    ctx: Context
    """The context of the request."""


CallNext = Callable[[MiddlewareRequest], Awaitable[Result]]
"""Passes the request on: to the next middleware, or to the handler."""
Middleware = Callable[[MiddlewareRequest, CallNext], Awaitable[Result]]
"""Returns the result of `call_next(request)`, or another one. An exception becomes the answer, as in a handler."""


def surround(
    handlers: Mapping[str, Handler], chain: Sequence[Middleware], server: ServerControls
) -> Mapping[str, Handler]:
    """Put the chain around each handler; the first middleware is the outermost."""
    if not chain:
        return handlers
    return {method: _surrounded(method, handler, chain, server) for method, handler in handlers.items()}


def _surrounded(
    method: str, handler: Handler, chain: Sequence[Middleware], server: ServerControls
) -> Handler:
    async def surrounded(exchange: Exchange, params: dict[str, Any]) -> Result:
        async def innermost(request: MiddlewareRequest) -> Result:
            access = server.engine.access
            if access.rules is not None:
                # A middleware may have put another name into the params, after the request was judged.
                named = Request(exchange.request.id, method, request.params)
                access.judge(named, exchange.caller, exchange.session_key)
            return await handler(exchange, request.params)

        request = MiddlewareRequest(method, params, Context(exchange, server, server))
        return await passed(chain, request, innermost, exchange, server)

    return surrounded


async def passed(
    chain: Sequence[Middleware],
    request: MiddlewareRequest,
    innermost: CallNext,
    exchange: Exchange,
    server: ServerControls,
) -> Result:
    """Pass a request through a chain; an exception becomes its answer."""
    call = innermost
    for middleware in reversed(chain):
        call = _link(middleware, call)
    try:
        return await call(request)
    except Exception as error:
        if request.method == "tools/call":
            return failed_call(error, exchange, server)
        raise failed_request(error, exchange, server) from error


def _link(middleware: Middleware, following: CallNext) -> CallNext:
    return lambda request: middleware(request, following)
