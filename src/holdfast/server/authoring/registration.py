"""Registering tools, resources, prompts and completions: before the server runs, and while it does.

Decorators return the function unchanged. Whatever changes a list tells the sessions concerned.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast, overload

from holdfast.auth import Principal
from holdfast.errors import ConfigError
from holdfast.server.authoring.completions import Completer, completer
from holdfast.server.authoring.prompts import PromptEntry, PromptOptions, prompt_entry
from holdfast.server.authoring.resources import ResourceEntry, ResourceOptions, TemplateEntry, resource_entry
from holdfast.server.authoring.tools import ToolEntry, ToolOptions, tool_entry
from holdfast.server.catalog.catalog import EVERYONE, Audience, Catalog, Changed
from holdfast.server.catalog.list_changed import Changes, Kind
from holdfast.server.context.session_view import SessionView

if TYPE_CHECKING:
    from holdfast.server.app import Server

F = TypeVar("F", bound=Callable[..., Any])


def _function(given: Any, options: ToolOptions | PromptOptions) -> Any:
    """Return the function a decorator was given; a name in its place goes into the options.

    Raises:
        TypeError: the options have a name already.
    """
    if not isinstance(given, str):
        return given
    if "name" in options:
        raise TypeError(f"two names were given, {given!r} and {options['name']!r}; give one")
    options["name"] = given
    return None


class Features:
    """What a server offers."""

    def __init__(self) -> None:
        self._changes = Changes(self._server)
        self.tools: Catalog[ToolEntry] = Catalog("tool", self._telling("tools"))
        self.resources: Catalog[ResourceEntry] = Catalog("resource", self._telling("resources"))
        self.templates: Catalog[TemplateEntry] = Catalog("resource template", self._telling("resources"))
        self.prompts: Catalog[PromptEntry] = Catalog("prompt", self._telling("prompts"))
        self.completions: list[Completer] = []

    @property
    def _server(self) -> "Server":
        return cast("Server", self)

    def _telling(self, kind: Kind) -> Changed:
        return lambda audience: self._changes.note(kind, audience)

    # Tools

    @overload
    def tool(self, fn: F, /) -> F: ...
    @overload
    def tool(self, name: str = ..., /, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...
    def tool(self, given: Any = None, /, **options: Unpack[ToolOptions]) -> Any:
        """Register a function as a tool: `@server.tool`, `@server.tool("name")` or `@server.tool(title=…)`."""
        fn = _function(given, options)

        def register(fn: F) -> F:
            self.add_tool(fn, **options)
            return fn

        return register if fn is None else register(fn)

    def add_tool(self, fn: Callable[..., Any], **options: Unpack[ToolOptions]) -> None:
        """Register a function as a tool.

        Raises:
            TypeError: its signature cannot be a tool's.
            ConfigError: its name is taken, or cannot be one.
        """
        self.tools.add(tool_entry(fn, options, self._server), enabled=options.get("enabled", True))

    def remove_tool(self, name: str) -> None:
        """Forget a tool; calls that run are not disturbed. Raises KeyError where there is none."""
        self.tools.remove(name)

    def enable_tool(
        self, name: str, *, session: SessionView | None = None, principal: Principal | str | None = None
    ) -> None:
        """Show a tool: to everyone, or to one session or principal (given as such, or by its key)."""
        self.tools.switch(name, self._audience(session, principal), on=True)

    def disable_tool(
        self, name: str, *, session: SessionView | None = None, principal: Principal | str | None = None
    ) -> None:
        """Hide a tool, so that it is neither listed nor callable: for everyone, a session or a principal."""
        self.tools.switch(name, self._audience(session, principal), on=False)

    # Resources

    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
        """Register a function as the resource of a URI, or of all URIs that fit a template."""
        if not isinstance(uri, str):
            raise TypeError('a resource needs its URI: write @server.resource("scheme://…")')

        def register(fn: F) -> F:
            self.add_resource(uri, fn, **options)
            return fn

        return register

    def add_resource(self, uri: str, fn: Callable[..., Any], **options: Unpack[ResourceOptions]) -> None:
        """Register a function as a resource or, where the URI has variables, as a template.

        Raises:
            TypeError: it does not take exactly the variables.
            ConfigError: the URI is taken, or cannot be one.
        """
        entry = resource_entry(uri, fn, options, self._server)
        enabled = options.get("enabled", True)
        if isinstance(entry, TemplateEntry):
            self.templates.add(entry, enabled=enabled)
        else:
            self.resources.add(entry, enabled=enabled)

    def remove_resource(self, uri: str) -> None:
        """Forget a resource or template. Raises KeyError where there is none."""
        self._resources_of(uri).remove(uri)

    def enable_resource(
        self, uri: str, *, session: SessionView | None = None, principal: Principal | str | None = None
    ) -> None:
        """Show a resource or template: to everyone, or to one session or principal."""
        self._resources_of(uri).switch(uri, self._audience(session, principal), on=True)

    def disable_resource(
        self, uri: str, *, session: SessionView | None = None, principal: Principal | str | None = None
    ) -> None:
        """Hide a resource or template: from everyone, a session or a principal."""
        self._resources_of(uri).switch(uri, self._audience(session, principal), on=False)

    def _resources_of(self, uri: str) -> Catalog[Any]:
        return self.templates if "{" in uri else self.resources

    # Prompts

    @overload
    def prompt(self, fn: F, /) -> F: ...
    @overload
    def prompt(self, name: str = ..., /, **options: Unpack[PromptOptions]) -> Callable[[F], F]: ...
    def prompt(self, given: Any = None, /, **options: Unpack[PromptOptions]) -> Any:
        """Register a function as a prompt: `@server.prompt`, `@server.prompt("name")` or `@server.prompt(title=…)`."""
        fn = _function(given, options)

        def register(fn: F) -> F:
            self.add_prompt(fn, **options)
            return fn

        return register if fn is None else register(fn)

    def add_prompt(self, fn: Callable[..., Any], **options: Unpack[PromptOptions]) -> None:
        """Register a function as a prompt.

        Raises:
            TypeError: its signature cannot be a prompt's.
            ConfigError: its name is taken.
        """
        self.prompts.add(prompt_entry(fn, options, self._server), enabled=options.get("enabled", True))

    def remove_prompt(self, name: str) -> None:
        """Forget a prompt. Raises KeyError where there is none."""
        self.prompts.remove(name)

    def enable_prompt(
        self, name: str, *, session: SessionView | None = None, principal: Principal | str | None = None
    ) -> None:
        """Show a prompt: to everyone, or to one session or principal."""
        self.prompts.switch(name, self._audience(session, principal), on=True)

    def disable_prompt(
        self, name: str, *, session: SessionView | None = None, principal: Principal | str | None = None
    ) -> None:
        """Hide a prompt: from everyone, a session or a principal."""
        self.prompts.switch(name, self._audience(session, principal), on=False)

    # Completions

    @overload
    def completion(self, fn: F, /) -> F: ...
    @overload
    def completion(self, *, prompt: str = "", resource: str = "", argument: str = "") -> Callable[[F], F]: ...
    def completion(self, fn: Any = None, *, prompt: str = "", resource: str = "", argument: str = "") -> Any:
        """Register a function that completes arguments: all, or those of one prompt or template.

        It may take `value`, `arguments`, `argument`, `ref`, `context`, and the context by
        annotation, and returns texts, a `Completion`, or None to let another one answer.
        """

        def register(fn: F) -> F:
            self.completions.append(completer(fn, self, prompt, resource, argument))
            return fn

        return register if fn is None else register(fn)

    # Telling

    def notify_tools_changed(self) -> None:
        """Tell every client that wants to know to list the tools again: sessions, and listeners of 2026-07-28.

        From any thread; nothing before the server runs.
        """
        self._changes.note("tools")

    def notify_resources_changed(self) -> None:
        """Tell every client that wants to know to list the resources again."""
        self._changes.note("resources")

    def notify_prompts_changed(self) -> None:
        """Tell every client that wants to know to list the prompts again."""
        self._changes.note("prompts")

    def _audience(self, session: SessionView | None, principal: Principal | str | None) -> Audience:
        if session is not None and principal is not None:
            raise ValueError("name a session or a principal, not both")
        if session is not None:
            if self._server.settings.stateless:
                raise ConfigError("a stateless server forgets a session after each request; name a principal")
            # Raises where the client has no session: it cannot be told from the others.
            return Audience(session=session.key)
        if principal is None:
            return EVERYONE
        key = principal if isinstance(principal, str) else principal.key
        if not key:
            raise ValueError("anonymous clients are no principal; use session=")
        return Audience(principal=key)
