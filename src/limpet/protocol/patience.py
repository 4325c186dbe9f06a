"""How long clients wait for the answer to a call. `hand_over="auto"` uses this table. Pure.

A client that stops waiting drops the answer. Each row has its source; docs/how-to/slow-calls.md has the same table for
people.
"""

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

from limpet.errors import ConfigError
from limpet.protocol.quirks import name_of

HandOverTime = float | Literal["auto", "off"]
"""Seconds until a call is handed over; `auto`: by the client's name; `off`: never."""


class Patience(Struct, frozen=True):
    """How long one client waits."""

    seconds: float
    source: str


_CLAUDE: Final = Patience(60.0, "anthropics/claude-ai-mcp#115")
_CODE: Final = Patience(300.0, "microsoft/vscode#261734")
_GOOSE: Final = Patience(300.0, "block/goose crates/goose/src/config/extensions.rs")
KNOWN_PATIENCE: Final[Mapping[str, Patience]] = {
    # Claude Desktop has this name too. It waits 240 s (anthropics/claude-code#65643), some releases 60 s (#22542).
    "claude-ai": _CLAUDE,
    "Anthropic/ClaudeAI": _CLAUDE,
    # It moves the call to the background, and its model may never read the result.
    "claude-code": Patience(120.0, "anthropics/claude-code#78566"),
    "Cline": Patience(60.0, "cline/cline src/shared/mcp.ts"),
    # Later releases wait 300 s (codex-rs/codex-mcp/src/rmcp_client.rs).
    "codex-mcp-client": Patience(60.0, "openai/codex codex-rs/core/src/mcp_connection_manager.rs"),
    "gemini-cli-mcp-client": Patience(
        600.0, "google-gemini/gemini-cli packages/core/src/tools/mcp-client.ts"
    ),
    "github-copilot-developer": Patience(60.0, "github/copilot-cli#1535"),
    "goose": _GOOSE,
    "goose-desktop": _GOOSE,
    "Visual Studio Code": _CODE,
    "Visual Studio Code - Insiders": _CODE,
    "Zed": Patience(60.0, "zed-industries/zed#32668"),
}
"""By the name in the client's `clientInfo`. If releases of a client differ, the shortest time that we know of."""
_VIA: Final = " (via "
"""mcp-remote adds its own name to that of the client: `claude-ai (via mcp-remote 0.1.37)`."""
UNKNOWN_PATIENCE: Final = 60.0
"""The default of the official TypeScript SDK (`DEFAULT_REQUEST_TIMEOUT_MSEC`), on which most clients are built, and
of many gateways and balancers."""
MARGIN: Final = 0.75
"""The part of a client's patience after which a call is handed over: the answer has to arrive, and clocks differ."""


def hand_over_after(client: object) -> float:
    """Return the seconds after which a call of a client is handed over, by the name in its clientInfo."""
    known = KNOWN_PATIENCE.get(name_of(client).partition(_VIA)[0])
    return MARGIN * (UNKNOWN_PATIENCE if known is None else known.seconds)


def check_time(name: str, time: object) -> None:
    """Refuse an invalid time of a hand-over.

    Raises:
        ConfigError: it names the setting.
    """
    is_number = isinstance(time, int | float) and not isinstance(time, bool) and 0 < time < float("inf")
    if time not in ("auto", "off") and not is_number:
        raise ConfigError(f"{name}={time!r}: write a number of seconds above 0, auto, or off")
