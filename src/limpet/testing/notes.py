"""An observer that remembers."""

from typing import NamedTuple


class Note(NamedTuple):
    """One event with its facts."""

    event: str
    facts: dict[str, object]


class NotingObserver:
    """The Observer port for tests: all events that it received, in order."""

    def __init__(self) -> None:
        self.notes: list[Note] = []

    def note(self, event: str, /, **facts: object) -> None:
        """Remember an event."""
        self.notes.append(Note(event, facts))

    def named(self, event: str) -> list[dict[str, object]]:
        """Return the facts of every event of this name."""
        return [note.facts for note in self.notes if note.event == event]
