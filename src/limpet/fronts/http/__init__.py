"""Streamable HTTP.

front        one request, step by step: head, token, body, era, answer
read/        the head, the body within its limits, the path, the client's address
decide/      Host and Origin, the token, rates, health; POSTs with and without a session, batches, streams of a session
write/       whole answers and refusals; the response that waits, becomes a stream, and gets keep-alive comments
http1/       the HTTP/1.1 server of `limpet serve`: sockets, TLS, connections, drain
asgi_host/   the same front as an application of another ASGI server
router       several fronts at one server, by the path
serve        `limpet serve --http` without the command line
"""

from limpet.fronts.http.front import HttpFront

__all__ = ["HttpFront"]
