"""What `holdfast serve` prints when it is ready: the address, and how to call it. It goes to stderr, as all logs do."""

import json
from typing import TYPE_CHECKING

from msgspec import Struct

from holdfast.cli.stores import shown

if TYPE_CHECKING:
    from holdfast.server.served import Served


class Facts(Struct, frozen=True):
    """What the banner shows of a server."""

    name: str
    version: str
    has: str
    url: str
    store: str = ""
    """The store, without secrets; empty for memory."""
    patience: float = 0.0
    """Seconds that stopping may take."""


def facts(server: "Served", url: str) -> Facts:
    """Return what the banner shows of a server."""
    store = server.store
    times = server.settings.times
    return Facts(
        name=server.name,
        version=server.version,
        has=server.summary,
        url=url,
        store="" if store is None else shown(store, server.namespace),
        patience=times.drain_notice + times.drain,
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


def client_config(name: str, url: str) -> str:
    """Return the entry for the configuration file of most clients."""
    return json.dumps({"mcpServers": {name: {"type": "http", "url": url}}})


def show(known: Facts, workers: int = 1) -> None:
    """Print the banner."""
    from rich.console import Console  # noqa: PLC0415 - only if something is printed
    from rich.markup import escape  # noqa: PLC0415

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    has = known.has or "nothing yet"
    several = f", {workers} workers" if workers > 1 else ""
    version = f" {escape(known.version)}" if known.version else ""
    console.print(f"[bold]{escape(known.name)}[/bold]{version}: {escape(has)}")
    console.print(f"  serving   [bold cyan]{escape(known.url)}[/bold cyan]  (Ctrl+C stops){several}")
    if known.store:
        console.print(f"  store     {escape(known.store)}")
    console.print(f"  try       {escape(initialize_call(known.url))}")
    console.print(f"  clients   {escape(client_config(known.name, known.url))}")
