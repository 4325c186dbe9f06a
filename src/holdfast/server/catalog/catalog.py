"""`Catalog`: the components of one kind, the clients that may see each, and the catalogs that include them.

Every change replaces the dicts and never modifies them, so a reader in any thread sees one consistent state. A lookup
costs one dict access while no component has a visibility for a session or principal. A catalog belongs to one
process: change it in code that runs on every replica.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar

from msgspec import Struct

from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.engine.exchange import Client


class Layer(Struct, frozen=True):
    """An included server that a component comes from, and the component's name there."""

    server: Any
    key: str


class Entry(Protocol):
    """A registered component."""

    @property
    def key(self) -> str: ...

    def included(self, key: str, server: object) -> Self:
        """Return a copy for the server that includes `server`, under its name there."""
        ...


E = TypeVar("E", bound=Entry)


class Audience(Struct, frozen=True):
    """The clients that a change concerns: a session by its key, a principal by its key, or (both empty) everyone."""

    session: str = ""
    principal: str = ""


EVERYONE: Final = Audience()
NO_CHOICES: Final[dict[str, bool]] = {}
Changed = Callable[[Audience], None]


class Catalog(Generic[E]):
    """Entries in the order of their registration.

    The visibility of an entry is that of the session if it is set, else of its principal, else of everyone.
    """

    def __init__(self, kind: str, changed: Changed) -> None:
        self._kind = kind
        self._changed = changed
        self.entries: dict[str, E] = {}
        self.enabled: dict[str, E] = {}
        """The entries that are visible to everyone."""
        self._scopes: dict[Audience, dict[str, bool]] = {}
        """The visibility of entries by session and principal; never for everyone."""
        self._followers: list[tuple[Catalog[E], Callable[[str], str], object]] = []

    def __repr__(self) -> str:
        return f"<Catalog of {len(self.entries)} {self._kind}s, {len(self.enabled)} enabled>"

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def is_alike(self) -> bool:
        """True if every principal sees the same entries."""
        return not any(audience.principal and words for audience, words in self._scopes.items())

    # Lookup

    def get(self, name: str, session: Client) -> E | None:
        """Return the entry if this session may see it."""
        if self._scopes:
            record = session.record
            for audience in (Audience(session=record.key), Audience(principal=record.principal)):
                visible = self._scopes.get(audience, NO_CHOICES).get(name)
                if visible is not None:
                    return self.entries.get(name) if visible else None
        return self.enabled.get(name)

    def visible(self, session: Client) -> Mapping[str, E]:
        """Return the entries that this session may see, in order."""
        record = session.record
        words = {
            **self._scopes.get(Audience(principal=record.principal), NO_CHOICES),
            **self._scopes.get(Audience(session=record.key), NO_CHOICES),
        }
        if not words:
            return self.enabled
        return {name: entry for name, entry in self.entries.items() if words.get(name, name in self.enabled)}

    # Changes

    def add(self, entry: E, *, enabled: bool = True) -> None:
        """Register an entry.

        Raises:
            ConfigError: its name is taken.
        """
        self._check_free(entry.key)
        self.entries = {**self.entries, entry.key: entry}
        if enabled:
            self.enabled = {**self.enabled, entry.key: entry}
        self._changed(EVERYONE)
        for follower, rename, server in self._followers:
            follower.add(entry.included(rename(entry.key), server), enabled=enabled)

    def remove(self, name: str) -> None:
        """Remove an entry and its visibility.

        Raises:
            KeyError: there is no such entry.
        """
        self._known(name)
        self.entries = {key: entry for key, entry in self.entries.items() if key != name}
        self.enabled = {key: entry for key, entry in self.enabled.items() if key != name}
        for words in self._scopes.values():
            words.pop(name, None)
        self._changed(EVERYONE)
        for follower, rename, _ in self._followers:
            follower.remove(rename(name))

    def switch(self, name: str, audience: Audience, *, on: bool) -> None:
        """Show or hide an entry for an audience. No client is notified if the visibility was the same before.

        Raises:
            KeyError: there is no such entry.
        """
        self._known(name)
        if audience != EVERYONE:
            self._switch_for(name, audience, on=on)
        elif (name in self.enabled) is not on:
            chosen = {*self.enabled, name} if on else self.enabled.keys() - {name}
            self.enabled = {key: entry for key, entry in self.entries.items() if key in chosen}
            self._changed(EVERYONE)
        if audience == EVERYONE:
            for follower, rename, _ in self._followers:
                follower.switch(rename(name), EVERYONE, on=on)

    def _switch_for(self, name: str, audience: Audience, *, on: bool) -> None:
        words = self._scopes.get(audience, {})
        if words.get(name) is not on:
            self._scopes = {**self._scopes, audience: {**words, name: on}}
            self._changed(audience)

    def forget(self, session: str) -> None:
        """Remove the visibility settings of a closed session."""
        audience = Audience(session=session)
        if audience in self._scopes:
            self._scopes = {key: words for key, words in self._scopes.items() if key != audience}

    def check_follow(self, other: Catalog[E], rename: Callable[[str], str]) -> None:
        """Raise ConfigError if `follow` would raise it, without a change."""
        for name in other.entries:
            self._check_free(rename(name))

    def follow(self, other: Catalog[E], rename: Callable[[str], str], server: object) -> None:
        """Add all entries of another server under new names, now and whenever its catalog changes."""
        for name, entry in other.entries.items():
            self.add(entry.included(rename(name), server), enabled=name in other.enabled)
        other._followers.append((self, rename, server))

    def _check_free(self, name: str) -> None:
        if name in self.entries:
            raise ConfigError(f"a {self._kind} {name!r} is registered already; remove it first")

    def _known(self, name: str) -> None:
        if name not in self.entries:
            raise KeyError(f"no {self._kind} {name!r} is registered")
