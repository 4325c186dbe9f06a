"""Requests of 2026-07-28 as bytes, from clients that are nobody's."""

import json
from http.client import HTTPConnection, HTTPResponse
from typing import Any, Final

VERSION: Final = "2026-07-28"


def post(port: int, method: str, params: dict[str, Any], client: str = "raw") -> HTTPResponse:
    """Send a request on a connection of its own, with the id 1; return the response as it begins."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": client, "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": method,
        "Mcp-Name": params.get("name", ""),
        # The response then owns the connection, and closes it.
        "Connection": "close",
    }
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    connection.request("POST", "/mcp", json.dumps(body), headers)
    return connection.getresponse()
