"""What `holdfast serve` says when it is ready: where, and how to call it. On stderr, like all that is not protocol."""

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.server.app import Server


def initialize_call(url: str) -> str:
    """Return a command that says hello, ready to paste."""
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
    """Return what most clients take in their configuration file."""
    return json.dumps({"mcpServers": {name: {"type": "http", "url": url}}})


def offered(server: "Server") -> str:
    """Return what a server has, counted."""
    counts = {
        "tool": len(server.tools),
        "resource": len(server.resources),
        "template": len(server.templates),
        "prompt": len(server.prompts),
    }
    return ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items() if count)


def show(server: "Server", url: str) -> None:
    """Print the banner."""
    from rich.console import Console  # noqa: PLC0415 - only where something is printed
    from rich.markup import escape  # noqa: PLC0415

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    has = offered(server) or "nothing yet"
    console.print(f"[bold]{escape(server.name)}[/bold] {escape(server.info.version)}: {has}")
    console.print(f"  serving   [bold cyan]{escape(url)}[/bold cyan]  (Ctrl+C stops)")
    console.print(f"  try       {escape(initialize_call(url))}")
    console.print(f"  clients   {escape(client_config(server.name, url))}")
