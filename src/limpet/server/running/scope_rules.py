"""The scopes that requests to a server of functions need: those of the tool, resource or prompt that they name."""

from collections.abc import Callable, Iterable
from typing import Any

from limpet.auth.scopes import NO_NEEDS, Needs
from limpet.engine.caller import Caller
from limpet.errors import UnknownTask
from limpet.protocol.subscriptions import TOPICS
from limpet.server.authoring.registration import Registration
from limpet.server.authoring.resources import ResourceEntry, TemplateEntry
from limpet.server.catalog.catalog import Catalog, View, Viewer
from limpet.wire.jsonrpc import Request

Params = dict[str, Any]
Found = tuple[ResourceEntry | TemplateEntry, dict[str, str]]


def find_resource(server: Registration, uri: str, viewer: Viewer) -> Found | None:
    """Return the resource or template of a URI that the viewer may see, and the values of its variables."""
    entry = server.resources.get(uri, viewer)
    if entry is not None:
        return entry, {}
    return _matching(server.templates.visible(viewer).values(), uri)


def _matching(templates: Iterable[TemplateEntry], uri: str) -> Found | None:
    for entry in templates:
        values = entry.template.match(uri)
        if values is not None:
            return entry, values
    return None


class ServerRules:
    """The rules of one server: see `limpet.engine.access`."""

    def __init__(self, server: Registration) -> None:
        self._server = server
        self._needs: dict[str, Callable[[Params, View], Needs]] = {
            "tools/call": self._tool,
            "prompts/get": self._prompt,
            "resources/read": self._resource,
            "resources/subscribe": self._resource,
            "completion/complete": self._reference,
            "subscriptions/listen": self._listening,
        }

    def needs(self, request: Request, caller: Caller, session: str) -> Needs:
        """Return the needs of a request; nothing if its method names no component."""
        find = self._needs.get(request.method)
        return NO_NEEDS if find is None else find(request.params, View(caller, session))

    def declared(self) -> Iterable[Needs]:
        """Return the needs of all components, and of the routes beside the endpoint."""
        server = self._server
        for catalog in (server.tools, server.resources, server.templates, server.prompts):
            yield from (entry.needs for entry in catalog.entries.values())
        yield server.scopes.needs
        yield from server.scopes.others

    def basic(self, request: Request | None = None) -> frozenset[str]:  # noqa: ARG002 - one server
        """Return the scopes of the server."""
        return self._server.scopes.needs.scopes

    def _tool(self, params: Params, view: View) -> Needs:
        return self._known_or_all(_named(self._server.tools, params.get("name"), view))

    def _prompt(self, params: Params, view: View) -> Needs:
        return self._known_or_all(_named(self._server.prompts, params.get("name"), view))

    def _resource(self, params: Params, view: View) -> Needs:
        uri = params.get("uri")
        if type(uri) is not str:
            return self._server.scopes.needs
        found = find_resource(self._server, uri, view)
        if found is not None:
            return found[0].needs
        # Not visible: perhaps because it is hidden from this caller.
        hidden = _named(self._server.resources, uri, view)
        matching = _matching(self._server.templates.all_switched(view).values(), uri)
        return self._known_or_all(hidden or (matching[0].needs if matching is not None else None))

    def _reference(self, params: Params, view: View) -> Needs:
        ref = params.get("ref")
        if type(ref) is not dict:
            return self._server.scopes.needs
        if ref.get("type") == "ref/prompt":
            return self._prompt(ref, view)
        return _named(self._server.templates, ref.get("uri"), view) or self._resource(ref, view)

    def _known_or_all(self, found: Needs | None) -> Needs:
        """Return the needs of a component; for an unknown one, those that all components have."""
        return self._server.scopes.needs if found is None else found

    def _listening(self, params: Params, view: View) -> Needs:
        """Return the needs of the resources and tasks of a filter. Hidden resources are left out of the filter.

        Raises:
            UnknownTask: the call of a task needed scopes that no component of this process has, or that are hidden from
                the caller.
        """
        wanted = params.get("notifications")
        if type(wanted) is not dict:
            return NO_NEEDS
        needs = NO_NEEDS
        for uri in _texts(wanted.get(TOPICS["resource"].member)):
            found = find_resource(self._server, uri, view)
            needs = needs.plus(self._known_or_all(found[0].needs if found is not None else None))
        for task_id in _texts(wanted.get(TOPICS["task"].member)):
            scopes = self._server.scopes.access.marked(task_id, view.caller)
            if scopes is None:
                raise UnknownTask
            needs = needs.plus(Needs(scopes))
        return needs


def _named(catalog: Catalog[Any], name: object, view: View) -> Needs | None:
    entry = catalog.switched(name, view) if type(name) is str else None
    return entry.needs if entry is not None else None


def _texts(value: object) -> list[str]:
    return [text for text in value if type(text) is str] if type(value) is list else []
