"""Client-visible errors: the text that a client receives when an author's function raises an exception.

| raised | a tool's client | a prompt's or resource's client |
|---|---|---|
| `ToolError`, an `AskError`, `NoSession`, `HandleNotFound` | a failed result with its text | −32603 with its text |
| `McpError` | that error | that error |
| `StoreUnavailable` | a failed result with a correlation id | −31001, busy, with a correlation id |
| another `StoreError` | a failed result with a correlation id | −32603 with a correlation id |
| any other `Exception` | a failed result `ValueError: its text` | error −32603 `ValueError: its text` |

The last one is logged with its traceback and a correlation id, which the client receives too (`_meta` of a result,
`data` of an error); with `mask_errors` it receives only that id. The text of a `StoreError` can contain addresses and
paths, so it is never sent. Asks in an `asyncio.TaskGroup` fail as an exception group: the client receives the text of
each member once.

`Fenced`, `StreamClosed` and `SessionGone` are not failures of the function: the exchange was ended elsewhere, and
the engine handles them, as it handles `StoreUnavailable` in requests that may be sent again (`engine/handling.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from limpet.engine.failure_log import masked_words
from limpet.errors import (
    INTERNAL_ERROR,
    AskError,
    CapabilityMissing,
    Fenced,
    HandleNotFound,
    McpError,
    MissingCapability,
    NoSession,
    SessionGone,
    StoreError,
    StoreUnavailable,
    StreamClosed,
    ToolError,
    joined,
)
from limpet.protocol.types import CallToolResult, TextContent
from limpet.protocol.versions import SESSIONLESS
from limpet.server.host import Host

if TYPE_CHECKING:
    from limpet.engine.exchange import Exchange

CLIENT_VISIBLE: Final = (ToolError, AskError, NoSession, HandleNotFound)
"""Exceptions whose text the client receives."""
CORRELATION: Final = "limpet/correlation"
"""The member of a failed result's `_meta` that has the correlation id."""
ENDED_ELSEWHERE: Final = (Fenced, StreamClosed, SessionGone)
MAX_TEXT: Final = 4_096
"""Characters of an exception's text that a client receives: the text may quote large input."""


def failed(text: str, correlation: str = "") -> CallToolResult:
    """Return a failed result with this text for the model.

    The correlation id of its log line is for the client's operator.
    """
    meta = {CORRELATION: correlation} if correlation else None
    return CallToolResult(content=[TextContent(text=text)], is_error=True, meta=meta)


def failed_call(error: Exception, exchange: Exchange, server: Host) -> CallToolResult:
    """Return the result of a tool call whose function raised this error.

    Raises:
        McpError: the function raised it as its answer.
        Fenced, StreamClosed, SessionGone: the exchange was ended elsewhere.
    """
    return failed(*text_for_client(error, exchange, server))


def failed_request(error: Exception, exchange: Exchange, server: Host) -> McpError:
    """Return the error answer of a prompt, resource or completion whose function raised this error.

    Raises:
        McpError: the function raised it as its answer.
        Fenced, StreamClosed, SessionGone: the exchange was ended elsewhere.
        StoreUnavailable: the store does not work; the request may be sent again.
    """
    for leaf in _leaves(error):
        if isinstance(leaf, StoreUnavailable):
            raise leaf
    text, correlation = text_for_client(error, exchange, server)
    return joined(McpError(INTERNAL_ERROR, text), correlation)


def text_for_client(error: Exception, exchange: Exchange, server: Host) -> tuple[str, str]:
    """Return the text for this client; log a fault of the function, and return the correlation id of its line too.

    Raises as `failed_call` does.
    """
    leaves, correlation = list(_leaves(error)), ""
    for leaf in leaves:
        if isinstance(leaf, ENDED_ELSEWHERE):
            raise leaf
    if all(isinstance(leaf, McpError) for leaf in leaves):
        raise leaves[0]
    faults = [leaf for leaf in leaves if not isinstance(leaf, CLIENT_VISIBLE)]
    if faults:
        correlation = server.engine.note_failure(exchange, error)
        if server.settings.mask_errors or any(isinstance(leaf, StoreError) for leaf in faults):
            return masked_words(correlation), correlation
    elif exchange.session.revision is SESSIONLESS:
        _refuse_missing(leaves, error)
    return "\n".join(dict.fromkeys(visible_text(leaf) for leaf in leaves)), correlation


def visible_text(error: Exception) -> str:
    """Return the text of one exception as valid UTF-8, after its type if the exception was not raised for clients."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an author's __str__
        text = ""
    kind = "" if isinstance(error, CLIENT_VISIBLE) else type(error).__name__
    words = f"{kind}: {text}" if kind and text else text or kind
    if len(words) > MAX_TEXT:
        words = f"{words[:MAX_TEXT]}…"
    # A lone surrogate is not valid in UTF-8.
    return words.encode(errors="backslashreplace").decode()


def _leaves(error: Exception) -> Iterator[Exception]:
    if isinstance(error, ExceptionGroup):
        for member in error.exceptions:
            yield from _leaves(member)
    else:
        yield error


def _refuse_missing(leaves: list[Exception], error: Exception) -> None:
    """Raise the error of 2026-07-28 for a client that must declare another capability."""
    missing = [leaf for leaf in leaves if isinstance(leaf, CapabilityMissing) and leaf.required]
    if missing:
        why = "; ".join(dict.fromkeys(map(str, missing)))
        raise MissingCapability(_merged([leaf.required for leaf in missing]), why) from error


def _merged(required: list[dict[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for one in required:
        for name, parts in one.items():
            merged[name] = {**merged.get(name, {}), **parts}
    return merged
