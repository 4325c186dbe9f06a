"""Servers within a server: whose middleware stands around a component, and how a request reads there.

A component of an included server keeps its layers: the servers it came through, the outermost first, and
what it is called in each. A request for it passes through their middleware, inside that of the server
that answers; each sees the request as its own server would, with the component's own name. A middleware
that is added later counts, since it is looked up with each request.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from holdfast.auth import Verifier
from holdfast.engine.exchange import Exchange
from holdfast.errors import ConfigError, InvalidParams
from holdfast.protocol.types import Result
from holdfast.server.authoring.middleware import MiddlewareRequest, passed
from holdfast.server.catalog.catalog import Layer
from holdfast.server.catalog.server_controls import ServerControls
from holdfast.server.catalog.uri_templates import Template
from holdfast.server.context.context import Context

Params = dict[str, Any]


class Includable(Protocol):
    """A server that another server may include."""

    @property
    def name(self) -> str: ...
    @property
    def verifier(self) -> Verifier | None: ...
    def all_included(self) -> "Sequence[Includable]": ...


Inner = Callable[[Params], Awaitable[Result]]
"""Answers a request, given its params as the answering server reads them."""
Local = Callable[[Layer], tuple[str, object]]
"""Tells which member of the params names the component, and what it reads in a layer."""


def by_name(layer: Layer) -> tuple[str, object]:
    """Name a tool or prompt."""
    return "name", layer.key


def by_uri(values: Mapping[str, str]) -> Local:
    """Name a resource by its URI; of a template, with these values."""
    return lambda layer: ("uri", Template(layer.key).expand(**values) if "{" in layer.key else layer.key)


def by_ref(ref: dict[str, Any]) -> Local:
    """Name what a completion is for: the prompt or template that its function was registered for, if one."""
    member = "name" if "name" in ref else "uri"
    return lambda layer: ("ref", {**ref, member: layer.key} if layer.key else ref)


def through(
    layers: tuple[Layer, ...], local: Local, inner: Inner, exchange: Exchange, server: ServerControls
) -> Inner:
    """Return a way to an answer that leads through the middleware of each layer."""
    for layer in reversed(layers):
        inner = _within(layer, local, inner, exchange, server)
    return inner


def _within(layer: Layer, local: Local, inner: Inner, exchange: Exchange, server: ServerControls) -> Inner:
    chain = layer.server.chain
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
                    f"a middleware of {layer.server.name} sent a request for {str(name)[:128]!r} elsewhere; "
                    "in an included server it may change everything but that"
                )
            return await inner({**request.params, member: params.get(member)})

        return passed(chain, request, following, exchange, server)

    return answer


def check_included(child: Includable, parent: Includable) -> None:
    """Refuse a server that another cannot stand for.

    Raises:
        ConfigError: it would include itself, or it has a verifier.
    """
    if child is parent or parent in child.all_included():
        raise ConfigError(f"{child.name!r} cannot be included: it would include itself")
    check_unguarded(child)


def check_unguarded(child: Includable) -> None:
    """Refuse an included server that has a verifier: the verifier would not be called, and its tools would be open.

    Raises:
        ConfigError: it, or one that it includes, has one.
    """
    for server in (child, *child.all_included()):
        if server.verifier is not None:
            raise ConfigError(
                f"{server.name!r} has a verifier of its own and cannot be included: callers are verified by the "
                "server that includes it; give that one the verifier, and leave it out here"
            )
