"""Scopes that components need, in addition to a valid token. Pure.

A component needs a set of scopes. Some of them may be *hidden* scopes: a principal that lacks one of these does not see
the component at all. A principal that lacks only other scopes sees it, and is refused with the names of all scopes it
needs.
Scopes add up: a component needs its own scopes, those of its server, and those of each server that includes it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from limpet.errors import ConfigError

_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}")
"""A scope as RFC 6749 (3.3) defines it: visible ASCII without quotation mark and backslash."""
NO_SCOPES: Final[frozenset[str]] = frozenset()


class Needs(Struct, frozen=True):
    """The scopes that a request needs."""

    scopes: frozenset[str] = NO_SCOPES
    hidden: frozenset[str] = NO_SCOPES
    """The scopes without which the component does not exist for a principal."""

    def plus(self, other: "Needs") -> "Needs":
        """Return the scopes of both."""
        if not other.scopes:
            return self
        return Needs(self.scopes | other.scopes, self.hidden | other.hidden)


NO_NEEDS: Final = Needs()


def needs_of(scopes: Iterable[str], component: str, *, hidden: bool = False) -> Needs:
    """Return the needs of a component. `component` names it in an error.

    Raises:
        ConfigError: a scope is invalid, or a component without scopes is declared hidden.
    """
    named = scope_set(scopes, f"{component}: scopes")
    if hidden and not named:
        raise ConfigError(
            f"{component}: hidden=True needs scopes, which decide the principals that may see it"
        )
    return Needs(named, named if hidden else NO_SCOPES)


def scope_set(scopes: Iterable[str], where: str) -> frozenset[str]:
    """Return scopes as a set. `where` names the option in an error.

    Raises:
        ConfigError: it is one text, or has a scope that cannot be sent.
    """
    if isinstance(scopes, str):
        raise ConfigError(f"{where} is a set of texts, not one text: write {{{scopes[:64]!r}}}")
    named = frozenset(scopes)
    for scope in named:
        if type(scope) is not str or _SCOPE.fullmatch(scope) is None:
            raise ConfigError(
                f"{where}: {str(scope)[:64]!r} is not a scope: write visible characters without spaces, quotation marks "
                "and backslashes, at most 256"
            )
    return named


def implications(implied: Mapping[str, Iterable[str]], where: str) -> dict[str, frozenset[str]]:
    """Return, by scope, the narrower scopes that it includes, also through others.

    Raises:
        ConfigError: a scope is invalid.
    """
    scope_set(implied, where)
    direct = {broad: scope_set(narrow, f"{where}[{broad!r}]") for broad, narrow in implied.items()}
    return {broad: expanded({broad}, direct) for broad in direct}


def expanded(scopes: Iterable[str], implied: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return scopes together with all that they include."""
    found: set[str] = set()
    waiting = set(scopes)
    while waiting:
        found |= waiting
        waiting = {narrow for broad in waiting for narrow in implied.get(broad, NO_SCOPES)} - found
    return frozenset(found)
