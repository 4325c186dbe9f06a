"""The types, methods and revisions of MCP. Pure."""
