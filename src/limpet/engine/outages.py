"""Outages of the store: a call that must succeed is made again until the store is available.

After an outage, and after a pause of all processes, the leases of living replicas may have ended: each of them renews
its lease when its own thread runs again (`lease.py`). Until then an ended lease is no sign of a death, and `Recovery`
says so.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from typing import Final, TypeVar

from limpet.config import Times
from limpet.errors import StoreUnavailable
from limpet.ports import Clock, SystemClock, uptime
from limpet.stores.base import Cell, Store

T = TypeVar("T")
RETRY_SECONDS: Final = 0.5
"""How long to wait before an unavailable store is tried again."""


async def retried(call: Callable[[], Awaitable[T]]) -> T:
    """Make a call to the store, also if the store is unavailable for long. The call must be safe to repeat."""
    while True:
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(RETRY_SECONDS)


async def insisted(
    call: Callable[[], Awaitable[T]],
    failed: StoreUnavailable,
    seconds: float,
    is_over: Callable[[], bool] = lambda: False,
) -> T:
    """Make a call again that has failed, until the store is available. The call must be safe to repeat.

    One rule for everything that a handler writes and reads, its messages and its state: it waits so many seconds
    (`Limits.store_seconds`), or until `is_over`.

    Raises:
        StoreUnavailable: the last failure.
    """
    now = asyncio.get_running_loop().time
    deadline = now() + seconds
    while not is_over() and now() < deadline:
        await asyncio.sleep(RETRY_SECONDS)
        try:
            return await call()
        except StoreUnavailable as error:
            failed = error
    raise failed


class PatientState:
    """The state of sessions and areas, for handlers.

    After `seconds` without the store each call raises StoreUnavailable.

    A call is safe to repeat: the caller names each change (`op`), and the store answers a change that it has made
    already with its first result.
    """

    __slots__ = ("_seconds", "_store")

    def __init__(self, store: Store, seconds: float) -> None:
        self._store = store
        self._seconds = seconds

    async def _insist(self, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await call()
        except StoreUnavailable as error:
            return await insisted(call, error, self._seconds)

    async def open_area(self, area: str, principal: str, ttl: float) -> bool:
        """Create an area, or renew its time to live."""
        return await self._insist(partial(self._store.open_area, area, principal, ttl))

    async def find_area(self, area: str, principal: str) -> bool:
        return await self._insist(partial(self._store.find_area, area, principal))

    async def get_state(self, area: str, field: str) -> Cell | None:
        return await self._insist(partial(self._store.get_state, area, field))

    async def set_state(
        self, area: str, field: str, value: bytes | None, *, op: str, version: int | None = None
    ) -> int:
        return await self._insist(partial(self._store.set_state, area, field, value, op=op, version=version))

    async def add_state(self, area: str, field: str, by: int, *, op: str) -> int:
        return await self._insist(partial(self._store.add_state, area, field, by, op=op))


class Recovery:
    """Notices outages of the store and pauses of this process, and lets other replicas renew their leases then."""

    _LEAST_SECONDS: Final = 5.0
    """A renewal may take some seconds to fail, and the next one comes after it."""

    __slots__ = ("_now", "_outage_at", "_patience", "_ticked_at")

    def __init__(self, clock: Clock, times: Times) -> None:
        self._now = uptime if isinstance(clock, SystemClock) else clock.now
        self._patience = max(times.lease / 2, self._LEAST_SECONDS)
        self._outage_at = -inf
        self._ticked_at = inf
        """Infinite before the first tick."""

    def failed(self) -> None:
        """Record that the store was not available now."""
        self._outage_at = self._now()

    def tick(self) -> None:
        """Record that this process runs. Call it once a second."""
        self.check_running()
        self._ticked_at = self._now()

    def check_running(self) -> bool:
        """Notice a pause of this process.

        True if there was an outage or a pause a moment ago: living replicas may not have renewed their leases yet.
        """
        now = self._now()
        if now - self._ticked_at > self._patience:
            self._outage_at = self._ticked_at = now
        return now - self._outage_at < self._patience
