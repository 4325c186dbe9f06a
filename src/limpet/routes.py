"""HTTP routes beside the endpoint of a server: `@server.route(path)`."""

from limpet.server.authoring.routes import HttpRequest, HttpResponse, RouteHandler

__all__ = ["HttpRequest", "HttpResponse", "RouteHandler"]
