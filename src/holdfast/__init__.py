"""Holdfast: an MCP runtime for Python whose sessions hold."""

__version__ = "0.1.0"
