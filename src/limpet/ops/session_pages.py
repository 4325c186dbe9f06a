"""The sessions of all servers of a process, page by page: the most active first, if there are not too many of them.

A store lists sessions in the order of their names, because that costs the same for a page of ten sessions and of a
million. An operator looks for the busy ones. So up to `SORTED_SESSIONS` sessions are read as a whole, more than a page
of them at most every two seconds for all operators together, and sorted: calls in flight first, then the last sign of a
client. A larger fleet is shown in the order of the names, and each page is sorted. The cursor says which it is: `50` is
a place in the sorted list, `0.7f31` the server's number and the name before the page.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Final

from limpet.core.lifecycle import SessionState
from limpet.engine.audit import short
from limpet.engine.session import HIDDEN
from limpet.errors import StoreError
from limpet.ops.served_process import Part
from limpet.ops.views import ShownSession
from limpet.protocol.quirks import shown_name
from limpet.stores.base import Listing, Status, Totals

PAGE_SESSIONS: Final = 50
SORTED_SESSIONS: Final = 500
PATIENCE: Final = 2.0
"""Seconds for a store or a replica to answer."""
_FRESH_SECONDS: Final = 2.0
_SHORTEST: Final = 8
"""Characters of a session's short name."""

Found = tuple[Part, Status]


class SessionPages:
    """Lists sessions for operators."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._sorted: list[Found] = []
        self._sorted_at = -inf

    async def page(
        self, page: str, where: Mapping[str, str], totals: Iterable[Totals], away: set[str]
    ) -> tuple[list[ShownSession], str]:
        """Return a page of sessions and the cursor of the next one.

        A server whose store does not answer is added to `away`.

        `where` has the replica of each session that has a call.
        """
        if sum(one.sessions for one in totals) > SORTED_SESSIONS:
            found, after = await self._page_by_name(page, away)
        else:
            first = int(page) if page.isdecimal() and len(page) < _SHORTEST else 0
            whole = await self._by_activity(away)
            last = first + PAGE_SESSIONS
            found, after = whole[first:last], str(last) if last < len(whole) else ""
        return [session_view(part, status, where) for part, status in sorted(found, key=_activity)], after

    async def _by_activity(self, away: set[str]) -> list[Found]:
        now = asyncio.get_running_loop().time()
        if len(self._sorted) <= PAGE_SESSIONS or now - self._sorted_at > _FRESH_SECONDS:
            found: list[Found] = []
            page = ""
            while len(found) <= SORTED_SESSIONS:
                more, page = await self._page_by_name(page, away)
                found += more
                if not page:
                    break
            self._sorted, self._sorted_at = sorted(found, key=_activity), now
        return self._sorted

    async def _page_by_name(self, page: str, away: set[str]) -> tuple[list[Found], str]:
        """Return a page in the order of the names. The servers follow one after another."""
        number, _, after = page.partition(".")
        index = int(number) if number.isdecimal() and len(number) < _SHORTEST else 0
        for at, part in list(enumerate(self._parts))[index:]:
            if not part.engine.started or part.name in away:
                continue
            try:
                async with asyncio.timeout(PATIENCE):
                    listing: Listing = await part.engine.store.sessions_after(
                        after if at == index else "", limit=PAGE_SESSIONS
                    )
            except (StoreError, TimeoutError):
                away.add(part.name)
                continue
            found = [(part, status) for status in listing.sessions if _is_shown(status)]
            if listing.after:
                return found, f"{at}.{listing.after}"
            if found:
                return found, f"{at + 1}." if at + 1 < len(self._parts) else ""
        return [], ""

    async def find(self, name: str) -> Found | None:
        """Return the session of a short name, and its server; None: no session, or several, have this name."""
        found: list[Found] = []
        if len(name) < _SHORTEST or not name.isalnum():
            return None
        for part in self._parts:
            if part.engine.started:
                listing = await part.engine.store.sessions_after(name, limit=2)
                found += [(part, one) for one in listing.sessions if one.record.key.startswith(name)]
        return found[0] if len(found) == 1 else None


def _activity(found: Found) -> tuple[int, float, str]:
    """Sort the most active sessions first: calls in flight, then the last sign of the client."""
    status = found[1]
    return -status.running, status.quiet, status.record.key


def _is_shown(status: Status) -> bool:
    """True if a session belongs to a client.

    Calls without a session may have a hidden one: for a key, or for a forwarded retry.
    """
    return not status.record.key.startswith(HIDDEN)


def session_view(part: Part, status: Status, where: Mapping[str, str]) -> ShownSession:
    record, is_detached = status.record, status.state is SessionState.DETACHED
    name = short(record.key)
    is_here = not part.engine.store.is_shared
    return ShownSession(
        id=name,
        client=shown_name(record.client),
        era=record.version,
        state=status.state.value,
        closes_in=status.closes_in if is_detached else None,
        principal=short(record.principal),
        log_bytes=status.log_bytes,
        kept_bytes=status.kept_bytes,
        calls=status.running,
        streams=status.readers,
        replica=part.replica if is_here else record.home or where.get(name, ""),
        server=part.name,
        quiet=None if status.running else status.quiet,
    )
