# mypy: disable-error-code="import-not-found"
# `mcp` lives in .peers, never in our environment.
"""Serves the object of `mcp` 1 or 2 by its own HTTP server, without Holdfast: python bare.py mcp1|mcp2 PORT."""

import sys
from importlib import import_module

from mcp.server.transport_security import TransportSecuritySettings

framework, port = sys.argv[1], int(sys.argv[2])
mcp = import_module(f"tests.interop.hosted.{framework}_app").mcp
# The client of the test sends a Host header without the port.
security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
if framework == "mcp1":
    mcp.settings.port = port
    mcp.settings.transport_security = security
    mcp.run("streamable-http")
else:
    mcp.run("streamable-http", port=port, transport_security=security)
