"""Holdfast: an MCP runtime for Python whose sessions survive cut connections and dying replicas.

This module has the names that most programs need. The others are in modules named for their use:

| module | contents |
|---|---|
| `holdfast.context` | the tools of a running function: context, session, state, controls of the server |
| `holdfast.options` | the options of `Server` and its decorators |
| `holdfast.content` | images, files, messages and results that functions return |
| `holdfast.asks` | questions to the client and their answers |
| `holdfast.middleware`, `holdfast.routes` | functions around requests, and HTTP routes beside the endpoint |
| `holdfast.resources` | resources without a function: a text, a file, a directory |
| `holdfast.client` | the client, its settings and its results |
| `holdfast.auth`, `.auth.verifiers`, `.auth.oauth` | principals and verifiers of a server; OAuth of a client |
| `holdfast.config` | every setting with its default |
| `holdfast.errors` | every exception |
| `holdfast.types` | every type of the protocol |
| `holdfast.testing` | tools for tests |
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

__version__ = "0.1.0"

if TYPE_CHECKING:
    from holdfast.auth import Principal
    from holdfast.client.client import Client
    from holdfast.config import Limits, Settings, Times
    from holdfast.errors import ConfigError, HoldfastError, McpError, ToolError
    from holdfast.protocol.types import ToolAnnotations
    from holdfast.server.app import Server
    from holdfast.server.authoring.caching import Cache
    from holdfast.server.context.asks import Want
    from holdfast.server.context.context import Context
    from holdfast.server.context.current import current_context
    from holdfast.server.context.session_view import SessionView
    from holdfast.server.functions.content import Audio, File, Image, Message, ToolResult
    from holdfast.server.functions.depends import Depends
    from holdfast.server.functions.input_required import InputRequired
    from holdfast.server.hosted import Hosted
    from holdfast.server.process import Process
    from holdfast.server.remote import Remote
    from holdfast.server.servers import Servers

__all__ = [
    "Audio",
    "Cache",
    "Client",
    "ConfigError",
    "Context",
    "Depends",
    "File",
    "HoldfastError",
    "Hosted",
    "Image",
    "InputRequired",
    "Limits",
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
    "errors": ("ConfigError", "HoldfastError", "McpError", "ToolError"),
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
_PLACES: Final = {name: f"holdfast.{module}" for module, names in _MODULES.items() for name in names}
"""The module of each name. It is imported when the name is first used: a client needs no server, and a server no
client."""


_FOREIGN: Final = {
    "FastMCP": "write `from holdfast import Server` and `server = Server(name)`, or serve the FastMCP object unchanged with "
    "`holdfast serve app.py:mcp`; docs/from-fastmcp.md has every name",
    "MCPServer": "write `from holdfast import Server`, or serve the object unchanged with `holdfast serve app.py:mcp`",
    "ClientSession": "write `from holdfast import Client`",
}
"""Names of FastMCP and `mcp`, and what to write instead."""


def __getattr__(name: str) -> Any:
    if name in _FOREIGN:
        # Not AttributeError: an import would replace its text.
        raise ImportError(f"holdfast has no {name}: {_FOREIGN[name]}", name="holdfast")
    if name not in _PLACES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_PLACES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
