"""Middleware: functions, and objects with a hook for each method, around every request: `@server.middleware`."""

from limpet.server.authoring.middleware import CallNext, Hooks, Middleware, MiddlewareRequest
from limpet.server.authoring.stock_middleware import RequestLog, ResponseLimit

__all__ = ["CallNext", "Hooks", "Middleware", "MiddlewareRequest", "RequestLog", "ResponseLimit"]
