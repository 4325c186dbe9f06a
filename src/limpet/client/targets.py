"""The targets that a client accepts: a URL, a command, or a server in this process. Nothing is started here.

Any other target is refused at once, and the error names the valid forms. A string with a scheme other than http or
https is never run as a command.
"""

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from limpet.engine.engine import Engine
from limpet.errors import ConfigError
from limpet.transports.http import is_http_url


class HasEngine(Protocol):
    """A server in this process."""

    @property
    def engine(self) -> Engine:
        """The engine that answers."""


Target: TypeAlias = str | Path | Sequence[str] | Mapping[str, Any] | HasEngine
"""A URL; a command (a list of words, or one string); the path of a .py or .js file; an `mcpServers` dict with one
server; or a server object."""
FORMS: Final = (
    'a target is a URL ("https://example.com/mcp"), a command (["python", "server.py"], or one string), the path of a .py or '
    '.js file, {"mcpServers": {...}} with one server, or a limpet.Server'
)
INTERPRETERS: Final = {".py": sys.executable, ".js": "node", ".mjs": "node", ".cjs": "node"}
_SCHEME: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*)://")
_OTHERS: Final = ("fastmcp", "mcp")
"""Packages with their own server objects."""


class ParsedTarget(Struct, frozen=True, kw_only=True):
    """A parsed target: exactly one of the first three is set."""

    url: str = ""
    command: tuple[str, ...] = ()
    server: Any = None
    env: Mapping[str, str] = {}
    cwd: str | Path | None = None
    headers: Mapping[str, str] = {}

    def adding(
        self, env: Mapping[str, str], cwd: str | Path | None, headers: Mapping[str, str]
    ) -> "ParsedTarget":
        """Return the target with the additions of the author of the client; an equal name replaces the target's own."""
        return replace(
            self, env={**self.env, **env}, cwd=cwd or self.cwd, headers={**self.headers, **headers}
        )


def find(target: object, cwd: str | Path | None = None) -> ParsedTarget:
    """Parse a target.

    Raises:
        ConfigError: a client cannot connect to it; the message names the valid forms.
    """
    if isinstance(target, Mapping):
        return _configured(target)
    if isinstance(target, str | Path):
        return _text(target, cwd)
    if hasattr(type(target), "engine") or "engine" in getattr(target, "__dict__", ()):
        return ParsedTarget(server=target)
    if isinstance(target, Sequence) and target and all(isinstance(word, str | Path) for word in target):
        return ParsedTarget(command=tuple(map(str, target)))
    package = type(target).__module__.partition(".")[0]
    if package in _OTHERS:
        raise ConfigError(
            f"a {type(target).__name__} of {package} is not a target: pass limpet.Hosted(object), which runs it in this "
            'process; or put it into a file that calls its run(), and pass that file (Client("server.py"))'
        )
    raise ConfigError(f"{FORMS}; not {type(target).__name__}")


def _text(target: str | Path, cwd: str | Path | None) -> ParsedTarget:
    text = str(target).strip()
    schemed = _SCHEME.match(text)
    if schemed is not None:
        return ParsedTarget(url=_checked_url(text))
    place = Path(cwd or ".", text)
    try:
        words = [text] if isinstance(target, Path) or place.is_file() else shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"the command {text[:200]!r} cannot be read: {error}; {FORMS}") from None
    if not words:
        raise ConfigError(f"{FORMS}; not an empty string")
    interpreter = INTERPRETERS.get(Path(words[0]).suffix.lower()) if len(words) == 1 else None
    if interpreter is None:
        return ParsedTarget(command=tuple(words), cwd=cwd)
    if not place.is_file():
        raise ConfigError(f"there is no file {text[:200]!r} in {Path(cwd or '.').absolute()}")
    return ParsedTarget(command=(interpreter, text), cwd=cwd)


def _checked_url(text: str) -> str:
    if not is_http_url(text):
        raise ConfigError(f"{text[:200]!r} is not an http:// or https:// URL with a host; {FORMS}")
    return text


def _configured(target: Mapping[str, Any]) -> ParsedTarget:
    """Return the only server of an `mcpServers` configuration, as other clients have it in their files."""
    servers = target.get("mcpServers")
    if not isinstance(servers, Mapping) or not all(isinstance(one, Mapping) for one in servers.values()):
        raise ConfigError(f'a dict must be {{"mcpServers": {{"name": {{...}}}}}}; {FORMS}')
    if not servers:
        raise ConfigError(f"mcpServers names no server; {FORMS}")
    if len(servers) != 1:
        names = ", ".join(map(repr, servers))
        raise ConfigError(
            f"a client connects to one server, and mcpServers names {len(servers)} ({names}): make one client "
            'for each, Client({"mcpServers": {name: config["mcpServers"][name]}})'
        )
    [(name, entry)] = servers.items()
    kind = entry.get("type", entry.get("transport", ""))
    url, command = entry.get("url"), entry.get("command")
    if kind == "ws" or isinstance(url, str) == isinstance(command, str):
        raise ConfigError(
            f'server {name!r} must have either "url" and "headers", or "command", "args", "env" and "cwd"'
        )
    if isinstance(url, str):
        return ParsedTarget(url=_checked_url(url), headers=_texts(entry, "headers", name))
    arguments = entry.get("args", ())
    if isinstance(arguments, str) or not all(isinstance(word, str) for word in arguments):
        raise ConfigError(f'"args" of server {name!r} must be a list of strings')
    return ParsedTarget(
        command=(str(command), *arguments), env=_texts(entry, "env", name), cwd=entry.get("cwd")
    )


def _texts(entry: Mapping[str, Any], member: str, name: str) -> dict[str, str]:
    found = entry.get(member) or {}
    if not isinstance(found, Mapping) or not all(isinstance(value, str) for value in found.values()):
        raise ConfigError(f'"{member}" of server {name!r} must be an object whose values are strings')
    return dict(found)
