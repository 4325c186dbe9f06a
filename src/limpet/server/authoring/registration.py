"""The parts of a server that authors register: tools, resources, prompts, completions, listeners of session events.

They are registered before the server runs and while it runs. Decorators return the function unchanged. A change of a
list notifies the clients that can see it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from limpet.auth import Verifier
from limpet.protocol.types import Implementation
from limpet.server.authoring.caching import CacheSettings
from limpet.server.authoring.completions import completer
from limpet.server.authoring.declarations import Declarations
from limpet.server.authoring.prompts import PromptEntry, PromptOptions, prompt_entry
from limpet.server.authoring.resources import (
    ResourceEntry,
    ResourceOptions,
    TemplateEntry,
    resource_entry,
)
from limpet.server.authoring.tools import ToolEntry, ToolOptions, tool_entry
from limpet.server.catalog.catalog import Catalog, Changed, ConcernedClients
from limpet.server.catalog.list_changed import Kind
from limpet.server.catalog.server_controls import ServerControls
from limpet.server.catalog.server_scopes import ServerScopes

if TYPE_CHECKING:
    from limpet.server.authoring.session_listeners import SessionListener

F = TypeVar("F", bound=Callable[..., Any])
H = TypeVar("H", bound="SessionListener")


def _function(given: Any, options: ToolOptions | PromptOptions) -> Any:
    """Return the function that a decorator was given; store a name given in its place in the options.

    Raises:
        TypeError: the options have a name already.
    """
    if not isinstance(given, str):
        return given
    if "name" in options:
        raise TypeError(f"two names were given, {given!r} and {options['name']!r}; give one")
    options["name"] = given
    return None


class Registration(ServerControls):
    """The components of a server, and the decorators that register them."""

    tools: Catalog[ToolEntry]
    resources: Catalog[ResourceEntry]
    templates: Catalog[TemplateEntry]
    prompts: Catalog[PromptEntry]

    scopes: ServerScopes
    """The scopes of the server, and the rules of its components."""
    verifier: Verifier | None

    def __init__(
        self,
        info: Implementation,
        instructions: str | None,
        scopes: ServerScopes,
        *,
        cache: CacheSettings | None,
        lifespan: Callable[..., Any] | None,
    ) -> None:
        super().__init__()
        self.info: Implementation = info
        self.instructions: str | None = instructions
        self.scopes = scopes
        self.tools = Catalog("tool", self._noting("tools"), scopes)
        self.resources = Catalog("resource", self._noting("resources"), scopes)
        self.templates = Catalog("resource template", self._noting("resources"), scopes)
        self.prompts = Catalog("prompt", self._noting("prompts"), scopes)
        self.declared: Declarations = Declarations(self, self._list_changes, cache=cache, lifespan=lifespan)

    @property
    def lifespan_value(self) -> Any:
        """The value that the lifespan yielded; None without a lifespan or before it is entered."""
        return self.declared.lifespan.value

    def _noting(self, kind: Kind) -> Changed:
        def changed(audience: ConcernedClients) -> None:
            self._list_changes.note(kind, audience)
            if kind == "tools":
                self.declared.declare_tools()

        return changed

    # Tools

    @overload
    def tool(self, fn: F, /) -> F: ...
    @overload
    def tool(self, name: str = ..., /, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...
    def tool(self, given: Any = None, /, **options: Unpack[ToolOptions]) -> Any:
        """Register a function as a tool: `@server.tool`, `@server.tool("name")` or `@server.tool(title=…)`.

        Raises as `add_tool` does.
        """
        fn = _function(given, options)

        def register(fn: F) -> F:
            self.add_tool(fn, **options)
            return fn

        return register if fn is None else register(fn)

    def add_tool(self, fn: Callable[..., Any], **options: Unpack[ToolOptions]) -> None:
        """Register a function as a tool.

        Raises:
            TypeError: the function's signature cannot be described to a client, or an option is unknown.
            ConfigError: the name is invalid or taken, or an option is invalid.
        """
        self.tools.add(tool_entry(fn, options, self), enabled=options.get("enabled", True))

    # Resources

    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
        """Register a function as the resource at a URI, or at all URIs that match a template.

        Raises as `add_resource` does.
        """
        if not isinstance(uri, str):
            raise TypeError('a resource needs its URI: write @server.resource("scheme://…")')

        def register(fn: F) -> F:
            self.add_resource(uri, fn, **options)
            return fn

        return register

    def add_resource(self, uri: str, fn: Callable[..., Any], **options: Unpack[ResourceOptions]) -> None:
        """Register a function as a resource or, if the URI has variables, as a template.

        Raises:
            TypeError: the function's parameters are not exactly the URI's variables, or an option is unknown.
            ConfigError: the URI is invalid or taken.
        """
        entry = resource_entry(uri, fn, options, self)
        enabled = options.get("enabled", True)
        if isinstance(entry, TemplateEntry):
            self.templates.add(entry, enabled=enabled)
        else:
            self.resources.add(entry, enabled=enabled)

    # Prompts

    @overload
    def prompt(self, fn: F, /) -> F: ...
    @overload
    def prompt(self, name: str = ..., /, **options: Unpack[PromptOptions]) -> Callable[[F], F]: ...
    def prompt(self, given: Any = None, /, **options: Unpack[PromptOptions]) -> Any:
        """Register a function as a prompt: `@server.prompt`, `@server.prompt("name")` or `@server.prompt(title=…)`.

        Raises as `add_prompt` does.
        """
        fn = _function(given, options)

        def register(fn: F) -> F:
            self.add_prompt(fn, **options)
            return fn

        return register if fn is None else register(fn)

    def add_prompt(self, fn: Callable[..., Any], **options: Unpack[PromptOptions]) -> None:
        """Register a function as a prompt.

        Raises:
            TypeError: the function's signature cannot be described to a client, or an option is unknown.
            ConfigError: the name is taken.
        """
        self.prompts.add(prompt_entry(fn, options, self), enabled=options.get("enabled", True))

    # Completions

    @overload
    def completion(self, fn: F, /) -> F: ...
    @overload
    def completion(self, *, prompt: str = "", resource: str = "", argument: str = "") -> Callable[[F], F]: ...
    def completion(self, fn: Any = None, *, prompt: str = "", resource: str = "", argument: str = "") -> Any:
        """Register a function that completes arguments: all, or those of one prompt, template or argument name.

        The function may take `value`, `arguments`, `argument`, `ref` and `context` by name, and the `Context`
        by annotation. It returns texts, a `Completion`, or None: then the next function that fits is called.

        Raises:
            TypeError: the function has another parameter without a default.
        """

        def register(fn: F) -> F:
            self.declared.completions.append(completer(fn, self, prompt, resource, argument))
            return fn

        return register if fn is None else register(fn)

    # Listeners

    def on_opened(self, hook: H) -> H:
        """Call the function with each session that is opened."""
        self.declared.listeners.add("opened", hook)
        return hook

    def on_detached(self, hook: H) -> H:
        """Call the function with each session whose last connection broke."""
        self.declared.listeners.add("detached", hook)
        return hook

    def on_reattached(self, hook: H) -> H:
        """Call the function with each detached session that has a connection again."""
        self.declared.listeners.add("reattached", hook)
        return hook

    def on_closed(self, hook: H) -> H:
        """Call the function with each session that is closed, and with the reason if it has a second parameter."""
        self.declared.listeners.add("closed", hook)
        return hook

    def on_roots_changed(self, hook: H) -> H:
        """Call the function with each session whose client reports that its roots have changed."""
        self.declared.listeners.add("roots_changed", hook)
        return hook
