"""Where the body of a request ends, and which requests are refused before anything runs.

The parser (llhttp, in its strict mode) refuses most requests that two servers could read differently: bare line ends,
folded headers, a space before a colon, two lengths, a length together with a coding. It accepts some that are refused
here. `tests/http/smuggling.py` lists both with the expected answers.
"""

from typing import Final

from msgspec import Struct

from limpet.core.remembered import remembered
from limpet.fronts.http.read.paths import path_of

LENGTH: Final = b"content-length"
CODING: Final = b"transfer-encoding"
EXPECT: Final = b"expect"
_HOST: Final = b"host"
NOTABLE: Final = frozenset({LENGTH, CODING, EXPECT, _HOST})
"""The headers that the server itself reads."""

CHUNKED: Final = -1
"""The length of a body in chunks: it is not known."""
_VERSIONS: Final = frozenset({"1.1", "1.0"})
_SLASH: Final = ord("/")
_HASH: Final = ord("#")
_LONGEST_TARGET: Final = 65_535


class Parsed(Struct, frozen=True):
    """The parts of a request's head that only its connection needs."""

    target: bytes
    """Path and query, as they were sent."""
    version: str
    is_last: bool
    """The client sends no other request on this connection."""
    is_bodiless: bool
    """The response has no body."""


class RefusedRequest(Exception):
    """Raised inside the parser to stop it: the request is answered with this status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def check_start(method: bytes, target: bytes, version: str) -> None:
    """Check the first line of a request.

    Raises:
        Refused: this server does not serve such a request.
    """
    if version not in _VERSIONS:
        raise RefusedRequest(505, "HTTP version not supported: use HTTP/1.1")
    if method == b"CONNECT":
        raise RefusedRequest(400, "Bad request: this is no proxy")
    if target[0] != _SLASH or _HASH in target or len(target) > _LONGEST_TARGET:
        raise RefusedRequest(400, "Bad request: the target must be a path")


def check_host(fields: list[tuple[bytes, bytes]], version: str) -> None:
    """Check that a request names one host. HTTP/1.0 need not (RFC 9112, 3.2).

    Raises:
        Refused: it names none, or several.
    """
    hosts = [value for name, value in fields if name == _HOST]
    if len(hosts) != 1 and (hosts or version != "1.0"):
        raise RefusedRequest(400, "Bad request: send one Host header")


def length_of(fields: list[tuple[bytes, bytes]], version: str) -> int:
    """Return the length of the body by the notable headers, or `CHUNKED`.

    Raises:
        Refused: the body has a coding that this server does not support, or no clear end.
    """
    codings = [value for name, value in fields if name == CODING]
    lengths = [value for name, value in fields if name == LENGTH]
    if not codings:
        return int(lengths[0]) if lengths else 0
    coding = b",".join(codings).strip().lower()
    if version == "1.0":
        raise RefusedRequest(400, "Bad request: HTTP/1.0 has no Transfer-Encoding")
    if coding != b"chunked":
        # Known codings before the last one have their own status (RFC 9112, 6.1); anything else is an error.
        parts = [part.strip() for part in coding.split(b",")]
        known = parts[-1] == b"chunked" and b"chunked" not in parts[:-1] and all(map(bytes.isalnum, parts))
        raise RefusedRequest(501 if known else 400, "Bad request: Transfer-Encoding must be chunked")
    return CHUNKED


@remembered(256, longest=256)
def split(target: bytes) -> tuple[str, bytes, bytes]:
    """Return the path, the path as it was sent, and the query of a target."""
    path, _, query = target.partition(b"?")
    return path_of(path), path, query
