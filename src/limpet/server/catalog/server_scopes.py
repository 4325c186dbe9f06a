"""The scopes of one server: those that all its components need, and the access that its back offers to the engine.

The engine asks nothing about scopes before a component needs one (`Access.rules`).
"""

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from msgspec.structs import replace

from limpet.auth.scopes import NO_NEEDS, Needs, implications, needs_of
from limpet.engine.access import Access, ScopeRules
from limpet.errors import ConfigError


class Scoped(Protocol):
    """A component, or the server itself."""

    @property
    def needs(self) -> Needs: ...


S = TypeVar("S", bound=Scoped)


def server_scopes(
    name: str, scopes: Iterable[str], implied: Mapping[str, Iterable[str]] | None
) -> "ServerScopes":
    """Return the scopes of a server.

    Raises:
        ConfigError: a scope is invalid.
    """
    access = Access(implications(implied or {}, "implied_scopes"))
    return ServerScopes(access, needs_of(scopes, f"server {name}"))


class ServerScopes:
    """The scopes of a server and of its components."""

    def __init__(self, access: Access, needs: Needs = NO_NEEDS) -> None:
        self.access: Access = access
        self.needs: Needs = needs
        """The needs of each component besides its own scopes."""
        self.others: list[Needs] = []
        """The needs of routes beside the endpoint."""
        self._rules: ScopeRules | None = None
        self._is_open = False

    def use(self, rules: ScopeRules) -> None:
        """Let these rules count from the first time that the server or a component needs a scope."""
        self._rules = rules
        if self.needs.scopes:
            self.access.rules = rules

    def declare(self, needs: Needs) -> None:
        """Add scopes of something that is not a component, such as a route."""
        if needs.scopes:
            self.others.append(needs)
            self.access.rules = self._rules

    def applied(self, entry: S) -> S:
        """Return a component with the scopes of the server added.

        Raises:
            ConfigError: it needs a scope, and an endpoint of the server serves clients without a token.
        """
        needs = entry.needs.plus(self.needs)
        if not needs.scopes:
            return entry
        if self._is_open:
            raise ConfigError(_UNVERIFIED)
        self.access.rules = self._rules
        return replace(entry, needs=needs)  # type: ignore[type-var]

    def open(self) -> None:
        """Record that an HTTP endpoint serves clients without a token.

        Raises:
            ConfigError: a component needs a scope.
        """
        if self.access.rules is not None:
            raise ConfigError(_UNVERIFIED)
        self._is_open = True


_UNVERIFIED = (
    "a component needs scopes, and this server has no verifier, so that no client could have them: give it one "
    "(verifier=…, --verifier FILE:NAME)"
)
