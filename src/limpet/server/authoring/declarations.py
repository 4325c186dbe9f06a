"""The declarations of an author besides the components: middleware, listeners, lifespan, caching, included servers.

`Server` has the methods that authors call; the back reads the declarations here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from limpet.server.authoring.caching import Cache, CacheSettings, by_method
from limpet.server.authoring.completions import Completer
from limpet.server.authoring.middleware import Middleware
from limpet.server.catalog.list_changed import ListChanges

if TYPE_CHECKING:
    from limpet.server.authoring.lifespan import Lifespan
    from limpet.server.authoring.registration import Registration
    from limpet.server.authoring.session_listeners import SessionListeners
    from limpet.server.catalog.catalog import Rename


class Declarations:
    """The declarations of one server."""

    def __init__(
        self,
        server: Registration,
        list_changes: ListChanges,
        *,
        cache: CacheSettings | None,
        lifespan: Callable[..., Any] | None,
    ) -> None:
        self._server = server
        self._given_lifespan = lifespan
        self.list_changes: ListChanges = list_changes
        self.cache: dict[str, Cache] = by_method(cache)
        """The caching hint of each method."""
        self.middleware: list[Middleware] = []
        """The outermost first."""
        self.completions: list[Completer] = []
        self.included: list[tuple[Registration, Callable[[], list[Completer]]]] = []
        """The servers that this one includes, and the functions that return their completions."""
        self.hosts: list[tuple[Registration, Rename]] = []
        """The servers that include this one, and how they rename its URIs."""

    @cached_property
    def lifespan(self) -> Lifespan:
        """The lifespan of the server."""
        from limpet.server.authoring.lifespan import Lifespan  # noqa: PLC0415 - only a server that runs needs it

        return Lifespan(self._given_lifespan, self._server, self._server.name)

    @cached_property
    def listeners(self) -> SessionListeners:
        """The listeners of session events."""
        from limpet.server.authoring.session_listeners import SessionListeners  # noqa: PLC0415 - only a server that runs needs it

        return SessionListeners()

    def completers(self) -> list[Completer]:
        """Return the functions that complete arguments, those of included servers last."""
        return [*self.completions, *(item for _, completed in self.included for item in completed())]

    def completers_for(self, prompt: Rename, uri: Rename, server: object) -> list[Completer]:
        """Return them for a server that includes this one, `server`, under the names there."""
        made = (item.included(prompt, uri, server) for item in self.completers())
        return [item for item in made if item is not None]

    def all_included(self) -> list[Registration]:
        """Return the servers that this one includes, directly or through others, each once."""
        found = [server for item, _ in self.included for server in (item, *item.declared.all_included())]
        return list(dict.fromkeys(found))

    def declare_tools(self) -> None:
        """Give the engine the rates and the hand-over times of the tools: after the start, and after each change."""
        server = self._server
        if server.is_built:
            tools = [
                (shown, tool)
                for name, tool in server.tools.entries.items()
                if (shown := server.name_for_clients("tools", name)) is not None
            ]
            server.engine.rates.declare({name: tool.rate for name, tool in tools if tool.rate is not None})
            hand_over = server.engine.hand_over
            hand_over.declare({name: tool.hand_over for name, tool in tools if tool.hand_over is not None})
