"""`mcp.json`: the servers of a client's configuration file, each at /NAME/mcp.

Claude Desktop, Claude Code, Cursor and VS Code write such files; the first three have the servers under `mcpServers`,
VS Code under `servers`. The files belong to those clients, so keys of theirs that mean nothing to us are ignored, and
secrets in `env` and `headers` are accepted. A server that cannot work as in its client is refused, with its name.
"""

import json
import logging
import re
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from limpet.cli.behind import ServerSource
from limpet.cli.config.file_values import decoded
from limpet.cli.config.plan import Endpoint, Plan, chosen, path_of
from limpet.cli.config.variables import expanded
from limpet.cli.options import Options
from limpet.errors import ConfigError
from limpet.server.running.namespaces import namespace_of

LOGGER: Final = logging.getLogger("limpet.config")

_TABLES: Final = ("mcpServers", "servers")
_EDITORS: Final = (".vscode", ".cursor")
"""Directories in which an editor keeps the file of the project around it."""
_OTHER: Final = re.compile(r"[^A-Za-z0-9._-]+")
_STDIO: Final = "stdio"
_HTTP: Final = frozenset({"http", "streamable-http", "streamableHttp", "streamable_http", "sse"})
_REFUSED: Final = {
    "envFile": "write the variables into env",
}
"""Keys without which a server does not work as it does in its client, and what to do instead."""


class McpJsonServer(Struct, frozen=True, kw_only=True):
    """One server, as clients write it."""

    command: str | None = None
    args: tuple[str, ...] | None = None
    env: dict[str, str] | None = None
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] | None = None
    type: str | None = None
    transport: str | None = None
    """Another name of `type`."""
    disabled: bool | None = None
    enabled: bool | None = None


def read_mcp_json(file: Path, only: tuple[str, ...] = ()) -> Plan:
    """Read the servers of a client's file, or only those of some names.

    Raises:
        ConfigError: it cannot be read, has no server, or has one that cannot be served; the text names it.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8-sig"), object_pairs_hook=_without_repeats)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None
    table = (
        next((content[key] for key in _TABLES if key in content), None) if isinstance(content, dict) else None
    )
    if not isinstance(table, dict):
        raise ConfigError(f'{file} names no server: it needs {{"mcpServers": {{"NAME": {{…}}}}}}')
    found = (_endpoint(name, table[name], file) for name in chosen(table, only))
    endpoints = tuple(endpoint for endpoint in found if endpoint is not None)
    if not endpoints:
        raise ConfigError(f"{file} names no server that is enabled")
    return Plan(endpoints=endpoints)


def _endpoint(name: str, given: Any, file: Path) -> Endpoint | None:
    where = f"{file}: {name}:"
    if not isinstance(given, dict):
        raise ConfigError(f"{where} must be an object with command or url")
    folder = file.resolve().parent
    project = folder.parent if folder.name in _EDITORS else folder
    entry = _read(given, where, project)
    if entry is None:
        return None
    path = path_of(_OTHER.sub("-", name).strip("-"), None, where)
    source, options = _what(entry, where, project)
    return Endpoint(
        name=name,
        where=where,
        source=source,
        options=replace(options, path=path, namespace=namespace_of(name)),
    )


def _read(given: dict[str, Any], where: str, project: Path) -> McpJsonServer | None:
    """Return the entry with its variables replaced; None if it is disabled."""
    if given.get("disabled") is True or given.get("enabled") is False:
        return None
    for key, instead in _REFUSED.items():
        if key in given:
            raise ConfigError(f"{where} {key} is not supported: {instead}")
    ours = {
        key: value
        for key, value in given.items()
        if key in McpJsonServer.__struct_fields__ and value is not None
    }
    if ignored := sorted(given.keys() - McpJsonServer.__struct_fields__):
        LOGGER.warning("%s ignored: %s", where, ", ".join(ignored))
    known = {"workspaceFolder": str(project), "userHome": str(Path.home())}
    return decoded(McpJsonServer, expanded(ours, where, known), where)


def _what(entry: McpJsonServer, where: str, project: Path) -> tuple[ServerSource, Options]:
    kind = entry.type or entry.transport or (_STDIO if entry.command else "http")
    if kind != _STDIO and kind not in _HTTP:
        raise ConfigError(f"{where} type must be stdio or http")
    if kind == _STDIO:
        if not entry.command or entry.url:
            raise ConfigError(f"{where} a server of type stdio needs a command, and no url")
        command = (entry.command, *(entry.args or ()))
        return ServerSource(command=command, directory=str(project)), Options(
            env=entry.env, cwd=str(project / entry.cwd) if entry.cwd else None
        )
    if not entry.url or entry.command:
        raise ConfigError(f"{where} needs a command, or a url with type http, and not both")
    return ServerSource(url=entry.url, directory=str(project)), Options(headers=entry.headers)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it has {next(name for name in names if names.count(name) > 1)!r} twice")
    return found
