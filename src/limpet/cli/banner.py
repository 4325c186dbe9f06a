"""The output of `limpet serve` when it is ready: the address, and how to call it.

It goes to stderr, as all logs do.
"""

import contextlib
import json
import shlex
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from limpet.cli.stores import shown
from limpet.fronts.http.http1.sockets import UNIX
from limpet.ops.log_lines import is_coloured

if TYPE_CHECKING:
    from limpet.server.served import Served


Lines = Iterable[tuple[str, str]]
"""Labels and values."""
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - recognised, not bound
"""Addresses of all interfaces, and the address of this machine for each."""
ANY_CALL: Final = "TOOL key=value…"
EMPTY: Final = "it has no tools, resources and prompts: is the module imported that registers them?"
_COLOURS: Final = ("\033[1m", "\033[1;36m", "\033[0m")
"""Bold, bold and blue, and as before."""


class ServerFacts(Struct, frozen=True, kw_only=True):
    """The facts of a server for the banner."""

    name: str
    version: str
    has: str
    url: str
    """Where the process listens."""
    public: str = ""
    """The URL as clients know it, if that is another one."""
    needs_token: bool = False
    has_sign_in: bool = False
    """True if an authorization server gives the tokens."""
    call: str = ANY_CALL
    """A call to try: a tool and its required arguments."""
    store: str = ""
    """The store, without secrets; empty for memory."""
    behind: tuple[str, ...] = ()
    """Whether each server behind answers; empty if there is none, or if they were not tried."""
    is_empty: bool = False
    """True if it is certain that it has no component."""


class ReadyReport(Struct, frozen=True, kw_only=True):
    """The report of a process that is ready."""

    servers: tuple[ServerFacts, ...]
    patience: float
    """Seconds that stopping may take."""


def facts(server: "Served", *, url: str, public: str = "") -> ServerFacts:
    """Return the facts of a server for the banner."""
    store = server.store
    return ServerFacts(
        name=server.label or server.name,
        version=server.version,
        has=server.summary,
        url=url,
        public=public,
        needs_token=server.verifier is not None,
        has_sign_in=bool(getattr(server.verifier, "authorization_servers", ())),
        call=_first_call(server) or ANY_CALL,
        store="" if store is None else shown(store, server.namespace),
        is_empty=not server.summary,
    )


def _first_call(server: "Served") -> str:
    """Return the words of a call of the server's first tool; empty if it has none that is known here."""
    tools = getattr(server, "tools", None)
    first = next(iter(tools.enabled.values()), None) if tools is not None else None
    if first is None:
        return ""
    needed = first.listed.input_schema.get("required", ())
    return " ".join((first.listed.name, *(f"{name}=…" for name in needed)))


def commands(server: ServerFacts) -> tuple[str, ...]:
    """Return commands to try the server with. `limpet` does not call a Unix socket: curl does."""
    if server.url.startswith(UNIX):
        return (initialize_call(server.url, needs_token=server.needs_token),)
    url, token = callable_url(server.url), " --token-env TOKEN" if server.needs_token else ""
    token = " --oauth" if server.has_sign_in else token
    return f"limpet inspect {url}{token}", f"limpet call {url} {server.call}{token}"


def callable_url(url: str, host: str = "") -> str:
    """Return a URL that clients can call: an address of all interfaces becomes a host, or the one of this machine."""
    for everywhere, here in _EVERYWHERE.items():
        if f"://{everywhere}:" in url:
            return url.replace(everywhere, host or here, 1)
    return url


def initialize_call(url: str, *, needs_token: bool = False) -> str:
    """Return a curl command that sends `initialize`, ready to paste. It takes a token from the variable TOKEN."""
    place = callable_url(url)
    if place.startswith(UNIX):
        file, _, path = place.removeprefix(UNIX).rpartition(":")
        place = f"--unix-socket {shlex.quote(file)} http://localhost{path}"
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "curl", "version": "0"},
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    token = '-H "Authorization: Bearer $TOKEN" ' if needs_token else ""
    return (
        f"curl -i {place} {token}-H 'Content-Type: application/json' "
        f"-H 'Accept: application/json, text/event-stream' -d '{body}'"
    )


def client_config(servers: Iterable[ServerFacts]) -> str:
    """Return the entries for the configuration file of most clients."""
    entries = {
        server.name: {"type": "http", "url": server.public or callable_url(server.url)} for server in servers
    }
    return json.dumps({"mcpServers": entries})


def show(known: ReadyReport, workers: int = 1, more: Lines = ()) -> None:
    """Print the banner, with more lines at its end."""
    bold, blue, plain = _COLOURS if is_coloured(sys.stderr) else ("", "", "")
    several = f", {workers} workers" if workers > 1 else ""
    lines = []
    for server in known.servers:
        version = f" {server.version}" if server.version else ""
        lines.append(f"{bold}{server.name}{plain}{version}: {server.has or 'nothing yet'}")
        if server.is_empty:
            lines.append(f"  warning   {EMPTY}")
        lines.append(f"  serving   {blue}{server.url}{plain}  (Ctrl+C stops){several}")
        if server.public:
            lines.append(f"  public    {server.public}")
        lines += [f"  behind    {one}".replace("\n", "\n" + " " * 12) for one in server.behind]
        if server.store:
            lines.append(f"  store     {server.store}")
        if len(known.servers) == 1:
            lines += [f"  try       {command}" for command in commands(server)]
    if not known.servers[0].url.startswith(UNIX):
        lines.append(f"  clients   {client_config(known.servers)}")
    # In one write: a program that waits for the address finds the other lines too.
    _print("\n".join([*lines, *map(_labelled, more)]))


def show_lines(lines: Lines) -> None:
    """Print labels and values as the banner does."""
    for line in lines:
        _print(_labelled(line))


def say(text: str) -> None:
    """Print one line that begins with the name of the program."""
    _print(f"limpet: {text}")


def _labelled(line: tuple[str, str]) -> str:
    label, value = line
    return f"  {label:<9} {value}"


def _print(text: str) -> None:
    # A server serves also if its log cannot be written, on a full disk.
    with contextlib.suppress(OSError):
        # In one write: `print` writes the end of the line separately.
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
