"""`Catalog`: the components of one kind, the clients that may see each, and the catalogs that include them.

Every change replaces the dicts and never modifies them, so a reader in any thread sees one consistent state. A lookup
costs one dict access while every client sees the same components. A catalog belongs to one process: change it in code
that runs on every replica.

Two things decide whether a client sees a component, and both must allow it: the switches for everyone, a principal or a
session (`switch`), and the hidden scopes of the component (`auth/scopes.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from limpet.auth.scopes import NO_NEEDS, Needs
from limpet.errors import ConfigError
from limpet.server.catalog.server_scopes import ServerScopes
from limpet.server.functions.options import NO_TAGS

if TYPE_CHECKING:
    from limpet.engine.caller import Caller


class Layer(Struct, frozen=True):
    """An included server that a component comes from, and the component's name there."""

    server: Any
    key: str


class Entry(Struct, frozen=True, kw_only=True):
    """A registered component."""

    within: tuple[Layer, ...] = ()
    """The included servers that it comes from, the outermost first."""
    needs: Needs = NO_NEEDS
    """The scopes that its callers need."""
    tags: frozenset[str] = NO_TAGS
    place: str = ""
    """The file and line of its function; empty if it has none."""

    @property
    def key(self) -> str:
        """Its name or URI."""
        raise NotImplementedError

    def renamed(self, key: str) -> Self:
        """Return a copy with another name or URI."""
        raise NotImplementedError

    def included(self, key: str, server: object) -> Self:
        """Return a copy for the server that includes `server`, under its name there."""
        return replace(self.renamed(key), within=(Layer(server, self.key), *self.within))


E = TypeVar("E", bound=Entry)


class Viewer(Protocol):
    """The caller that looks for a component: an exchange, or a `View`."""

    @property
    def caller(self) -> Caller: ...
    @property
    def session_key(self) -> str: ...


class View(Struct, frozen=True):
    """A caller outside of an exchange."""

    caller: Caller
    session_key: str = ""


class ConcernedClients(Struct, frozen=True):
    """The clients that a change concerns: a session by its key, a principal by its key, or (both empty) everyone."""

    session: str = ""
    principal: str = ""


EVERYONE: Final = ConcernedClients()
NO_CHOICES: Final[dict[str, bool]] = {}
Changed = Callable[[ConcernedClients], None]
Rename = Callable[[str], str | None]
"""Returns the name of an entry in another catalog; None: it is not there."""


class Catalog(Generic[E]):
    """Entries in the order of their registration.

    The switch of an entry is that of the session if it is set, else of its principal, else of everyone.
    """

    def __init__(self, kind: str, changed: Changed, scopes: ServerScopes) -> None:
        self._kind = kind
        self._changed = changed
        self._server_scopes = scopes
        self._is_plain = True
        """Every client sees the same entries: those that are enabled."""
        self.entries: dict[str, E] = {}
        self.enabled: dict[str, E] = {}
        """The entries that are visible to everyone."""
        self._choices: dict[ConcernedClients, dict[str, bool]] = {}
        """The switches of entries by session and principal; never for everyone."""
        self._followers: list[tuple[Catalog[E], Rename, object]] = []

    def __repr__(self) -> str:
        return f"<Catalog of {len(self.entries)} {self._kind}s, {len(self.enabled)} enabled>"

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def is_alike(self) -> bool:
        """True if every principal sees the same entries."""
        if any(audience.principal and choices for audience, choices in self._choices.items()):
            return False
        return not self.hides

    @property
    def hides(self) -> bool:
        """True if an entry is hidden from some principals by its scopes."""
        return not self._is_plain and any(entry.needs.hidden for entry in self.entries.values())

    # Lookup

    def get(self, name: str, viewer: Viewer) -> E | None:
        """Return the entry if the viewer may see it."""
        if self._is_plain:
            return self.enabled.get(name)
        entry = self.switched(name, viewer)
        return None if entry is None or self._is_hidden(entry, viewer) else entry

    def switched(self, name: str, viewer: Viewer) -> E | None:
        """Return the entry if it is switched on for the viewer. The viewer may lack a hidden scope."""
        if self._choices:
            for audience in (
                ConcernedClients(session=viewer.session_key),
                ConcernedClients(principal=viewer.caller.key),
            ):
                visible = self._choices.get(audience, NO_CHOICES).get(name)
                if visible is not None:
                    return self.entries.get(name) if visible else None
        return self.enabled.get(name)

    def visible(self, viewer: Viewer) -> Mapping[str, E]:
        """Return the entries that the viewer may see, in order."""
        if self._is_plain:
            return self.enabled
        found = self.all_switched(viewer)
        return {name: entry for name, entry in found.items() if not self._is_hidden(entry, viewer)}

    def all_switched(self, viewer: Viewer) -> Mapping[str, E]:
        """Return the entries that are switched on for the viewer, in order."""
        choices = {
            **self._choices.get(ConcernedClients(principal=viewer.caller.key), NO_CHOICES),
            **self._choices.get(ConcernedClients(session=viewer.session_key), NO_CHOICES),
        }
        if not choices:
            return self.enabled
        return {
            name: entry for name, entry in self.entries.items() if choices.get(name, name in self.enabled)
        }

    def _is_hidden(self, entry: E, viewer: Viewer) -> bool:
        return bool(self._server_scopes.access.missing(entry.needs.hidden, viewer.caller))

    # Changes

    def add(self, entry: E, *, enabled: bool = True) -> None:
        """Register an entry. It also needs the scopes of the server.

        Raises:
            ConfigError: its name is taken, or it needs scopes and clients without a token are served.
        """
        self._check_free(entry.key)
        entry = self._server_scopes.applied(entry)
        self.entries = {**self.entries, entry.key: entry}
        if enabled:
            self.enabled = {**self.enabled, entry.key: entry}
        self._note_plain()
        self._changed(EVERYONE)
        for follower, shown, server in self._following(entry.key):
            follower.add(entry.included(shown, server), enabled=enabled)

    def _note_plain(self) -> None:
        """Record whether every client sees the same entries."""
        self._is_plain = not self._choices and not any(entry.needs.hidden for entry in self.entries.values())

    def remove(self, name: str) -> None:
        """Remove an entry and its visibility.

        Raises:
            KeyError: there is no such entry.
        """
        self._check_known(name)
        self.entries = {key: entry for key, entry in self.entries.items() if key != name}
        self.enabled = {key: entry for key, entry in self.enabled.items() if key != name}
        for choices in self._choices.values():
            choices.pop(name, None)
        self._note_plain()
        self._changed(EVERYONE)
        for follower, shown, _ in self._following(name):
            follower.remove(shown)

    def switch(self, name: str, audience: ConcernedClients, *, on: bool) -> None:
        """Show or hide an entry for an audience. No client is notified if the visibility was the same before.

        Raises:
            KeyError: there is no such entry.
        """
        self._check_known(name)
        if audience != EVERYONE:
            self._switch_for(name, audience, on=on)
        elif (name in self.enabled) is not on:
            chosen = {*self.enabled, name} if on else self.enabled.keys() - {name}
            self.enabled = {key: entry for key, entry in self.entries.items() if key in chosen}
            self._changed(EVERYONE)
        if audience == EVERYONE:
            for follower, shown, _ in self._following(name):
                follower.switch(shown, EVERYONE, on=on)

    def switch_tagged(
        self, tags: frozenset[str], audience: ConcernedClients, *, on: bool, only: bool = False
    ) -> None:
        """Show or hide the entries with one of these tags; with `only`, do the opposite with all others."""
        for name, entry in self.entries.items():
            if not tags.isdisjoint(entry.tags):
                self.switch(name, audience, on=on)
            elif only:
                self.switch(name, audience, on=not on)

    def _switch_for(self, name: str, audience: ConcernedClients, *, on: bool) -> None:
        choices = self._choices.get(audience, {})
        if choices.get(name) is not on:
            self._choices = {**self._choices, audience: {**choices, name: on}}
            self._is_plain = False
            self._changed(audience)

    def forget(self, session: str) -> None:
        """Remove the visibility settings of a closed session."""
        audience = ConcernedClients(session=session)
        if audience in self._choices:
            self._choices = {key: choices for key, choices in self._choices.items() if key != audience}
            self._note_plain()

    def check_follow(self, other: Catalog[E], rename: Rename) -> None:
        """Raise ConfigError if `follow` would raise it, without a change."""
        for name in other.entries:
            if (shown := rename(name)) is not None:
                self._check_free(shown)

    def follow(self, other: Catalog[E], rename: Rename, server: object) -> None:
        """Add the entries of another server under new names, now and whenever its catalog changes."""
        for name, entry in other.entries.items():
            if (shown := rename(name)) is not None:
                self.add(entry.included(shown, server), enabled=name in other.enabled)
        other._followers.append((self, rename, server))

    def _following(self, name: str) -> Iterator[tuple[Catalog[E], str, object]]:
        """Yield the catalogs that have an entry too, with its name there."""
        for follower, rename, server in self._followers:
            if (shown := rename(name)) is not None:
                yield follower, shown, server

    def _check_free(self, name: str) -> None:
        if name in self.entries:
            place = self.entries[name].place
            where = f" at {place}" if place else ""
            raise ConfigError(f"a {self._kind} {name!r} is registered already{where}; remove it first")

    def _check_known(self, name: str) -> None:
        if name not in self.entries:
            raise KeyError(f"no {self._kind} {name!r} is registered")
