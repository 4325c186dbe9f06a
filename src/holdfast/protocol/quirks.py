"""What known clients do differently. On by default; a setting replaces the table."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct


class Quirks(Struct, frozen=True, kw_only=True):
    """How one client departs from the protocol, and what we do about it."""

    isolate: bool = False
    """It reuses ids that are in flight: run both, each answered on its own POST."""
    reinitialize: bool = False
    """It sends initialize inside a live session: give it a new one instead of a refusal."""


NONE: Final = Quirks()

KNOWN: Final[Mapping[str, Quirks]] = {
    # Every request has id 1, and one session is shared by a user's conversations (claude-ai-mcp #539).
    "claude-ai": Quirks(isolate=True),
    "Anthropic/ClaudeAI": Quirks(isolate=True),
}


def quirks_of(client: object, table: Mapping[str, Quirks]) -> Quirks:
    """Return the quirks of a client by the name in its clientInfo, exactly as it sends it."""
    name: Any = client.get("name") if isinstance(client, dict) else None
    return table.get(name, NONE) if isinstance(name, str) else NONE
