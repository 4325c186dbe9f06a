"""HTTP routes beside the endpoint of a server: `@server.route(path)`."""

from holdfast.server.authoring.routes import HttpRequest, HttpResponse, RouteHandler

__all__ = ["HttpRequest", "HttpResponse", "RouteHandler"]
