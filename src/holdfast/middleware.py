"""Middleware: functions, and objects with a hook for each method, around every request: `@server.middleware`."""

from holdfast.server.authoring.middleware import CallNext, Hooks, Middleware, MiddlewareRequest
from holdfast.server.authoring.stock_middleware import RequestLog, ResponseLimit

__all__ = ["CallNext", "Hooks", "Middleware", "MiddlewareRequest", "RequestLog", "ResponseLimit"]
