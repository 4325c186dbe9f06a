"""Whole HTTP answers, decided before they are sent; and one table of refusals."""

from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType
from msgspec.json import Decoder

from limpet.config import ResponseMode
from limpet.engine.audit import Reason, reason_of
from limpet.errors import (
    BUSY,
    INVALID_REQUEST,
    NOT_EXECUTED,
    Busy,
    DuplicateId,
    InsufficientScope,
    InvalidParams,
    LimpetError,
    McpError,
    SessionGone,
    Stopping,
    StoreBusy,
    StoreError,
    TooManySessions,
    Unresumable,
    UnsupportedVersion,
    UpstreamUnavailable,
    WireError,
    Withdrawn,
)
from limpet.wire import sse
from limpet.wire.jsonrpc import RequestId, encode, error_message

JSON: Final = (b"content-type", b"application/json")
_SSE: Final = (b"content-type", b"text/event-stream")
SESSION_NOT_FOUND: Final = -32001
"""The code the official SDKs send with this 404."""
_UNRESUMABLE: Final = {"reason": "event_id_unresumable"}
RETRY_SECONDS: Final = 1
UNSTARTED: Final = (NOT_EXECUTED[0].encode(), NOT_EXECUTED[1].encode())
"""The header for a client: it may send the request again, because nothing of it ran."""


class Answer(Struct, frozen=True):
    """Status, headers, body."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes = b""
    audit: Reason | None = None
    """The reason of a refusal, for the audit (`engine/audit.py`); None for other answers."""


def json_answer(body: bytes, status: int = 200, audit: Reason | None = None) -> Answer:
    """Return an answer with a JSON body."""
    return Answer(status, [JSON, (b"content-length", b"%d" % len(body))], body, audit)


def ready_answer(message: bytes, mode: ResponseMode) -> Answer:
    """Return a complete answer: a JSON body, or in mode "sse" one event."""
    if mode != "sse":
        return json_answer(message)
    event = sse.event(message)
    return Answer(200, [_SSE, (b"content-length", b"%d" % len(event))], event)


ACCEPTED: Final = Answer(202, [(b"content-length", b"0")])
NO_CONTENT: Final = Answer(204, [])


def refuse(
    status: int,
    message: str,
    *,
    code: int = INVALID_REQUEST,
    request_id: RequestId | None = None,
    data: object = None,
    extra: tuple[tuple[bytes, bytes], ...] = (),
    audit: Reason | None = None,
) -> Answer:
    """Return a refusal: an HTTP status and a JSON-RPC error with a sentence for people."""
    answer = json_answer(error_message(request_id, code, message, data), status, audit)
    answer.headers.extend(extra)
    return answer


class _Error(Struct, omit_defaults=True):
    code: int
    message: str
    data: Any = None


class _Refusal(Struct, kw_only=True):
    jsonrpc: str
    id: RequestId | UnsetType | None = UNSET
    error: _Error


_decode_refusal: Final = Decoder(_Refusal).decode


def joined(answer: Answer, correlation: str) -> Answer:
    """Return a refusal with the correlation id of its log line in the data of its error."""
    refusal = _decode_refusal(answer.body)
    data = refusal.error.data
    refusal.error.data = {**(data if type(data) is dict else {}), "correlation": correlation}
    body = encode(refusal)
    others = [header for header in answer.headers if header[0] != b"content-length"]
    return Answer(answer.status, [*others, (b"content-length", b"%d" % len(body))], body, answer.audit)


def not_allowed(allowed: str) -> Answer:
    """Return the answer to a method this endpoint does not have."""
    return refuse(405, f"Method not allowed: use {allowed}", extra=((b"allow", allowed.encode()),))


def retry_after(seconds: int = RETRY_SECONDS) -> tuple[bytes, bytes]:
    """Return the header that says when to send the request again."""
    return (b"retry-after", b"%d" % seconds)


def refusal_for(error: LimpetError, request_id: RequestId | None = None) -> Answer:
    """Return the answer to a request the engine refused. One exception, one row."""
    audit = reason_of(error)
    match error:
        case WireError():
            return refuse(400, error.message, code=error.code, request_id=error.request_id, audit=audit)
        case SessionGone():
            return refuse(
                404, "Session not found", code=SESSION_NOT_FOUND, request_id=request_id, audit=audit
            )
        case Unresumable():
            text, data = "Bad request: Last-Event-ID is not a position of this session", _UNRESUMABLE
            return refuse(400, text, data=data, audit=audit)
        case Busy():
            later = (retry_after(error.retry_after),)
            # A limit of calls applies to the client that reached it; a stop, the store and the server behind apply to
            # all.
            status = 503 if isinstance(error, StoreBusy | Stopping | UpstreamUnavailable | Withdrawn) else 429
            return refuse(
                status,
                error.message,
                code=error.code,
                request_id=request_id,
                data=error.data,
                extra=later,
                audit=audit,
            )
        case DuplicateId() | InvalidParams():
            return refuse(400, error.message, code=error.code, request_id=request_id)
        case UnsupportedVersion():
            return refuse(400, error.message, code=error.code, request_id=request_id, data=error.data)
        case TooManySessions():
            text, later = "Service unavailable: too many sessions", (retry_after(5),)
            return refuse(503, text, code=BUSY, request_id=request_id, extra=later, audit=audit)
        case StoreError():
            # Also Fenced and StreamClosed: another replica has ended the exchange, and a repeat gets the end that it
            # wrote.
            text = f"Service unavailable: {error}" if str(error) else "Service unavailable: send it again"
            return refuse(503, text, code=BUSY, request_id=request_id, extra=(retry_after(),), audit=audit)
        case McpError():
            # The back has answered. Example: a server behind refuses our sign-in when a session opens.
            return refuse(200, error.message, code=error.code, request_id=request_id, data=error.data)
        case _:
            raise error


def refused_unstarted(error: LimpetError, request_id: RequestId | None = None) -> Answer:
    """Return the refusal of a request of which nothing ran, with the header that says so.

    Never use it if a handler may have started: the header tells a client to send the request again.

    Raises:
        InsufficientScope: the error itself. The front answers it, because it knows where clients sign in.
    """
    if isinstance(error, InsufficientScope):
        raise error
    answer = refusal_for(error, request_id)
    # Its frames refer to the request and to what is charged for it. A task of the back may keep the error for longer.
    error.__traceback__ = None
    answer.headers.append(UNSTARTED)
    return answer
