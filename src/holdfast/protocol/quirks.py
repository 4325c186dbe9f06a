"""Known clients that depart from the protocol. The table is used by default; a setting replaces it."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct


class Quirks(Struct, frozen=True, kw_only=True):
    """How one client departs from the protocol, and how we treat it."""

    isolate: bool = False
    """It reuses ids that are in flight: run both requests, each with its own response."""
    reinitialize: bool = False
    """It sends initialize within a live session: open a new session instead of refusing."""


NONE: Final = Quirks()

KNOWN: Final[Mapping[str, Quirks]] = {
    # Every request has id 1, and one session is shared by a user's conversations (claude-ai-mcp #539).
    "claude-ai": Quirks(isolate=True),
    "Anthropic/ClaudeAI": Quirks(isolate=True),
}


def quirks_of(client: object, table: Mapping[str, Quirks]) -> Quirks:
    """Return the quirks of a client by the exact name in its clientInfo."""
    name: Any = client.get("name") if isinstance(client, dict) else None
    return table.get(name, NONE) if isinstance(name, str) else NONE
