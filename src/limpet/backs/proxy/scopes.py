"""Scopes for a server behind us: a table by the names of its components, because its own code declares none.

A name in the table may have `*` for any characters. All rows that fit a name add up.

The server behind may understand a URI in several spellings, and a row must fit all of them. So a URI and a row are
compared in canonical forms (`auth/uri_forms.py`). A request with a URI that has no such form is refused. In a list, and
as the reference of a completion, which may be a template, such a URI needs the scopes of all rows.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from limpet.auth.scopes import NO_NEEDS, Needs, implications, scope_set
from limpet.auth.uri_forms import row_forms, uri_forms
from limpet.backs.components import pattern
from limpet.config import KIB
from limpet.engine.access import Access
from limpet.engine.caller import Caller
from limpet.errors import ConfigError, InvalidParams, MethodNotFound
from limpet.protocol.subscriptions import TOPICS
from limpet.wire.jsonrpc import Request

_LONGEST: Final = 64 * KIB
"""Characters of all URIs of one request. Comparing them takes time, and a client chooses them."""


_OPEN: Final = frozenset(
    {
        *("initialize", "ping", "server/discover", "logging/setLevel", "resources/unsubscribe"),
        *("tools/list", "prompts/list", "resources/list", "resources/templates/list", "subscriptions/listen"),
    }
)
"""The requests without a component that need no scope. All others need those of the server, also those that we do
not know."""


class ScopeTable(Struct, frozen=True, kw_only=True):
    """The scopes that callers of a server behind need. In `limpet.toml` it is `[servers.NAME.scopes]`.

    Raises:
        ConfigError: a scope or a row is invalid.
    """

    server: Collection[str] = ()
    """The scopes that every tool, resource and prompt needs."""
    tools: Mapping[str, Collection[str]] = {}
    """By name or pattern: the scopes that tools need."""
    resources: Mapping[str, Collection[str]] = {}
    """By URI or pattern: the scopes that resources need. A template is listed by its own text."""
    prompts: Mapping[str, Collection[str]] = {}
    """By name or pattern: the scopes that prompts need."""
    hidden: Collection[str] = ()
    """Scopes without which a component that needs them does not exist for a caller."""
    implied: Mapping[str, Collection[str]] = {}
    """By scope: the narrower scopes that it includes."""

    def __post_init__(self) -> None:
        named = set(scope_set(self.server, "server"))
        for kind in ("tools", "resources", "prompts"):
            for name, scopes in getattr(self, kind).items():
                found = scope_set(scopes, f"{kind}[{name!r}]")
                if not name or not found:
                    raise ConfigError(f"{kind}[{name!r}] needs a name or pattern, and at least one scope")
                named |= found
        for row in self.resources:
            try:
                row_forms(row)
            except ValueError:
                raise ConfigError(
                    f"resources[{row!r}] has a host that programs read differently: write it in plain letters of ASCII"
                ) from None
        implications(self.implied, "implied")
        unused = sorted(scope_set(self.hidden, "hidden") - named)
        if unused:
            raise ConfigError(f"hidden names {unused[0]!r}, which no row of the table needs")

    @property
    def is_empty(self) -> bool:
        """True if no component needs a scope."""
        return not (self.server or self.tools or self.resources or self.prompts)

    def access(self) -> Access:
        """Return the access for a back."""
        access = Access(implications(self.implied, "implied"))
        access.rules = None if self.is_empty else TableRules(self, access)
        return access


NO_TABLE: Final = ScopeTable()


class _Rows:
    """The rows of one kind of component."""

    def __init__(
        self,
        rows: Mapping[str, Collection[str]],
        needs: Callable[[Collection[str]], Needs],
        forms: Callable[[str], Iterable[str]],
    ) -> None:
        self.needs = [
            ([pattern(form) for form in forms(name)], needs(scopes)) for name, scopes in rows.items()
        ]

    def of(self, names: Iterable[str] | None) -> Needs:
        """Return the needs of all rows that fit one of the names; None fits all."""
        found, texts = NO_NEEDS, () if names is None else tuple(names)
        for patterns, needs in self.needs:
            if names is None or any(fits(text) for fits in patterns for text in texts):
                found = found.plus(needs)
        return found


class TableRules:
    """The rules of a table: see `limpet.engine.access`."""

    def __init__(self, table: ScopeTable, access: Access) -> None:
        self._access = access
        hidden = frozenset(table.hidden)

        def needs(scopes: Collection[str]) -> Needs:
            named = frozenset(scopes)
            return Needs(named, named & hidden)

        self._server = needs(table.server)
        self._rows = {
            "tools": _Rows(table.tools, needs, lambda name: (name,)),
            "prompts": _Rows(table.prompts, needs, lambda name: (name,)),
            "resources": _Rows(table.resources, needs, row_forms),
        }
        self._compares_uris = bool(table.resources)
        self.hides: bool = bool(hidden)
        """True if a component may be hidden from a caller."""
        self.is_by_text: bool = True
        """A component needs the same whether it exists or not."""
        self.passes_tasks: bool = not table.tools
        """False: a request for a task names no tool, so its scopes could not be checked."""

    def component(self, kind: str, name: str) -> Needs:
        """Return the needs of a component; of a URI without a canonical form, those of all rows."""
        return self._server.plus(self._rows[kind].of(self._forms(name) if kind == "resources" else (name,)))

    def _forms(self, uri: str) -> Iterable[str] | None:
        try:
            return uri_forms(uri) if self._compares_uris else ()
        except ValueError:
            return None

    def is_hidden(self, kind: str, name: str, caller: Caller) -> bool:
        """True if a component is hidden from a caller."""
        return bool(self._access.missing(self.component(kind, name).hidden, caller))

    def needs(self, request: Request, caller: Caller, session: str) -> Needs:  # noqa: ARG002
        """Return the needs of a request. A listener may name hidden resources among others: it does not receive them.

        Raises:
            InvalidParams: its URIs are too long, or one has no canonical form.
            MethodNotFound: it names no component, and the whole server is hidden from the caller.
        """
        method = request.method
        is_listener, found = method == "subscriptions/listen", NO_NEEDS
        components = named(method, request.params)
        if not components:
            return NO_NEEDS if method in _OPEN else self._without_name(method, caller)
        if sum(len(name) for kind, name in components if kind == "resources") > _LONGEST:
            raise InvalidParams(f"the URIs of a request are at most {_LONGEST} characters long")
        if method != "completion/complete":
            self._check_uris(name for kind, name in components if kind == "resources")
        for kind, name in components:
            if not (is_listener and self.is_hidden(kind, name, caller)):
                found = found.plus(self.component(kind, name))
            else:
                found = found.plus(Needs(self.basic()))
        return found

    def _check_uris(self, uris: Iterable[str]) -> None:
        if any(self._forms(uri) is None for uri in uris):
            raise InvalidParams(
                "the URI has no certain canonical form: write it with a plain host and port, and without control characters"
            )

    def _without_name(self, method: str, caller: Caller) -> Needs:
        """Return the needs of a request that reaches the server behind and names no component: those of the server."""
        if self._access.missing(self._server.hidden, caller):
            raise MethodNotFound(method[:100])
        return self._server

    def declared(self) -> Iterator[Needs]:
        """Return the needs of the server and of each row."""
        yield self._server
        for rows in self._rows.values():
            yield from (self._server.plus(needs) for _, needs in rows.needs)

    def basic(self, request: Request | None = None) -> frozenset[str]:  # noqa: ARG002 - one server
        """Return the scopes that every component needs, except hidden ones."""
        return self._server.scopes - self._server.hidden


def named(method: str, params: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the kind and name of each component that a request names."""
    match method:
        case "tools/call" | "prompts/get":
            found = [(method.partition("/")[0], params.get("name"))]
        case "resources/read" | "resources/subscribe":
            found = [("resources", params.get("uri"))]
        case "completion/complete":
            ref = params.get("ref")
            ref = ref if type(ref) is dict else {}
            found = [("prompts", ref.get("name")), ("resources", ref.get("uri"))]
        case "subscriptions/listen":
            wanted = params.get("notifications")
            uris = wanted.get(TOPICS["resource"].member) if type(wanted) is dict else None
            found = [("resources", uri) for uri in (uris if type(uris) is list else ())]
        case _:
            found = []
    return [(kind, name) for kind, name in found if type(name) is str]
