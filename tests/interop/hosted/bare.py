# mypy: disable-error-code="import-not-found"
# The frameworks live in .peers, never in our environment.
"""Serves an object by its own framework, without Limpet: python bare.py mcp1|mcp2|fastmcp [PORT]; without a port, on stdio.

`mcp1 PORT sse` serves the transport HTTP+SSE of 2024-11-05.
"""

import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

framework, *ports = sys.argv[1:]
mcp = import_module(f"tests.interop.hosted.{framework}_app").mcp


def serve_http(port: int) -> None:
    """Serve over HTTP. The client of the test sends a Host header without the port."""
    if framework == "fastmcp":
        mcp.run("http", port=port, host_origin_protection=False, show_banner=False, log_level="error")
        return
    settings = import_module("mcp.server.transport_security").TransportSecuritySettings
    security = settings(enable_dns_rebinding_protection=False)
    if framework == "mcp1":
        mcp.settings.port = port
        mcp.settings.transport_security = security
        mcp.run("sse" if "sse" in ports else "streamable-http")
    else:
        mcp.run("streamable-http", port=port, transport_security=security)


if ports:
    serve_http(int(ports[0]))
else:
    mcp.run("stdio", **({"show_banner": False, "log_level": "error"} if framework == "fastmcp" else {}))
