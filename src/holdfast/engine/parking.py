"""Calls without a session that can be returned to: they have not ended, or have ended and may be asked about once more.

A call that has not ended holds one of the places, of which there are so many in all and for each authenticated
principal; without a free place, a handler that wants to ask gets `Busy`. Anonymous clients do not count as one
principal: they share the places of the process, as listeners do.

A call that has ended holds no place. What it answered in each round is kept, because a client whose response was
lost sends its retry again and must get the same. It is bounded in bytes; the oldest are dropped first, and a
repeat of their retry gets −31003, the call is gone. Both are kept for one lifetime after the last round.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from holdfast.config import Limits
from holdfast.core.shelf import Shelf
from holdfast.errors import Busy

if TYPE_CHECKING:
    from holdfast.engine.exchange import Exchange


class ParkingStatistics(Struct, frozen=True):
    """How parking has gone so far."""

    kept: int
    """Calls that have not ended and can be returned to."""
    finished: int
    """Calls that have ended, and whose answers are kept for a repeat."""
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
        self._finished = Shelf(limits.finished_bytes, limits.principal_finished_bytes)
        self._parked = self._resumed = self._expired = self._refused = 0

    def __repr__(self) -> str:
        return f"<Parking {self._waiting}/{self._limits.parked} calls, {self._finished!r} of others>"

    @property
    def _waiting(self) -> int:
        return len(self._kept) - len(self._finished)

    def keep(self, exchange: "Exchange") -> None:
        """Keep a call that goes out for its lifetime, counted anew with each round.

        Raises:
            Busy: there are too many, of this principal or in all.
        """
        owner = exchange.session.record.principal
        known = self._kept.get(exchange.key)
        if known is not None:
            known[1].cancel()
        elif self._waiting >= self._limits.parked or (
            owner and self._owners[owner] >= self._limits.parked_per_principal
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

    def finish(self, exchange: "Exchange", size: int) -> None:
        """Free the place of a call that has ended; its answers, of so many bytes, are kept for a repeat."""
        if exchange.key not in self._kept or exchange.key in self._finished:
            return
        owner = exchange.session.record.principal
        self._leave(owner)
        for key in self._finished.put(exchange.key, owner, size):
            self._kept.pop(key)[1].cancel()

    def _leave(self, owner: str) -> None:
        self._owners[owner] -= 1
        if not self._owners[owner]:
            del self._owners[owner]

    def _end(self, exchange: "Exchange", owner: str) -> None:
        del self._kept[exchange.key]
        if exchange.key in self._finished:
            self._finished.remove(exchange.key)
        else:
            self._leave(owner)
            self._expired += 1
        self._expire(exchange)

    def clear(self) -> list["Exchange"]:
        """Forget all of them; return those that have not ended."""
        kept, self._kept = self._kept, {}
        self._owners.clear()
        for key in kept:
            self._finished.remove(key)
        for _, timer in kept.values():
            timer.cancel()
        return [exchange for exchange, _ in kept.values() if not exchange.settled]

    def statistics(self) -> ParkingStatistics:
        """Return how parking has gone so far."""
        return ParkingStatistics(
            self._waiting, len(self._finished), self._parked, self._resumed, self._expired, self._refused
        )
