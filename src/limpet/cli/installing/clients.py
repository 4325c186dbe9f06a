"""The client programs, as a table: where each keeps its servers, and the form of an entry."""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from limpet.errors import ConfigError

Entry = dict[str, Any]


class Wanted(Struct, frozen=True, kw_only=True):
    """The server to install: a URL, or the words of a program that speaks MCP on its standard input and output."""

    url: str = ""
    words: tuple[str, ...]
    """For a URL: Limpet in front of it, for clients that start programs only."""
    env: Mapping[str, str]


class ClientProgram(Struct, frozen=True, kw_only=True):
    """A client program and its file."""

    title: str
    place: Callable[[], Path]
    """The file; in the home directory of the user, or in the working directory."""
    member: tuple[str, ...] = ("mcpServers",)
    """The member of the file that has the servers by name."""
    entry: Callable[[Wanted], Entry]
    restart: str = "Restart the program to see the server."
    """The next step of the user."""


def _program(wanted: Wanted, **further: Any) -> Entry:
    command, *arguments = wanted.words
    entry: Entry = {**further, "command": command, "args": arguments}
    return {**entry, "env": dict(wanted.env)} if wanted.env else entry


def _typed(wanted: Wanted) -> Entry:
    return {"type": "http", "url": wanted.url} if wanted.url else _program(wanted, type="stdio")


def _named(member: str) -> Callable[[Wanted], Entry]:
    return lambda wanted: {member: wanted.url} if wanted.url else _program(wanted)


def _home(*parts: str) -> Callable[[], Path]:
    return lambda: Path.home().joinpath(*parts)


def _desktop() -> Path:
    file = Path("Claude", "claude_desktop_config.json")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / file
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA", Path.home() / "AppData" / "Roaming")) / file
    return Path(os.environ.get("XDG_CONFIG_HOME", Path.home() / ".config")) / file


CLIENTS: Final = {
    "claude-desktop": ClientProgram(title="Claude Desktop", place=_desktop, entry=_program),
    "claude-code": ClientProgram(
        title="Claude Code (this project)",
        place=lambda: Path.cwd() / ".mcp.json",
        entry=_typed,
        restart="Start `claude` in this directory and allow the server.",
    ),
    "cursor": ClientProgram(title="Cursor", place=_home(".cursor", "mcp.json"), entry=_named("url")),
    "vscode": ClientProgram(
        title="VS Code (this project)",
        place=lambda: Path.cwd() / ".vscode" / "mcp.json",
        member=("servers",),
        entry=_typed,
        restart="Open this file in VS Code and start the server.",
    ),
    "codex": ClientProgram(
        title="Codex CLI",
        place=lambda: Path(os.environ.get("CODEX_HOME", Path.home() / ".codex")) / "config.toml",
        member=("mcp_servers",),
        entry=_named("url"),
    ),
    "gemini": ClientProgram(
        title="Gemini CLI", place=_home(".gemini", "settings.json"), entry=_named("httpUrl")
    ),
}
"""By the name on the command line."""


def client_program(name: str) -> ClientProgram:
    """Return the client program of a name.

    Raises:
        ConfigError: there is no such client program.
    """
    if name not in CLIENTS:
        raise ConfigError(f"--client is one of {', '.join(CLIENTS)}, not {name!r}")
    return CLIENTS[name]
