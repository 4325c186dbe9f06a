"""Bytes moved, nothing decided."""
