"""The MCP vocabulary: types, one table of methods, revisions. Pure."""
