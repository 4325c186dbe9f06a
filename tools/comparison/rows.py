"""The rows of the comparison, in the order of the page."""

from typing import Final, NamedTuple


class Row(NamedTuple):
    """One behaviour. `key` is a probe of `limpet check` or a trial of tools/comparison/trials.py."""

    key: str
    title: str
    part: str


_MANY, _CUTS, _ERAS, _RULES = (
    "Many requests at once",
    "Cut connections and dead processes",
    "Two eras, and questions to the user",
    "Rules of the specification, and wrong input",
)
ROWS: Final = (
    Row("parallel", "24 requests of several kinds at once on one session: each gets its own answer", _MANY),
    Row("duplicate-ids", "requests with the same id at once: each is answered or refused, none hangs", _MANY),
    Row("two-ids", 'ids `7` and `"7"` at once stay two', _MANY),
    Row("reused-id", "an id is used again after its answer", _MANY),
    Row("stalled", "responses that are not read do not delay others of the session", _MANY),
    Row("cancel", "a call is cancelled, and the session continues", _MANY),
    Row("cuts", "a session survives cut streams and cut calls", _CUTS),
    Row("resume-after-cut", "a cut stream is resumed after half a second", _CUTS),
    Row(
        "resume-unnoticed",
        "a stream is resumed while the server still has the old connection (a change of network)",
        _CUTS,
    ),
    Row("second-stream", "a second GET stream is accepted while the first is open", _CUTS),
    Row("event-of-another-session", "the event id of another session delivers nothing", _CUTS),
    Row("repeated-post", "a POST that was cut is sent again: the tool runs once", _CUTS),
    Row("killed-process", "a session goes on in a new process after a kill", _CUTS),
    Row("handshake", "sessions of 2025-11-25", _ERAS),
    Row("sessionless", "2026-07-28 without sessions, at the same address", _ERAS),
    Row("negotiation", "clients of both eras, and of unknown versions, find a common version", _ERAS),
    Row("ask-in-session", "a function asks the user by one `await`, a client of 2025-11-25", _ERAS),
    Row("ask-without-session", "the same function, a client of 2026-07-28", _ERAS),
    Row("bad-ids", "invalid ids get no result", _RULES),
    Row("bad-bodies", "invalid bodies are refused, and cause no internal error", _RULES),
    Row("large-request", "a request of 5 MiB is refused with 413", _RULES),
    Row("unknown-method", "an unknown method is the error −32601", _RULES),
    Row("unknown-tool", "an unknown tool is an error", _RULES),
    Row("notification", "a notification gets 202", _RULES),
    Row("session-header", "unknown sessions get 404, requests without one 400", _RULES),
    Row("deleted", "a deleted session is gone", _RULES),
    Row("version-header", "an unknown version in the header gets 400", _RULES),
    Row("origin", "a page of another site is refused", _RULES),
    Row("content-type", "a body as text/plain from a page of another site is refused", _RULES),
    Row("sessionless-headers", "headers of 2026-07-28 that differ from the body are refused", _RULES),
    Row("sessionless-version", "an unknown version of 2026-07-28 is the error −32022", _RULES),
)
