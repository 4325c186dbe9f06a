"""`limpet check`: probes any MCP server over HTTP, ours or another, and reports a verdict for each probe."""
