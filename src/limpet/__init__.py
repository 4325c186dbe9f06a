"""Limpet: an MCP runtime for Python whose sessions survive cut connections and dying replicas.

This module has the names that most programs need. The others are in modules named for their use:

| module | contents |
|---|---|
| `limpet.context` | the tools of a running function: context, session, state, controls of the server |
| `limpet.options` | the options of `Server` and its decorators |
| `limpet.content` | images, files, messages and results that functions return |
| `limpet.asks` | questions to the client and their answers |
| `limpet.middleware`, `limpet.routes` | functions around requests, and HTTP routes beside the endpoint |
| `limpet.resources` | resources without a function: a text, a file, a directory |
| `limpet.client` | the client, its settings and its results |
| `limpet.auth`, `.auth.verifiers`, `.auth.oauth` | principals and verifiers of a server; OAuth of a client |
| `limpet.config` | every setting with its default |
| `limpet.errors` | every exception |
| `limpet.types` | every type of the protocol |
| `limpet.testing` | tools for tests |
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

__version__ = "0.1.0"

if TYPE_CHECKING:
    from limpet.auth import Principal
    from limpet.client.client import Client
    from limpet.config import Limits, Settings, Times
    from limpet.errors import ConfigError, LimpetError, McpError, ToolError
    from limpet.protocol.types import ToolAnnotations
    from limpet.server.app import Server
    from limpet.server.authoring.caching import Cache
    from limpet.server.context.asks import Want
    from limpet.server.context.context import Context
    from limpet.server.context.current import current_context
    from limpet.server.context.session_view import SessionView
    from limpet.server.functions.content import Audio, File, Image, Message, ToolResult
    from limpet.server.functions.depends import Depends
    from limpet.server.functions.input_required import InputRequired
    from limpet.server.hosted import Hosted
    from limpet.server.process import Process
    from limpet.server.remote import Remote
    from limpet.server.servers import Servers

__all__ = [
    "Audio",
    "Cache",
    "Client",
    "ConfigError",
    "Context",
    "Depends",
    "File",
    "Hosted",
    "Image",
    "InputRequired",
    "Limits",
    "LimpetError",
    "McpError",
    "Message",
    "Principal",
    "Process",
    "Remote",
    "Server",
    "Servers",
    "SessionView",
    "Settings",
    "Times",
    "ToolAnnotations",
    "ToolError",
    "ToolResult",
    "Want",
    "__version__",
    "current_context",
]


_MODULES: Final = {
    "auth": ("Principal",),
    "client.client": ("Client",),
    "config": ("Limits", "Settings", "Times"),
    "errors": ("ConfigError", "LimpetError", "McpError", "ToolError"),
    "protocol.types": ("ToolAnnotations",),
    "server.app": ("Server",),
    "server.authoring.caching": ("Cache",),
    "server.context.asks": ("Want",),
    "server.context.context": ("Context",),
    "server.context.current": ("current_context",),
    "server.context.session_view": ("SessionView",),
    "server.functions.content": ("Audio", "File", "Image", "Message", "ToolResult"),
    "server.functions.depends": ("Depends",),
    "server.functions.input_required": ("InputRequired",),
    "server.hosted": ("Hosted",),
    "server.process": ("Process",),
    "server.remote": ("Remote",),
    "server.servers": ("Servers",),
}
_PLACES: Final = {name: f"limpet.{module}" for module, names in _MODULES.items() for name in names}
"""The module of each name. It is imported when the name is first used: a client needs no server, and a server no
client."""


_FOREIGN: Final = {
    "FastMCP": "write `from limpet import Server` and `server = Server(name)`, or serve the FastMCP object unchanged with "
    "`limpet serve app.py:mcp`; docs/from-fastmcp.md has every name",
    "MCPServer": "write `from limpet import Server`, or serve the object unchanged with `limpet serve app.py:mcp`",
    "ClientSession": "write `from limpet import Client`",
}
"""Names of FastMCP and `mcp`, and what to write instead."""


def __getattr__(name: str) -> Any:
    if name in _FOREIGN:
        # Not AttributeError: an import would replace its text.
        raise ImportError(f"limpet has no {name}: {_FOREIGN[name]}", name="limpet")
    if name not in _PLACES:
        raise AttributeError(f"module 'limpet' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_PLACES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
