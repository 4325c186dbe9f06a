"""Resources: a function that answers for one URI, or for all URIs that match a template."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from limpet.errors import ConfigError
from limpet.protocol.types import (
    Annotations,
    InputRequiredResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
)
from limpet.server.authoring.caching import Cache
from limpet.server.authoring.prompts import answered
from limpet.server.catalog.catalog import Entry
from limpet.server.catalog.server_controls import ServerControls
from limpet.server.catalog.uri_templates import Template
from limpet.server.context.context import Context
from limpet.server.functions.content import to_read_result
from limpet.server.functions.options import ComponentOptions, check_options, needs_and_tags
from limpet.server.functions.registered_function import RegisteredFunction
from limpet.server.functions.signature import describe
from limpet.server.host import Host

if TYPE_CHECKING:
    from limpet.engine.exchange import Exchange

Run = Callable[
    ["Exchange", str, dict[str, str], ServerControls], Awaitable[ReadResourceResult | InputRequiredResult]
]


class ResourceOptions(ComponentOptions, total=False):
    """The options of `@server.resource` and `add_resource`."""

    mime_type: str
    """The type of the contents."""
    size: int
    """The size in bytes; not for templates."""
    annotations: Annotations
    """Hints for the client: audience, priority, last change."""
    cache: Cache
    """How long clients of 2026-07-28 may keep the contents, and whether users may share them."""
    absolute: bool
    """Allow absolute paths (`/x`, `C:/x`, `//host/x`) in the path variables of a template; else they do not match."""


class ResourceEntry(Entry, frozen=True):
    """A registered resource; its key is its URI."""

    listed: Resource
    run: Run
    cache: Cache | None = None

    @property
    def key(self) -> str:
        return self.listed.uri

    def renamed(self, key: str) -> Self:
        return replace(self, listed=replace(self.listed, uri=key))


class TemplateEntry(Entry, frozen=True):
    """A registered template; its key is its text."""

    listed: ResourceTemplate
    template: Template
    run: Run
    cache: Cache | None = None
    absolute: bool = False

    @property
    def key(self) -> str:
        return self.listed.uri_template

    def renamed(self, key: str) -> Self:
        template = Template(key, absolute=self.absolute)
        return replace(self, listed=replace(self.listed, uri_template=key), template=template)


def resource_entry(
    uri: str, fn: Callable[..., Any], options: ResourceOptions, owner: Host
) -> ResourceEntry | TemplateEntry:
    """Make the catalog entry of a resource or, if the URI has variables, of a template.

    Raises:
        TypeError: the function's parameters are not exactly the URI's variables, or an option is unknown.
        ConfigError: the URI or a scope is invalid.
    """
    check_options(options, ResourceOptions, "a resource")
    if ":" not in uri:
        raise ConfigError(f"{uri!r} is not a URI: it has no scheme, as in data://{uri}")
    function = RegisteredFunction(
        fn,
        name=options.get("name"),
        title=options.get("title"),
        description=options.get("description"),
        output_schema=False,
    )
    mime_type = options.get("mime_type", getattr(fn, "mime_type", None))
    described: dict[str, Any] = {
        "name": function.name,
        "title": function.title,
        "description": function.description or None,
        "mime_type": mime_type,
        "annotations": options.get("annotations"),
        "icons": options.get("icons"),
        "meta": options.get("meta"),
    }
    run = _runner(function, mime_type, owner)
    shared = needs_and_tags(options, f"resource {uri}", fn)
    if "{" in uri:
        absolute = options.get("absolute", False)
        template = Template(uri, absolute=absolute)
        _check_names(function, template.names, uri)
        listed = ResourceTemplate(uri_template=uri, **described)
        return TemplateEntry(listed, template, run, options.get("cache"), absolute, **shared)
    _check_names(function, (), uri)
    resource = Resource(uri=uri, size=options.get("size"), **described)
    return ResourceEntry(resource, run, options.get("cache"), **shared)


def _check_names(function: RegisteredFunction, names: tuple[str, ...], uri: str) -> None:
    missing = set(function.required) - set(names)
    unknown = set(names) - set(function.parameters)
    if missing or unknown:
        wrong = ", ".join(sorted(missing | unknown))
        raise TypeError(
            f"{describe(function.fn)} and {uri!r} must name the same variables; they differ in {wrong}"
        )


def _runner(function: RegisteredFunction, mime_type: str | None, owner: Host) -> Run:
    async def run(
        exchange: Exchange, uri: str, values: dict[str, str], server: ServerControls
    ) -> ReadResourceResult | InputRequiredResult:
        ctx = Context(exchange, server, owner)
        return await answered(function, values, ctx, lambda value: to_read_result(value, uri, mime_type))

    return run
