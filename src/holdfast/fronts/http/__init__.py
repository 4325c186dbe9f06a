"""Streamable HTTP: a bare ASGI application."""

from holdfast.fronts.http.front import HttpFront

__all__ = ["HttpFront"]
