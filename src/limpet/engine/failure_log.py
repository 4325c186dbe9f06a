"""Logs the failure of a handler: its name, its client, and the correlation id that the client receives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from limpet.errors import McpError, OutcomeUnknown, UpstreamFailed, UpstreamUnavailable
from limpet.protocol.quirks import SHOWN_NAME

if TYPE_CHECKING:
    from limpet.engine.exchange import Exchange
    from limpet.engine.runtime import Runtime

NAMED = {"tools/call": "tool", "prompts/get": "prompt"}
"""By method: under which name the log line has the request's `name`. A resource's URI is not logged: it may be
private."""


def note_failure(
    runtime: Runtime, exchange: Exchange, error: BaseException, event: str = "handler.failed"
) -> str:
    """Log the failure of a call; return the correlation id that links the line with an answer."""
    correlation = runtime.random.token(6)
    request = exchange.request
    named = NAMED.get(request.method)
    runtime.observer.note(
        event,
        session=exchange.session.name,
        client=exchange.session.client_name,
        method=request.method[:SHOWN_NAME],
        **({named: _short(request.params.get("name"))} if named else {}),
        correlation=correlation,
        error=error,
    )
    return correlation


_GENERAL: Final[dict[type[McpError], str]] = {
    UpstreamUnavailable: "Busy: the server behind this one cannot be reached, and nothing was executed",
    UpstreamFailed: "The server behind this one failed",
    OutcomeUnknown: "The connection to the server behind this one broke: it is unknown whether the call was executed",
}


def hide_cause(runtime: Runtime, error: McpError) -> None:
    """With `mask_errors`, take address, exit status and words of a server behind out of an error: the log has them."""
    if runtime.settings.mask_errors and error.__cause__ is not None:
        error.message = next(
            (text for kind, text in _GENERAL.items() if isinstance(error, kind)), error.message
        )


def masked_words(correlation: str) -> str:
    """Return the text that a client reads instead of the failure."""
    return f"Internal error (correlation id {correlation})"


def _short(name: object) -> str:
    """Return a name that a client sent, if it is short text; else nothing."""
    return name[:SHOWN_NAME] if isinstance(name, str) else ""
