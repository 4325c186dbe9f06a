"""The names under which clients know the components of a server: some are hidden, others are renamed. Pure.

An operator writes the rows, with the names that the server itself uses (`ComponentTable`). A `*` stands for any
characters.

    hide       a component whose name fits is hidden
    only       if there are such rows, all components that fit none of them are hidden
    rename     `old=new`: the part that `*` stands for in the old name is put in place of the `*` of the new name. A row
               without a `*` counts before those with one, else the first row that fits

As in `core/names.py`, no two components have one name for clients. A name that a row makes belongs to the renamed
component; another component of the server with this name is hidden (`shadowed`). So `inner` and `outer` are inverse,
and every replica finds the same names without knowing the server's lists.

A server may understand a URI in several spellings, so the rows that hide resources are compared in canonical forms
(`auth/uri_forms.py`). A URI is hidden if one of its forms is hidden, or if not all of them are in `only`. A URI without
a certain form is hidden.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from limpet.auth.uri_forms import row_forms, uri_forms
from limpet.config import KIB
from limpet.core.names import NAME_KINDS, NameKind
from limpet.errors import ConfigError

_LONGEST: Final = 64 * KIB
"""Characters of a URI that is compared. Comparing takes time, and a client chooses the URI."""


class ComponentTable(Struct, frozen=True, kw_only=True):
    """Which tools, resources and prompts clients see, and under which names.

    Raises:
        ConfigError: a row cannot work.
    """

    hide_tools: Collection[str] = ()
    """By name or pattern: tools that are hidden."""
    only_tools: Collection[str] = ()
    """By name or pattern: the only tools that are not hidden."""
    rename_tools: Mapping[str, str] = {}
    """By name or pattern: the names for clients."""
    hide_resources: Collection[str] = ()
    """The same for resources, by their URIs; and for templates, by their texts."""
    only_resources: Collection[str] = ()
    rename_resources: Mapping[str, str] = {}
    hide_prompts: Collection[str] = ()
    """The same for prompts."""
    only_prompts: Collection[str] = ()
    rename_prompts: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        self.naming()

    @property
    def is_empty(self) -> bool:
        """True if clients see every component under its own name."""
        return not any(getattr(self, member) for member in self.__struct_fields__)

    def naming(self) -> "TableNaming":
        """Return the names by this table.

        Raises:
            ConfigError: a row cannot work.
        """
        return TableNaming(self)


class TableNaming:
    """The names by a table."""

    def __init__(self, table: ComponentTable) -> None:
        self._kinds = {
            kind: _Names(
                _Shown(
                    *(
                        _texts(getattr(table, f"{verb}_{kind}"), f"{verb}_{kind}")
                        for verb in ("hide", "only")
                    ),
                    are_uris=kind == "resources",
                ),
                _rows(getattr(table, f"rename_{kind}"), f"rename_{kind}"),
            )
            for kind in NAME_KINDS
        }
        self.renames_uris: bool = bool(table.rename_resources)
        """True if a resource may have another URI for clients."""

    def inner(self, kind: NameKind, name: str) -> str | None:
        """Return the server's own name of a component that clients know by this name.

        None: there is none for clients.
        """
        return self._kinds[kind].inner(name)

    def outer(self, kind: NameKind, name: str) -> str | None:
        """Return the name for clients of a component of the server; None: it is hidden."""
        return self._kinds[kind].outer(name)

    def unhidden(self, kind: NameKind, name: str) -> str:
        return self._kinds[kind].unhidden(name)

    def is_shadowed(self, kind: NameKind, name: str) -> bool:
        """True if a component is hidden only because another one has been given its name."""
        names = self._kinds[kind]
        return names.outer(name) is None and not names.is_hidden(name)


class _Row(Struct, frozen=True):
    """One row that renames: what is before and after the `*` of both names; `last` is None without a `*`."""

    old: tuple[str, str | None]
    new: tuple[str, str | None]

    def renamed(self, name: str) -> str | None:
        return _filled(self.old, self.new, name)

    def own(self, name: str) -> str | None:
        return _filled(self.new, self.old, name)


def _filled(form: tuple[str, str | None], other: tuple[str, str | None], name: str) -> str | None:
    """Return a name in another form; None if it does not have the first one."""
    (first, last), (other_first, other_last) = form, other
    if last is None or other_last is None:
        return other_first if name == first else None
    if len(name) < len(first) + len(last) or not (name.startswith(first) and name.endswith(last)):
        return None
    return f"{other_first}{name[len(first) : len(name) - len(last)]}{other_last}"


class _Names:
    """The names of one kind of component."""

    def __init__(self, shown: "_Shown", rows: list[_Row]) -> None:
        self.is_hidden = shown.is_hidden
        self._rows = rows

    def inner(self, name: str) -> str | None:
        for own in self._owns(name):
            if not self.is_hidden(own):
                return own
        return None

    def unhidden(self, name: str) -> str:
        return next(self._owns(name), name)

    def _owns(self, name: str) -> Iterator[str]:
        """Yield the server's names that become this name."""
        for row in self._rows:
            own = row.own(name)
            if own is not None and self._renamed(own) == name:
                yield own
        if self._renamed(name) == name:
            yield name

    def outer(self, name: str) -> str | None:
        renamed = self._renamed(name)
        return renamed if self.inner(renamed) == name else None

    def _renamed(self, name: str) -> str:
        for row in self._rows:
            if (renamed := row.renamed(name)) is not None:
                return renamed
        return name


class _Shown:
    """Decides which names of one kind are hidden."""

    def __init__(self, hide: Collection[str], only: Collection[str], *, are_uris: bool) -> None:
        self._are_uris = are_uris
        self._hide = self._patterns(hide)
        self._only = self._patterns(only)
        self._is_needed = bool(hide or only)

    def _patterns(self, rows: Collection[str]) -> list[Callable[[str], bool]]:
        if not self._are_uris:
            return [pattern(row) for row in rows]
        try:
            return [pattern(form) for row in rows for form in row_forms(row)]
        except ValueError:
            raise ConfigError(
                f"{', '.join(rows)}: a URI has a host that programs read differently: write it in plain letters of ASCII"
            ) from None

    def is_hidden(self, name: str) -> bool:
        if not self._is_needed:
            return False
        forms = self._forms(name)
        if forms is None or any(fits(form) for fits in self._hide for form in forms):
            return True
        return bool(self._only) and not all(any(fits(form) for fits in self._only) for form in forms)

    def _forms(self, name: str) -> Iterable[str] | None:
        if not self._are_uris:
            return (name,)
        try:
            return uri_forms(name) if len(name) <= _LONGEST else None
        except ValueError:
            return None


def _texts(rows: Collection[str], where: str) -> Collection[str]:
    if isinstance(rows, str):
        raise ConfigError(f"{where} is a list of names or patterns, not one text: write [{rows[:64]!r}]")
    if not all(type(row) is str and row for row in rows):
        raise ConfigError(f"{where} has names or patterns, and none of them is empty")
    return rows


def _rows(renames: Mapping[str, str], where: str) -> list[_Row]:
    rows: list[_Row] = []
    for old, new in renames.items():
        if not old or not new or old.count("*") != new.count("*") or old.count("*") > 1:
            raise ConfigError(
                f"{where}: {old[:64]!r} becomes {new[:64]!r}: write two names, or two patterns with one * each"
            )
        rows.append(_Row(_split(old), _split(new)))
    made = [row.new for row in rows]
    for row in rows:
        if made.count(row.new) > 1:
            raise ConfigError(f"{where}: two rows give the name {'*'.join(filter(None, row.new))[:64]!r}")
    return sorted(rows, key=lambda row: row.old[1] is not None)


def _split(text: str) -> tuple[str, str | None]:
    first, star, last = text.partition("*")
    return (first, last) if star else (first, None)


def pattern(text: str) -> Callable[[str], bool]:
    """Return a function that compares a name with a row.

    A client chooses the name, so the time is linear in its length.
    """
    first, *parts = text.split("*")
    if not parts:
        return text.__eq__
    *middle, last = parts

    def fits(name: str) -> bool:
        at, end = len(first), len(name) - len(last)
        if at > end or not (name.startswith(first) and name.endswith(last)):
            return False
        for part in middle:
            # The first place is always right: it leaves the most characters for the parts that follow.
            at = name.find(part, at, end) + len(part)
            if at < len(part):
                return False
        return True

    return fits
