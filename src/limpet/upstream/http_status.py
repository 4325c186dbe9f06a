"""The meaning of an HTTP status that is not 2xx. Pure.

Each function answers one question: was the request executed? Certainly not (`NotSent`: it may be sent again), it was
answered (`McpError`), or it is unknown (`Broken`).

Two refusals are certain. One carries the mark that our server sets before it runs anything. The other is 404 within a
session, which the protocol defines: the server does not know the session, so it ran nothing in it. 400 within a session
may mean the same: some servers answer so after a restart. `Doubtful` lets the link find out. A 429 or 503 without
the mark proves nothing: balancers send 503 when the connection to a server breaks, also after the server has executed
the request.
"""

from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import msgspec

from limpet.errors import NOT_EXECUTED, Broken, HttpRefused, LimpetError, NotSent, Unauthorized
from limpet.transports.http import shown
from limpet.upstream.link import Doubtful, Overloaded, SessionLost
from limpet.upstream.pending import error_of

WAIT: Final = frozenset({429, 503})
UNAUTHORIZED: Final = frozenset({401, 403})
MOVED: Final = frozenset({301, 302, 303, 307, 308})
REPEATABLE_MOVES: Final = frozenset({307, 308})
BAD_REQUEST: Final = 400
NOT_FOUND: Final = 404
SERVER_FAULTS: Final = 500
LONGEST_WAIT: Final = 3_600.0
MARK, UNSTARTED = NOT_EXECUTED


def refused(
    status: int, body: bytes, retry_after: float | None, *, in_session: bool, mark: str = ""
) -> LimpetError:
    """Return the exception for a status of 400 or more. `mark` is the value of the header `MARK`."""
    if status == NOT_FOUND and in_session:
        return SessionLost("the server no longer knows the session")
    if status in WAIT:
        kind = NotSent if mark == UNSTARTED else Overloaded
        return kind(f"the server is busy (HTTP {status}){_said(body)}", retry_after)
    error = json_rpc_error(body)
    if status in UNAUTHORIZED:
        return Unauthorized(status, f"the server requires other credentials (HTTP {status}){_said(body)}")
    if error is None and status >= SERVER_FAULTS:
        return Broken(f"the server failed (HTTP {status}){_said(body)}")
    reason = error or HttpRefused(status, f"the server refused the request (HTTP {status}){_said(body)}")
    return Doubtful(reason) if status == BAD_REQUEST and in_session else reason


def json_rpc_error(body: bytes) -> LimpetError | None:
    """Return the JSON-RPC error in a body, with or without an id; None if the body is not one."""
    try:
        message = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    error = message.get("error")
    if type(error) is not dict or type(error.get("code")) is not int or type(error.get("message")) is not str:
        return None
    return error_of(error)


def seconds_to_wait(retry_after: str, wall: float) -> float | None:
    """Read a Retry-After header: seconds or a date; None if it is neither."""
    if retry_after.isascii() and retry_after.isdigit():
        return min(float(retry_after[:9]), LONGEST_WAIT)
    try:
        date = datetime.strptime(retry_after, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)
    except ValueError:
        return None
    return min(max(0.0, date.timestamp() - wall), LONGEST_WAIT)


def moved_to(status: int, url: str, location: str, *, has_credentials: bool) -> str:
    """Return the target of a redirect that may be followed.

    It must lead to the same origin, the request must carry no credentials, and the status must keep the method (307,
    308).

    Raises:
        HttpRefused: the redirect may not be followed.
    """
    target = urljoin(url, location)
    here, there = urlsplit(url), urlsplit(target)
    is_same = (here.scheme, here.netloc) == (there.scheme, there.netloc)
    if status in REPEATABLE_MOVES and is_same and not has_credentials:
        return target
    raise HttpRefused(
        status, f"the server redirects to {shown(target)[:200]}; connect to that URL if you trust it"
    )


def _said(body: bytes) -> str:
    """Return the text of a refusal: the message of its JSON-RPC error, or the beginning of another body."""
    error = json_rpc_error(body)
    text = body[:300].decode("utf-8", "replace").strip() if error is None else str(error)
    return f": {text}" if text else ""
