"""`ServerControls`: show, hide and remove components while the server runs. It is the type of `ctx.server`."""

from collections.abc import Collection
from typing import Any

from limpet.auth import Principal
from limpet.errors import ConfigError
from limpet.server.catalog.catalog import EVERYONE, Catalog, ConcernedClients
from limpet.server.catalog.list_changed import ListChanges
from limpet.server.context.session_view import SessionView
from limpet.server.functions.options import checked_tags
from limpet.server.host import Host


class ServerControls(Host):
    """The components of a server while it runs.

    Every method may be called from any thread. A change that a client can see sends it `list_changed`, once
    for all changes that are made together. Visibility can be set for everyone, for one session or for one
    principal; the setting of a session wins over that of its principal, and that one over everyone's.

    Raises:
        KeyError: no component with this name or URI is registered.
        NoSession: `session` is given, and its client has no session.
        ValueError: `session` and `principal` are both given.
        ConfigError: `session` is given, and the server is stateless.
    """

    tools: Catalog[Any]
    """The registered tools."""
    resources: Catalog[Any]
    """The registered resources."""
    templates: Catalog[Any]
    """The registered resource templates."""
    prompts: Catalog[Any]
    """The registered prompts."""

    def __init__(self) -> None:
        self._list_changes = ListChanges(self)

    # Groups

    def enable(
        self,
        *,
        tags: Collection[str],
        only: bool = False,
        session: SessionView | None = None,
        principal: Principal | str | None = None,
    ) -> None:
        """Show all registered components with at least one of these tags; with `only`, hide all others.

        To everyone, or to one session or one principal. Components that are registered later are not changed.
        """
        self._switch_tagged(tags, self._audience(session, principal), on=True, only=only)

    def disable(
        self,
        *,
        tags: Collection[str],
        session: SessionView | None = None,
        principal: Principal | str | None = None,
    ) -> None:
        """Hide all components with at least one of these tags from everyone, one session or one principal."""
        self._switch_tagged(tags, self._audience(session, principal), on=False)

    def _switch_tagged(
        self, tags: Collection[str], audience: ConcernedClients, *, on: bool, only: bool = False
    ) -> None:
        wanted = checked_tags(tags, "enable" if on else "disable")
        for catalog in (self.tools, self.resources, self.templates, self.prompts):
            catalog.switch_tagged(wanted, audience, on=on, only=only)

    # Tools

    def remove_tool(self, name: str) -> None:
        """Remove a tool. Running calls of it continue."""
        self.tools.remove(name)

    def enable_tool(
        self, name: str, *, session: SessionView | None = None, principal: Principal | str | None = None
    ) -> None:
        """Show a tool to everyone, or to one session or one principal (a `Principal` or its key)."""
        self.tools.switch(name, self._audience(session, principal), on=True)

    def disable_tool(
        self, name: str, *, session: SessionView | None = None, principal: Principal | str | None = None
    ) -> None:
        """Hide a tool from everyone, one session or one principal: it is neither listed nor callable."""
        self.tools.switch(name, self._audience(session, principal), on=False)

    # Resources

    def remove_resource(self, uri: str) -> None:
        """Remove a resource or template."""
        self._resources_of(uri).remove(uri)

    def enable_resource(
        self, uri: str, *, session: SessionView | None = None, principal: Principal | str | None = None
    ) -> None:
        """Show a resource or template to everyone, or to one session or one principal."""
        self._resources_of(uri).switch(uri, self._audience(session, principal), on=True)

    def disable_resource(
        self, uri: str, *, session: SessionView | None = None, principal: Principal | str | None = None
    ) -> None:
        """Hide a resource or template from everyone, one session or one principal."""
        self._resources_of(uri).switch(uri, self._audience(session, principal), on=False)

    def _resources_of(self, uri: str) -> Catalog[Any]:
        return self.templates if "{" in uri else self.resources

    # Prompts

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt."""
        self.prompts.remove(name)

    def enable_prompt(
        self, name: str, *, session: SessionView | None = None, principal: Principal | str | None = None
    ) -> None:
        """Show a prompt to everyone, or to one session or one principal."""
        self.prompts.switch(name, self._audience(session, principal), on=True)

    def disable_prompt(
        self, name: str, *, session: SessionView | None = None, principal: Principal | str | None = None
    ) -> None:
        """Hide a prompt from everyone, one session or one principal."""
        self.prompts.switch(name, self._audience(session, principal), on=False)

    # Notifications

    def notify_tools_changed(self) -> None:
        """Ask all sessions, and all listeners of 2026-07-28, to list the tools again.

        No effect before the server runs.
        """
        self._list_changes.note("tools")

    def notify_resources_changed(self) -> None:
        """Ask all sessions, and all listeners of 2026-07-28, to list the resources again."""
        self._list_changes.note("resources")

    def notify_prompts_changed(self) -> None:
        """Ask all sessions, and all listeners of 2026-07-28, to list the prompts again."""
        self._list_changes.note("prompts")

    def _audience(self, session: SessionView | None, principal: Principal | str | None) -> ConcernedClients:
        if session is not None and principal is not None:
            raise ValueError("name a session or a principal, not both")
        if session is not None:
            if self.settings.stateless:
                raise ConfigError("a stateless server forgets a session after each request; name a principal")
            # Raises NoSession for a client of 2026-07-28: without a session it cannot be recognised later.
            return ConcernedClients(session=session.key)
        if principal is None:
            return EVERYONE
        key = principal if isinstance(principal, str) else principal.key
        if not key:
            raise ValueError("an anonymous client has no principal; use session=")
        return ConcernedClients(principal=key)
