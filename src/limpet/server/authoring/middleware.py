"""Middleware: an author's functions around every request except initialize.

The chain is composed when a middleware is added. Without middleware, requests do not pass through this module.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from limpet.protocol.types import Result
from limpet.server.catalog.server_controls import ServerControls
from limpet.server.context.context import Context
from limpet.server.context.current import entered
from limpet.server.functions.client_errors import failed_call, failed_request
from limpet.wire.jsonrpc import Request

if TYPE_CHECKING:
    from limpet.engine.exchange import Exchange


Handler = Callable[["Exchange", dict[str, Any]], Awaitable[Result]]
"""Answers a request of one method, given its exchange and its params."""


class MiddlewareRequest(Struct, frozen=True):
    """The request that a middleware gets.

    To change its params, pass a `msgspec.structs.replace` of it to `call_next`.
    """

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


class Hooks:
    """A middleware with one method for each kind of request: override the methods that you need.

    `server.middleware(MyHooks())` adds it. `on_request` is called for every request, around the hook of its method. A
    request without its own hook does not pass through the object if `on_request` is not overridden either.
    """

    async def on_request(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
        """Called for every request except initialize."""
        return await call_next(request)

    async def on_call_tool(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
        """Called for `tools/call`."""
        return await call_next(request)

    async def on_list_tools(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
        """Called for `tools/list`."""
        return await call_next(request)

    async def on_read_resource(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
        """Called for `resources/read`."""
        return await call_next(request)

    async def on_list_resources(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
        """Called for `resources/list`."""
        return await call_next(request)

    async def on_list_resource_templates(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
        """Called for `resources/templates/list`."""
        return await call_next(request)

    async def on_get_prompt(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
        """Called for `prompts/get`."""
        return await call_next(request)

    async def on_list_prompts(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
        """Called for `prompts/list`."""
        return await call_next(request)

    async def on_complete(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
        """Called for `completion/complete`."""
        return await call_next(request)

    async def __call__(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
        name = HOOKS.get(request.method)
        following = call_next if name is None else _link(getattr(self, name), call_next)
        return await self.on_request(request, following)

    def takes(self, method: str) -> bool:
        """Return True if a hook for this method is overridden."""
        names = {"on_request", HOOKS.get(method, "on_request")}
        return any(getattr(type(self), name) is not getattr(Hooks, name) for name in names)


HOOKS: Final = {
    "tools/call": "on_call_tool",
    "tools/list": "on_list_tools",
    "resources/read": "on_read_resource",
    "resources/list": "on_list_resources",
    "resources/templates/list": "on_list_resource_templates",
    "prompts/get": "on_get_prompt",
    "prompts/list": "on_list_prompts",
    "completion/complete": "on_complete",
}
"""The hook of each method."""


def surround(
    handlers: Mapping[str, Handler], chain: Sequence[Middleware], server: ServerControls
) -> Mapping[str, Handler]:
    """Put the chain around each handler; the first middleware is the outermost."""
    return {method: _surrounded(method, handler, chain, server) for method, handler in handlers.items()}


def chain_of(chain: Sequence[Middleware], method: str) -> list[Middleware]:
    """Return the middleware that a request of this method passes through."""
    return [one for one in chain if not isinstance(one, Hooks) or one.takes(method)]


def _surrounded(
    method: str, handler: Handler, chain: Sequence[Middleware], server: ServerControls
) -> Handler:
    chain = chain_of(chain, method)
    if not chain:
        return handler

    async def surrounded(exchange: Exchange, params: dict[str, Any]) -> Result:
        async def innermost(request: MiddlewareRequest) -> Result:
            access = server.engine.access.own
            if access.rules is not None:
                # A middleware may have put another name into the params, after the request was checked.
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
        with entered(request.ctx):
            return await call(request)
    except Exception as error:
        if request.method == "tools/call":
            return failed_call(error, exchange, server)
        raise failed_request(error, exchange, server) from error


def _link(middleware: Middleware, following: CallNext) -> CallNext:
    return lambda request: middleware(request, following)
