"""The sessions of the file: `SharedSessions` on a shelf of SQLite.

Documents, logs and their indexes are in one file, so a transaction changes them together: nothing is carried over later, and no index is behind.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from typing_extensions import override

from holdfast.core.records import Closed, Orphan, Refusal, SessionRecord, Status, WakeUp
from holdfast.errors import StoreError
from holdfast.stores.base import Listing, Totals
from holdfast.stores.shared.commit import Commit, Reply
from holdfast.stores.shared.draft import opened
from holdfast.stores.shared.sessions import SharedSessions
from holdfast.stores.shared.shelf import Erasure, Piece, Stored
from holdfast.stores.sqlite import overview, places, replicas, shelf
from holdfast.stores.sqlite.transaction import Identity, Transaction
from holdfast.stores.sqlite.worker import Worker

P = ParamSpec("P")
T = TypeVar("T")
Operation = Callable[Concatenate[Transaction, P], T]

SWEPT_AT_ONCE: Final = 200
"""Sessions examined in one transaction: a sweep must not delay other commands for long."""


class SqliteSessions(SharedSessions):
    """Documents and logs in the file."""

    gathers = True
    _identity: Identity
    _worker: Worker

    @property
    def me(self) -> str:  # type: ignore[override]
        """The incarnation of this process."""
        return self._identity.owner

    async def _do(self, operation: Operation[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation that writes."""
        done: T = await self._worker.submit(partial(_with, operation, args, kwargs), writes=True)
        return done

    async def _look(self, operation: Operation[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation that only reads: it waits for no lock."""
        seen: T = await self._worker.submit(partial(_with, operation, args, kwargs), writes=False)
        return seen

    # The shelf

    @override
    async def stored(self, key: str, known: bytes = b"") -> Stored | None:
        return await self._look(shelf.stored, key, known)

    @override
    async def create(self, record: SessionRecord, numbers: bytes, fields: Mapping[str, bytes]) -> bool:
        return await self._do(shelf.create, record, numbers, fields)

    @override
    async def commit(self, key: str, commit: Commit) -> Reply:
        return await self._do(shelf.commit, key, commit)

    @override
    async def remove(self, key: str, erasure: Erasure) -> bool:
        return await self._do(shelf.remove, key, erasure)

    @override
    async def tell(self, key: str, told: Sequence[tuple[WakeUp, str, str]]) -> None:
        await self._do(shelf.tell, key, told)

    @override
    async def piece(self, key: str, stream: str, seq: int, max_events: int, max_bytes: int) -> Piece | None:
        return await self._look(shelf.piece, key, stream, seq, max_events, max_bytes)

    @override
    async def sizes(self, key: str, stream: str) -> Sequence[tuple[int, int, int]]:
        return await self._look(shelf.sizes, key, stream)

    @override
    async def register(self, key: str) -> None:
        """Do nothing: each commit that begins work checks the lease, and `replicas.owned` finds the work by its fields."""

    @override
    async def poisoned(self, key: str, error: Exception) -> None:
        await self._do(shelf.discard, key)

    # Places and indexes

    async def open(self, record: SessionRecord, *, evict: bool) -> list[Closed] | Refusal:
        """Keep a new session; evict the longest idle session of a principal that is at its limit."""
        numbers, fields = opened(record, self.now(), self._mark)
        return await self._do(places.take, record, numbers, fields, evict=evict)

    async def due(self) -> list[str]:
        """Return some of the sessions whose hint has passed."""
        return await self._look(shelf.due, SWEPT_AT_ONCE)

    @override
    async def sweep(self) -> list[Closed]:
        """Close the sessions that are due. Those of one round share their transactions."""
        closed: list[Closed] = []
        while keys := await self.due():
            ended = await asyncio.gather(*(self.end(key, self._examine) for key in keys))
            closed += [one for one in ended if one is not None]
        return closed

    async def listed(self, principal: str | None = None) -> list[str]:
        """Return the keys of all open sessions, or of one principal's."""
        return await self._look(shelf.listed, principal)

    async def subscribers(self, uri: str) -> list[str]:
        """Return the sessions that subscribed."""
        return await self._look(shelf.subscribers, uri)

    async def oldest_finished(self) -> tuple[str, str] | None:
        """Return the oldest complete stream without a reader."""
        return await self._look(shelf.oldest_finished)

    async def spare_kept(self, key: str) -> int:
        """Return the kept bytes that the principal of a session may still add."""
        return await self._look(places.spare_kept, key)

    @override
    async def look(self, key: str) -> Status | None:
        """Return an open session."""
        return await self._look(overview.look, key)

    async def sessions_after(self, after: str, *, limit: int) -> Listing:
        """Return the sessions that follow in the order of their keys."""
        return await self._look(overview.sessions_after, after, limit)

    async def totals(self) -> Totals:
        """Return the totals of all sessions."""
        return await self._look(overview.totals)

    # The work of dead replicas

    async def orphans(self) -> list[Orphan]:
        """Return the exchanges of dead replicas; their readers and turns are forgotten."""
        found: list[Orphan] = []
        for owner in await self._do(replicas.declare_dead):
            for key in await self._look(replicas.owned, owner):
                found += await self.left_by(owner, key) or []
            await self._do(replicas.forget_lease, owner)
        return found

    # Wake-ups that were missed

    async def _look_at_asks(self) -> None:
        """Read the sessions again in which an ask waits: its answer was accepted with 202, so it must arrive even if every wake-up is lost."""
        for key in [key for key, entry in self._entries.items() if entry.asks]:
            await self.look_at(key)

    async def _look_at_everything(self) -> None:
        """Some wake-ups were missed, and it is not known which."""
        with suppress(StoreError):
            await self.look_again()
        for kind in (WakeUp.FORWARD, WakeUp.NEWS):
            self.wake(kind, "", "")


def _with(operation: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any], tx: Transaction) -> T:
    return operation(tx, *args, **kwargs)
