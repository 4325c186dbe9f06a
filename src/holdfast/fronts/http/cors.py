"""The headers with which a browser lets a page of an allowed origin call this endpoint."""

from typing import Final

from holdfast.fronts.http.answer import Answer

_REQUEST_HEADERS: Final = b"authorization, content-type, accept, mcp-session-id, mcp-protocol-version, last-event-id, mcp-method, mcp-name"
_DAY: Final = b"86400"


def cors_headers(origin: str) -> list[tuple[bytes, bytes]]:
    """Return the headers that let a page of this origin read the answer. The origin was checked before."""
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (
            b"access-control-expose-headers",
            b"mcp-session-id, mcp-protocol-version, retry-after, www-authenticate, holdfast-refused",
        ),
        (b"vary", b"origin"),
    ]


def preflight(methods: str) -> Answer:
    """Return the answer to a preflight request, without the headers that every answer gets."""
    return Answer(
        204,
        [
            (b"access-control-allow-methods", methods.encode()),
            (b"access-control-allow-headers", _REQUEST_HEADERS),
            (b"access-control-max-age", _DAY),
        ],
    )
