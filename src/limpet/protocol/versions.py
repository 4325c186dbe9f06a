"""The revisions of the protocol that use sessions, and their differences."""

from typing import Final

from msgspec import Struct


class Revision(Struct, frozen=True):
    """One revision and its rules for transports."""

    name: str
    priming: bool
    """The first event of a stream is empty. Older clients (Gemini CLI) fail on that, so they get a notification."""
    early_close: bool
    """The server may end the stream of a request before its result; the client resumes it."""
    batches: bool
    """True if arrays of messages are accepted."""


REVISIONS: Final[dict[str, Revision]] = {
    revision.name: revision
    for revision in (
        Revision("2025-11-25", priming=True, early_close=True, batches=False),
        Revision("2025-06-18", priming=False, early_close=False, batches=False),
        Revision("2025-03-26", priming=False, early_close=False, batches=True),
    )
}

OLDEST: Final = "2024-11-05"
"""Only servers behind us may speak it: as 2025-03-26, without batches and without Streamable HTTP."""
SESSIONLESS: Final = Revision("2026-07-28", priming=False, early_close=False, batches=False)
"""The revision without sessions. It is not negotiated: each request names it."""

LATEST: Final = REVISIONS["2025-11-25"]
ASSUMED: Final = REVISIONS["2025-03-26"]
"""The revision of a request without a version header, by the specification."""


def negotiate(offered: object) -> Revision:
    """Return the revision to use with a client that offers `offered`: its own, else our latest."""
    return REVISIONS.get(offered, LATEST) if isinstance(offered, str) else LATEST
