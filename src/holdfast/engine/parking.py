"""Calls without a session that wait for a retry, or have ended and may be asked about once more.

Each is kept for its lifetime from its last round on; there are at most so many per principal
and in all, and beyond that a handler that wants to ask is told that it is busy.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from holdfast.config import Limits
from holdfast.errors import Busy

if TYPE_CHECKING:
    from holdfast.engine.exchange import Exchange


class ParkingStatistics(Struct, frozen=True):
    """How parking has gone so far."""

    kept: int
    parked: int
    resumed: int
    expired: int
    refused: int


class Parking:
    """The calls that can be returned to, by their key."""

    def __init__(self, limits: Limits, lifetime: float, expire: "Callable[[Exchange], None]") -> None:
        self._limits = limits
        self._lifetime = lifetime
        self._expire = expire
        self._kept: dict[str, tuple[Exchange, asyncio.TimerHandle]] = {}
        self._owners: Counter[str] = Counter()
        self._parked = self._resumed = self._expired = self._refused = 0

    def __repr__(self) -> str:
        return f"<Parking {len(self._kept)}/{self._limits.parked} calls>"

    def keep(self, exchange: "Exchange") -> None:
        """Keep a call that goes out for its lifetime, counted anew with each round.

        Raises:
            Busy: there are too many, of this principal or in all.
        """
        owner = exchange.session.record.principal
        known = self._kept.get(exchange.key)
        if known is not None:
            known[1].cancel()
        elif (
            len(self._kept) >= self._limits.parked or self._owners[owner] >= self._limits.parked_per_principal
        ):
            self._refused += 1
            raise Busy("Busy: too many calls wait for input; try again later", retry_after=30)
        else:
            self._owners[owner] += 1
        timer = asyncio.get_running_loop().call_later(self._lifetime, self._end, exchange, owner)
        self._kept[exchange.key] = (exchange, timer)
        self._parked += 1

    def find(self, key: str) -> "Exchange | None":
        """Return a call that is kept."""
        known = self._kept.get(key)
        if known is None:
            return None
        self._resumed += 1
        return known[0]

    def _end(self, exchange: "Exchange", owner: str) -> None:
        del self._kept[exchange.key]
        self._owners[owner] -= 1
        if not self._owners[owner]:
            del self._owners[owner]
        self._expired += not exchange.settled
        self._expire(exchange)

    def clear(self) -> list["Exchange"]:
        """Forget all of them; return those that have not ended."""
        kept, self._kept = self._kept, {}
        self._owners.clear()
        for _, timer in kept.values():
            timer.cancel()
        return [exchange for exchange, _ in kept.values() if not exchange.settled]

    def statistics(self) -> ParkingStatistics:
        """Return how parking has gone so far."""
        return ParkingStatistics(len(self._kept), self._parked, self._resumed, self._expired, self._refused)
