"""The sessions of the file: `SharedSessions` on a shelf of SQLite.

Documents, logs and their indexes are in one file, so a transaction changes them together: nothing is carried over
later, and no index is behind.
"""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from typing_extensions import override

from limpet.core.records import Closed, Orphan, Refusal, SessionRecord
from limpet.stores.shared.draft import opened
from limpet.stores.shared.sessions import SharedSessions
from limpet.stores.sqlite import overview, places, replicas, shelf
from limpet.stores.sqlite.transaction import Identity, Transaction
from limpet.stores.sqlite.worker import Worker

P = ParamSpec("P")
T = TypeVar("T")
Operation = Callable[Concatenate[Transaction, P], T]
Method = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]


def _method(operation: Operation[P, T], *, is_writing: bool) -> Method[P, T]:
    @wraps(operation)
    async def method(self: "SqliteSessions", /, *args: P.args, **kwargs: P.kwargs) -> T:
        done: T = await self._worker.submit(lambda tx: operation(tx, *args, **kwargs), writes=is_writing)
        return done

    return method


def writes(operation: Operation[P, T]) -> Method[P, T]:
    """Return a method that runs an operation which writes."""
    return _method(operation, is_writing=True)


def reads(operation: Operation[P, T]) -> Method[P, T]:
    """Return a method that runs an operation which only reads: it waits for no lock."""
    return _method(operation, is_writing=False)


class SqliteSessions(SharedSessions):
    """Documents and logs in the file."""

    gathers = True
    _identity: Identity
    _worker: Worker

    @property
    def me(self) -> str:
        """The incarnation of this process."""
        return self._identity.owner

    @me.setter
    def me(self, owner: str) -> None:
        self._identity.owner = owner

    # The shelf

    stored: Final = reads(shelf.stored)
    create: Final = writes(shelf.create)
    commit: Final = writes(shelf.commit)
    remove: Final = writes(shelf.remove)
    tell: Final = writes(shelf.tell)
    piece: Final = reads(shelf.piece)
    sizes: Final = reads(shelf.sizes)
    discard: Final = writes(shelf.discard)

    @override
    async def register(self, key: str) -> None:
        """Do nothing: each commit that begins work checks the lease, and `replicas.owned` finds it by its fields."""

    @override
    async def poisoned(self, key: str, error: Exception) -> None:
        await self.discard(key)

    # Places and indexes

    due: Final = reads(shelf.due)
    sessions: Final = reads(shelf.sessions)
    subscribers: Final = reads(shelf.subscribers)
    oldest_finished: Final = reads(shelf.oldest_finished)
    look: Final = reads(overview.look)
    sessions_after: Final = reads(overview.sessions_after)
    totals: Final = reads(overview.totals)
    _take_place: Final = writes(places.take)

    async def open(self, record: SessionRecord, *, evict: bool) -> list[Closed] | Refusal:
        return await self._take_place(record, *opened(record, self.now(), self._mark), evict=evict)

    # The work of dead replicas

    _declare_dead: Final = writes(replicas.declare_dead)
    _owned: Final = reads(replicas.owned)
    _forget_lease: Final = writes(replicas.forget_lease)

    async def orphans(self) -> list[Orphan]:
        found: list[Orphan] = []
        for owner in await self._declare_dead():
            for key in await self._owned(owner):
                found += await self.left_by(owner, key) or []
            await self._forget_lease(owner)
        return found

    # Wake-ups that were missed

    async def _look_at_asks(self) -> None:
        """Read the sessions again in which an ask waits: an answer that got 202 arrives also if its wake-up is lost."""
        for key in [key for key, entry in self._entries.items() if entry.asks]:
            await self.look_at(key)
