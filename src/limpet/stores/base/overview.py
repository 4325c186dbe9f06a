"""The overview: the view of operators. No call of this part changes anything, and none counts as a sign of a client.

`look`, the view of one session, is in `sessions.py`.

A listing goes by the keys of sessions, in their order, page after page. The cost of a page does not depend on the
number of sessions. A session that is open during the whole listing is on exactly one page. Logs show the first
characters of a key, so the page after these characters begins with the session that has this short name.

A store for one process inherits `sessions_after` from `OneProcess`. There a page costs one pass over the
keys, which are in the memory of this process.
"""

from typing import Protocol

from msgspec import Struct

from limpet.core.records import Status


class Listing(Struct, frozen=True):
    """One page of open sessions, in the order of their keys. It may be empty although another page follows."""

    sessions: list[Status]
    after: str
    """The cursor for the next page; empty: this is the last page."""


class Totals(Struct, frozen=True):
    """All open sessions together."""

    sessions: int
    detached: int
    log_bytes: int
    kept_bytes: int = 0
    """Of state and subscriptions. A shared store may count the bytes that it has reserved for them."""


class OverviewPart(Protocol):
    """The calls for operators."""

    async def sessions_after(self, after: str, *, limit: int) -> Listing:
        """Return the sessions whose keys follow `after`, at most `limit` of them. Empty: from the first one."""

    async def totals(self) -> Totals:
        """Return the numbers of open and detached sessions, and their bytes. A shared store may be a little behind."""
