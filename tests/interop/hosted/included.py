# mypy: disable-error-code="import-not-found"
"""A server of ours that includes objects of `mcp` 2 and fastmcp 4, and objects without components."""

from fastmcp import FastMCP
from mcp.server.lowlevel import Server as LowLevelServer

from limpet import Hosted, Server
from tests.interop.hosted import fastmcp_app, mcp2_app

empty = FastMCP("empty")
low = LowLevelServer("low")
nothing = Server("nothing")
server = Server("whole")
server.include(Hosted(fastmcp_app.mcp), "fast")
server.include(Hosted(mcp2_app.mcp), "two")
