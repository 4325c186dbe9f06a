"""What `holdfast serve` prints when it is ready: the address, and how to call it. It goes to stderr, as all logs do."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from holdfast.cli.stores import shown

if TYPE_CHECKING:
    from holdfast.server.served import Served


class Facts(Struct, frozen=True, kw_only=True):
    """What the banner shows of a server."""

    name: str
    version: str
    has: str
    url: str
    store: str = ""
    """The store, without secrets; empty for memory."""


class Report(Struct, frozen=True, kw_only=True):
    """What a process reports when it is ready."""

    servers: tuple[Facts, ...]
    patience: float
    """Seconds that stopping may take."""


def facts(server: "Served", *, url: str, name: str = "") -> Facts:
    """Return what the banner shows of a server. `name` is its name in a file."""
    store = server.store
    return Facts(
        name=name or server.name,
        version=server.version,
        has=server.summary,
        url=url,
        store="" if store is None else shown(store, server.namespace),
    )


def initialize_call(url: str) -> str:
    """Return a curl command that sends `initialize`, ready to paste."""
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "curl", "version": "0"},
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    return (
        f"curl -i {url} -H 'Content-Type: application/json' "
        f"-H 'Accept: application/json, text/event-stream' -d '{body}'"
    )


def client_config(servers: Iterable[Facts]) -> str:
    """Return the entries for the configuration file of most clients."""
    entries = {server.name: {"type": "http", "url": server.url} for server in servers}
    return json.dumps({"mcpServers": entries})


def show(known: Report, workers: int = 1) -> None:
    """Print the banner."""
    from rich.console import Console  # noqa: PLC0415 - only if something is printed
    from rich.markup import escape  # noqa: PLC0415

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    several = f", {workers} workers" if workers > 1 else ""
    for server in known.servers:
        version = f" {escape(server.version)}" if server.version else ""
        console.print(f"[bold]{escape(server.name)}[/bold]{version}: {escape(server.has or 'nothing yet')}")
        console.print(f"  serving   [bold cyan]{escape(server.url)}[/bold cyan]  (Ctrl+C stops){several}")
        if server.store:
            console.print(f"  store     {escape(server.store)}")
        if len(known.servers) == 1:
            console.print(f"  try       {escape(initialize_call(server.url))}")
    console.print(f"  clients   {escape(client_config(known.servers))}")
