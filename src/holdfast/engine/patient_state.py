"""The state of sessions and scopes, for handlers: while the store is unavailable, a call waits for it.

A handler's state follows the rule of its messages (`outages.insisted`). A call is safe to repeat: the caller names each change
(`op`), and the store answers a change that it has made already with its first result.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from holdfast.engine.outages import insisted
from holdfast.errors import StoreUnavailable
from holdfast.stores.base import Cell, Store

T = TypeVar("T")


class PatientState:
    """The calls of `stores.base.StatePart`. After `seconds` without the store each raises StoreUnavailable."""

    __slots__ = ("_seconds", "_store")

    def __init__(self, store: Store, seconds: float) -> None:
        self._store = store
        self._seconds = seconds

    async def _insist(self, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await call()
        except StoreUnavailable as error:
            return await insisted(call, error, self._seconds)

    async def open_scope(self, scope: str, principal: str, ttl: float) -> bool:
        """Create a scope, or renew its time to live."""
        return await self._insist(partial(self._store.open_scope, scope, principal, ttl))

    async def find_scope(self, scope: str, principal: str) -> bool:
        """Return True if this principal has such a scope; its time starts again."""
        return await self._insist(partial(self._store.find_scope, scope, principal))

    async def get_state(self, scope: str, field: str) -> Cell | None:
        """Return a field."""
        return await self._insist(partial(self._store.get_state, scope, field))

    async def set_state(
        self, scope: str, field: str, value: bytes | None, *, op: str, version: int | None = None
    ) -> int:
        """Set or delete a field."""
        return await self._insist(partial(self._store.set_state, scope, field, value, op=op, version=version))

    async def add_state(self, scope: str, field: str, by: int, *, op: str) -> int:
        """Add to a counter."""
        return await self._insist(partial(self._store.add_state, scope, field, by, op=op))
