"""Functions around every request of a server: `@server.middleware`."""

from holdfast.server.authoring.middleware import CallNext, Middleware, MiddlewareRequest

__all__ = ["CallNext", "Middleware", "MiddlewareRequest"]
