"""How long clients wait for the answer to a call. `hand_over="auto"` uses this table. Pure.

A client that stops waiting drops the answer. Each row has its source; docs/how-to/slow-calls.md has the same table for people.
"""

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

from holdfast.errors import ConfigError
from holdfast.protocol.quirks import name_of

HandOverTime = float | Literal["auto", "off"]
"""Seconds until a call is handed over; `auto`: by the client's name; `off`: never."""


class Patience(Struct, frozen=True):
    """How long one client waits."""

    seconds: float
    source: str


KNOWN_PATIENCE: Final[Mapping[str, Patience]] = {
    "claude-ai": Patience(60.0, "anthropics/claude-ai-mcp#115"),
    "Anthropic/ClaudeAI": Patience(60.0, "anthropics/claude-ai-mcp#115"),
    "claude-code": Patience(120.0, "anthropics/claude-code#91898"),
}
"""By the name in the client's `clientInfo`."""
UNKNOWN_PATIENCE: Final = 60.0
"""The default of the official TypeScript SDK (`DEFAULT_REQUEST_TIMEOUT_MSEC`), on which most clients are built, and of many
gateways and balancers."""
MARGIN: Final = 0.75
"""The part of a client's patience after which a call is handed over: the answer has to arrive, and clocks differ."""


def hand_over_after(client: object) -> float:
    """Return the seconds after which a call of a client is handed over, by the name in its clientInfo."""
    known = KNOWN_PATIENCE.get(name_of(client))
    return MARGIN * (UNKNOWN_PATIENCE if known is None else known.seconds)


def check_time(name: str, time: object) -> None:
    """Refuse an invalid time of a hand-over.

    Raises:
        ConfigError: it names the setting.
    """
    is_number = isinstance(time, int | float) and not isinstance(time, bool) and 0 < time < float("inf")
    if time not in ("auto", "off") and not is_number:
        raise ConfigError(f"{name}={time!r}: write a number of seconds above 0, auto, or off")
