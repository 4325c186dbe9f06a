"""The answers of a connection itself, without the front: to requests that it refuses, and to one that failed."""

from typing import Final

from holdfast.engine.audit import Reason
from holdfast.fronts.http.head import RawHeaders
from holdfast.fronts.http.listener.channel import CLOSE
from holdfast.fronts.http.listener.framing import RefusedRequest
from holdfast.fronts.http.listener.heads import STATUS_LINES

_TEXT: Final = b"Internal Server Error"
FAILED: Final[tuple[int, RawHeaders, bytes]] = (
    500,
    [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(_TEXT))],
    _TEXT,
)
_LINES: Final = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
NO_MEMORY: Final = RefusedRequest(503, "Service unavailable: too much memory is in use; try again later")
FULL: Final = RefusedRequest(503, "Service unavailable: too many connections")
AUDITED: Final[dict[int, Reason]] = {503: "connections", 408: "slow", 431: "too_large"}
"""The reason of a refusal, by its status; of all others: malformed."""


def written(refusal: RefusedRequest, common: bytes) -> bytes:
    """Return the bytes of a refusal, after which the connection ends; `common` are the header lines of every answer."""
    reason = refusal.reason.encode()
    return STATUS_LINES[refusal.status] + _LINES % len(reason) + common + CLOSE + reason
