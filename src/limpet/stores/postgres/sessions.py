"""The sessions of the database: places, indexes, totals, the work of dead replicas.

Documents, logs and their indexes are in one schema, so a transaction changes them together: nothing is carried over
later, and no index is behind.
"""

import asyncio
from typing import Final

from typing_extensions import override

from limpet.core.lifecycle import SessionInput
from limpet.core.records import Closed, Orphan, Refusal, SessionRecord, Status
from limpet.stores.base import UNREPORTED_SECONDS, Listing, Totals
from limpet.stores.postgres.core import hashed
from limpet.stores.postgres.documents import PostgresDocuments
from limpet.stores.shared.draft import opened
from limpet.stores.shared.fields import TABLES, listing_of, readable_record, status_of

_AT_ONCE: Final = 200
"""Sessions that a sweep examines at the same time."""
_FINISHED: Final = 20
_STRAYS: Final = 20
_CLOSINGS: Final = 100
_DEAD_SECONDS: Final = 60.0
"""How long a dead incarnation is asked for its work at least: longer than any commit takes that has seen its lease."""
_NEWS: Final = (600.0, 1_000)
"""Announcements are kept for so many seconds, and at most so many."""
_UNREPORTED: Final = 100_000
"""Closings kept if no replica ever reports them; the oldest are deleted first."""


class PostgresSessions(PostgresDocuments):
    """open, sweep, look, orphans, closings."""

    _stray_after: int = 0

    @override
    async def register(self, key: str) -> None:
        """Do nothing: each commit that begins work checks the lease, and registers its writer in the same step."""

    @override
    async def poisoned(self, key: str, error: Exception) -> None:
        await self._run("discard", key)

    # Places and indexes

    async def open(self, record: SessionRecord, *, evict: bool) -> list[Closed] | Refusal:
        numbers, fields = opened(record, self.now(), self._mark)
        event, own = self._random.token(12), self._limits.sessions_per_principal if evict else None
        place = (self._limits.sessions, own, event, self._told)
        [(verdict, fixed, variable)] = await self._run(
            "open", *self._session(record, numbers, fields), *place
        )
        if not verdict:
            return Refusal.FULL
        evicted = readable_record(fixed, variable)
        return [] if evicted is None else [Closed(evicted, SessionInput.EVICTED, event)]

    async def due(self) -> list[str]:
        return await self._column("due", self._told, _AT_ONCE)

    @override
    async def sweep(self) -> list[Closed]:
        await self._run("sweep", *_NEWS, _UNREPORTED, self._told)
        return await super().sweep()

    async def sessions(self, principal: str | None = None) -> list[str]:
        if principal is None:
            return await self._column("listed")
        return await self._column("listed_of", hashed(principal))

    async def subscribers(self, uri: str) -> list[str]:
        return await self._column("subscribers", uri.encode())

    async def oldest_finished(self) -> tuple[str, str] | None:
        """Return the complete stream without a reader that ended first."""
        start = 0
        while rows := await self._run("finished", _FINISHED, start):
            for key, stream, exchange in rows:
                if not TABLES["exchanges"].decode(exchange).reader:
                    return key, stream.decode()
            start += len(rows)
        return None

    @override
    async def look(self, key: str) -> Status | None:
        rows = await self._run("look", key)
        return status_of(rows[0], self.now()) if rows else None

    async def sessions_after(self, after: str, *, limit: int) -> Listing:
        return listing_of(await self._run("after", after, limit), limit, self.now())

    async def totals(self) -> Totals:
        [(sessions, size, detached, kept)] = await self._run("totals")
        return Totals(sessions, detached, size, kept)

    # The work of dead replicas

    async def orphans(self) -> list[Orphan]:
        """Return the exchanges of dead replicas, and own ones that a failover has brought back.

        Readers and turns of dead replicas are forgotten.
        """
        found: list[Orphan] = []
        for owner in await self._column("dead", self.me, _DEAD_SECONDS, self._told):
            keys = await self._column("owned", owner)
            for start in range(0, len(keys), _AT_ONCE):
                left = await asyncio.gather(
                    *(self._left(owner, key) for key in keys[start : start + _AT_ONCE])
                )
                found += [orphan for some in left for orphan in some]
        return found + await self._own_strays()

    async def _left(self, owner: str, key: str) -> list[Orphan]:
        found = await self.left_by(owner, key)
        if found is None:
            await self._run("unregister", owner, key)
        return found or []

    async def _own_strays(self) -> list[Orphan]:
        """Look at some of the sessions in which calls of this incarnation run or readers are, as the store says."""
        rows = await self._run("busy", self.me, self._stray_after, _STRAYS)
        self._stray_after = rows[-1][0] if len(rows) == _STRAYS else 0
        found = await asyncio.gather(*(self.strays(key) for _, key in rows))
        return [orphan for some in found for orphan in some or ()]

    # Closings

    async def closing_reported(self, closed: Closed) -> None:
        await self._run("closing_reported", closed.event)

    async def unreported_closings(self) -> list[Closed]:
        found: list[Closed] = []
        for event, fixed, variable, reason in await self._run(
            "late_closings", UNREPORTED_SECONDS, _CLOSINGS, self._told
        ):
            record = readable_record(fixed, variable)
            if record is None:
                self._observer.note("store.poisoned", closing=event)
                await self._run("closing_reported", event)
            else:
                found.append(Closed(record, SessionInput(reason), event))
        return found
