"""The names of a server's components as clients see them. Pure: texts in, texts out.

A server behind has its own names: the *inner* ones. Clients see the *outer* ones:

    kind                 with the prefix `files`              without a prefix
    ─────────────────    ─────────────────────────────────    ────────────────
    tools, prompts       read          → files_read           read
    resources            note://a/b    → note://files/a/b     note://a/b
                         file:///{x}   → file://files//{x}    file:///{x}
                         urn:a         → urn:files/a          urn:a
                         {+any}        → files/{+any}         {+any}

`resources` are URIs and templates alike. A prefix is inserted before the first variable of a template, at the same
place as in a URI, so the URIs that a client makes of the outer template are the outer names of those of the inner
template.

`inner` and `outer` are inverse to each other: an outer name belongs to one component at most. Other namings hide
components or give them new names (`backs/components.py`); a component that is hidden has no outer name.
"""

import re
from typing import Final, Literal, Protocol

from limpet.errors import ConfigError

NameKind = Literal["tools", "prompts", "resources"]
NAME_KINDS: Final[tuple[NameKind, ...]] = ("tools", "prompts", "resources")
_PREFIX: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""It is part of names of tools, and stands where a URI has its host."""
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?://)?")


class Naming(Protocol):
    """The names of one server's components, in both directions."""

    @property
    def renames_uris(self) -> bool:
        """True if a resource may have another URI for clients."""

    def outer(self, kind: NameKind, name: str) -> str | None:
        """Return the name that clients see for a name of the server; None: they do not see the component."""

    def inner(self, kind: NameKind, name: str) -> str | None:
        """Return the name of the server for a name that a client uses; None: no component has it."""

    def unhidden(self, kind: NameKind, name: str) -> str | None:
        """Return the name that the server would get for a name of a client if no component were hidden.

        None: it has another prefix.
        """


class Names:
    """Names with a prefix; without one, they stay as they are."""

    __slots__ = ("prefix",)

    def __init__(self, prefix: str = "") -> None:
        """Take the prefix.

        Raises:
            ConfigError: it is invalid.
        """
        if prefix and _PREFIX.fullmatch(prefix) is None:
            raise ConfigError(
                f"the prefix {prefix[:64]!r} is invalid: it has letters, digits, '.', '_' and '-', and begins with a letter or digit"
            )
        self.prefix: str = prefix

    @property
    def renames_uris(self) -> bool:
        return bool(self.prefix)

    def outer(self, kind: NameKind, name: str) -> str | None:
        return _with_prefix(self.prefix, kind, name) if self.prefix else name

    def inner(self, kind: NameKind, name: str) -> str | None:
        return _without_prefix(self.prefix, kind, name) if self.prefix else name

    def unhidden(self, kind: NameKind, name: str) -> str | None:
        """Return the name of the server for a name that a client uses; None: it has another prefix."""
        return self.inner(kind, name)


class NamesOfNames:
    """Names of the names of another naming: a server hides and renames, and the one that includes it adds a prefix."""

    __slots__ = ("_first", "_second")

    def __init__(self, first: Naming, second: Naming) -> None:
        """`first` begins with the names of the server; the names of `second` are those that clients see."""
        self._first = first
        self._second = second

    @property
    def renames_uris(self) -> bool:
        return self._first.renames_uris or self._second.renames_uris

    def outer(self, kind: NameKind, name: str) -> str | None:
        between = self._first.outer(kind, name)
        return None if between is None else self._second.outer(kind, between)

    def inner(self, kind: NameKind, name: str) -> str | None:
        between = self._second.inner(kind, name)
        return None if between is None else self._first.inner(kind, between)

    def unhidden(self, kind: NameKind, name: str) -> str | None:
        between = self._second.unhidden(kind, name)
        return None if between is None else self._first.unhidden(kind, between)


AS_THEY_ARE: Final = Names()


def _with_prefix(prefix: str, kind: NameKind, name: str) -> str:
    if kind != "resources":
        return f"{prefix}_{name}"
    scheme = _SCHEME.match(name)
    at = scheme.end() if scheme is not None else 0
    return f"{name[:at]}{prefix}/{name[at:]}"


def _without_prefix(prefix: str, kind: NameKind, name: str) -> str | None:
    if kind != "resources":
        return name[len(prefix) + 1 :] if name.startswith(f"{prefix}_") else None
    scheme = _SCHEME.match(name)
    at = scheme.end() if scheme is not None else 0
    end = at + len(prefix) + 1
    # In many schemes the host has no case, and programs write it in small letters.
    return name[:at] + name[end:] if name[at:end].lower() == f"{prefix}/".lower() else None
