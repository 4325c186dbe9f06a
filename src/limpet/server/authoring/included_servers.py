"""Included servers: their checks, the names of their components, and the middleware that a request for one passes.

A component of an included server has layers: the servers that it comes from, the outermost first, and its name in
each. A request passes the middleware of the answering server, then that of each layer. Each middleware sees the
component's name in its own server. The chain is looked up for each request, so a middleware that is added later
runs too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from limpet.errors import ConfigError, InvalidParams
from limpet.protocol.types import Result
from limpet.server.authoring.middleware import MiddlewareRequest, passed
from limpet.server.catalog.catalog import Layer
from limpet.server.catalog.server_controls import ServerControls
from limpet.server.catalog.uri_templates import Template
from limpet.server.context.context import Context

if TYPE_CHECKING:
    from limpet.engine.exchange import Exchange
    from limpet.server.authoring.registration import Registration

Params = dict[str, Any]


Inner = Callable[[Params], Awaitable[Result]]
"""Answers a request whose params have the names of the answering server."""
Local = Callable[[Layer], tuple[str, object]]
"""Returns the member of the params that names the component, and its value in a layer."""


def by_name(layer: Layer) -> tuple[str, object]:
    """Return the member and value for a tool or prompt."""
    return "name", layer.key


def by_uri(values: Mapping[str, str]) -> Local:
    """Return the member and value for a resource; a template is expanded with these values."""
    return lambda layer: ("uri", Template(layer.key).expand(**values) if "{" in layer.key else layer.key)


def by_ref(ref: dict[str, Any]) -> Local:
    """Return the member and value for a completion: its prompt or template, if it is for one."""
    member = "name" if "name" in ref else "uri"
    return lambda layer: ("ref", {**ref, member: layer.key} if layer.key else ref)


def through(
    layers: tuple[Layer, ...], local: Local, inner: Inner, exchange: Exchange, server: ServerControls
) -> Inner:
    """Return a function that answers a request through the middleware of each layer."""
    for layer in reversed(layers):
        inner = _within(layer, local, inner, exchange, server)
    return inner


def _within(layer: Layer, local: Local, inner: Inner, exchange: Exchange, server: ServerControls) -> Inner:
    chain = layer.server.declared.middleware
    if not chain:
        return inner

    def answer(params: Params) -> Awaitable[Result]:
        member, name = local(layer)
        request = MiddlewareRequest(
            exchange.request.method, {**params, member: name}, Context(exchange, server, layer.server)
        )

        async def following(request: MiddlewareRequest) -> Result:
            if request.params.get(member) != name:
                raise InvalidParams(
                    f"a middleware of {layer.server.name} changed the name {str(name)[:128]!r} of a request; "
                    "in an included server a middleware may change everything else"
                )
            return await inner({**request.params, member: params.get(member)})

        return passed(chain, request, following, exchange, server)

    return answer


def check_included(child: Registration, parent: Registration) -> None:
    """Refuse a server that cannot be included.

    Raises:
        ConfigError: the server would include itself, or has a verifier.
    """
    inside = (child, *child.declared.all_included())
    if parent in inside:
        raise ConfigError(f"{child.name!r} cannot be included: it would include itself")
    check_unguarded(inside)


def check_unguarded(servers: Iterable[Registration]) -> None:
    """Refuse an included server with a verifier: the verifier would not be called, and its tools would be public.

    Raises:
        ConfigError: one of these servers has a verifier.
    """
    for server in servers:
        if server.verifier is not None:
            raise ConfigError(
                f"{server.name!r} has a verifier and cannot be included: the including server verifies callers; "
                "give the verifier to the including server, and remove it from this one"
            )
