"""Resources: a function behind a URI, or behind a template that many URIs fit."""

from collections.abc import Awaitable, Callable
from typing import Any, Self, TypedDict

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engine.exchange import Exchange
from holdfast.errors import ConfigError
from holdfast.protocol.types import (
    Annotations,
    Icon,
    InputRequiredResult,
    Meta,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
)
from holdfast.server.authoring.caching import Cache
from holdfast.server.authoring.prompts import told
from holdfast.server.authoring.tools import needs_context
from holdfast.server.catalog.catalog import Layer
from holdfast.server.catalog.server_controls import ServerControls
from holdfast.server.catalog.uri_templates import Template
from holdfast.server.context.context import Context
from holdfast.server.functions.content import to_read_result
from holdfast.server.functions.options import check_options
from holdfast.server.functions.registered_function import RegisteredFunction
from holdfast.server.functions.signature import describe
from holdfast.server.host import Host

Run = Callable[
    [Exchange, str, dict[str, str], ServerControls], Awaitable[ReadResourceResult | InputRequiredResult]
]


class ResourceOptions(TypedDict, total=False):
    """What a resource may be registered with, besides its URI and function."""

    name: str
    title: str
    description: str
    mime_type: str
    size: int
    """In bytes; not for templates."""
    annotations: Annotations
    icons: list[Icon]
    meta: Meta
    cache: Cache
    """How long clients of 2026-07-28 may keep its contents, and whether they may share them."""
    absolute: bool
    """Let the path variables of a template be absolute: `/x`, `C:/x`, `//host/x`. Else such URIs match nothing."""
    enabled: bool


class ResourceEntry(Struct, frozen=True):
    """A resource as registered, under its URI."""

    listed: Resource
    run: Run
    cache: Cache | None = None
    within: tuple[Layer, ...] = ()

    @property
    def key(self) -> str:
        return self.listed.uri

    def included(self, key: str, server: object) -> Self:
        within = (Layer(server, self.key), *self.within)
        return replace(self, listed=replace(self.listed, uri=key), within=within)


class TemplateEntry(Struct, frozen=True):
    """A template as registered, under its text."""

    listed: ResourceTemplate
    template: Template
    run: Run
    cache: Cache | None = None
    absolute: bool = False
    within: tuple[Layer, ...] = ()

    @property
    def key(self) -> str:
        return self.listed.uri_template

    def included(self, key: str, server: object) -> Self:
        return replace(
            self,
            listed=replace(self.listed, uri_template=key),
            template=Template(key, absolute=self.absolute),
            within=(Layer(server, self.key), *self.within),
        )


def resource_entry(
    uri: str, fn: Callable[..., Any], options: ResourceOptions, owner: Host
) -> ResourceEntry | TemplateEntry:
    """Make a resource, or a template where the URI has variables, of a function.

    Raises:
        TypeError: the function cannot be one, or does not take exactly the URI's variables.
        ConfigError: the URI cannot be one.
    """
    check_options(options, ResourceOptions, "a resource")
    if ":" not in uri:
        raise ConfigError(f"{uri!r} is no URI: it has no scheme, as in data://{uri}")
    function = RegisteredFunction(
        fn,
        name=options.get("name"),
        title=options.get("title"),
        description=options.get("description"),
        output_schema=False,
    )
    shared: dict[str, Any] = {
        "name": function.name,
        "title": function.title,
        "description": function.description or None,
        "mime_type": options.get("mime_type"),
        "annotations": options.get("annotations"),
        "icons": options.get("icons"),
        "meta": options.get("meta"),
    }
    run = _runner(function, options.get("mime_type"), owner)
    if "{" in uri:
        absolute = options.get("absolute", False)
        template = Template(uri, absolute=absolute)
        _check_names(function, template.names, uri)
        listed = ResourceTemplate(uri_template=uri, **shared)
        return TemplateEntry(listed, template, run, options.get("cache"), absolute)
    _check_names(function, (), uri)
    return ResourceEntry(Resource(uri=uri, size=options.get("size"), **shared), run, options.get("cache"))


def _check_names(function: RegisteredFunction, names: tuple[str, ...], uri: str) -> None:
    missing = set(function.required) - set(names)
    unknown = set(names) - set(function.parameters)
    if missing or unknown:
        wrong = ", ".join(sorted(missing | unknown))
        raise TypeError(
            f"{describe(function.fn)} and {uri!r} must name the same variables; they differ in {wrong}"
        )


def _runner(function: RegisteredFunction, mime_type: str | None, owner: Host) -> Run:
    wants_context = needs_context(function)

    async def run(
        exchange: Exchange, uri: str, values: dict[str, str], server: ServerControls
    ) -> ReadResourceResult | InputRequiredResult:
        def call() -> Awaitable[object]:
            ctx = Context(exchange, server, owner) if wants_context else None
            return function.call(function.bind(values), ctx)

        return await told(call, lambda value: to_read_result(value, uri, mime_type), exchange, server)

    return run
