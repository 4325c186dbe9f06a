"""Known clients that depart from the protocol. The table is used by default; `Settings.quirks` replaces it."""

from collections.abc import Mapping
from typing import Final, Literal

from limpet.config import Quirks
from limpet.ports import Observer

Name = Literal["isolate", "no_priming", "reinitialize"]
"""A member of `Quirks`."""
NONE: Final = Quirks()

KNOWN: Final[Mapping[str, Quirks]] = {
    # Every request has id 1, and one session is shared by a user's conversations (claude-ai-mcp #539).
    "claude-ai": Quirks(isolate=True),
    "Anthropic/ClaudeAI": Quirks(isolate=True),
    # An event without data is parsed as JSON: a warning in the log (vscode #309104), a failed call (java-sdk #765).
    "Visual Studio Code": Quirks(no_priming=True),
    "Visual Studio Code - Insiders": Quirks(no_priming=True),
    "Java SDK MCP Client": Quirks(no_priming=True),
    # It connects again with the session id that it had before (frontmcp #474).
    "inspector-client": Quirks(reinitialize=True),
}
NAMES: Final = 64
"""How many clients are counted by name."""
_NAME_SIZE: Final = 64


SHOWN_NAME: Final = 128
"""How many characters of a client's name, or of a name that it sends, a log line shows."""


class ClientCounts:
    """How often something happened, by client. Clients beyond a limit are counted together as `other`."""

    __slots__ = ("_counts", "_names")

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._names: set[str] = set()

    def __repr__(self) -> str:
        return f"<ClientCounts of {len(self._names)} clients>"

    def of(self, event: str) -> dict[str, int]:
        """Return how often an event happened, by client."""
        return {name: count for (name, counted), count in self._counts.items() if counted == event}

    def add(self, client: object, event: str) -> tuple[str, int]:
        """Count an event of a client. Return the name under which it is counted, and how often it happened."""
        name = name_of(client)[:_NAME_SIZE] or "unknown"
        if name not in self._names:
            if len(self._names) >= NAMES:
                name = "other"
            self._names.add(name)
        count = self._counts[name, event] = self._counts.get((name, event), 0) + 1
        return name, count


class ClientQuirks:
    """The table that a server uses. It counts the uses of the table by client, and reports them."""

    __slots__ = ("_counts", "_observer", "_table")

    def __init__(self, table: Mapping[str, Quirks] | None, observer: Observer) -> None:
        self._table = table
        self._counts = ClientCounts()
        self._observer = observer

    def __repr__(self) -> str:
        return f"<ClientQuirks {self._counts!r}>"

    def of(self, client: object) -> Quirks:
        """Return the quirks of a client."""
        return quirks_of(client, self._table)

    def duplicates(self) -> dict[str, int]:
        """Return how often each client has used an id that was in flight."""
        return self._counts.of("duplicate")

    def applied(self, client: object, quirk: Name) -> None:
        """Report that a client was treated by one of its quirks."""
        name, count = self._counts.add(client, quirk)
        self._observer.note("quirk.applied", client=name, quirk=quirk, count=count)

    def duplicate(self, client: object, session: str) -> None:
        """Report that a client used an id that is in flight."""
        name, count = self._counts.add(client, "duplicate")
        self._observer.note("exchange.duplicate", session=session, client=name, count=count)


def quirks_of(client: object, table: Mapping[str, Quirks] | None) -> Quirks:
    """Return the quirks of a client by the exact name in its clientInfo.

    The table None stands for the known clients.
    """
    return (KNOWN if table is None else table).get(name_of(client), NONE)


def name_of(client: object) -> str:
    """Return the name in a clientInfo; empty if it has no name."""
    name = client.get("name") if isinstance(client, dict) else None
    return name if isinstance(name, str) else ""


def shown_name(client: object) -> str:
    """Return the name in a clientInfo, cut for a log line: a client chooses it."""
    return name_of(client)[:SHOWN_NAME]
