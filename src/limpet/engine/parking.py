"""Parking: the calls without a session that a retry can return to.

    running  ── asks: `keep` ──▶  kept, holds a place  ── handler ends: `finish` ──▶  finished, holds bytes
                                    │      ▲                                             │
                                    └──────┘ each new round: the time begins again       │
                                    │                                                    │
                                    ├── time over: −31003, the handler is cancelled      ├── time over: forgotten
                                    └── server stops: `clear`                            └── room needed: oldest first

A call that has not ended holds one of the *places*. Their number is bounded, for the process and for each principal. If
no place is free, the handler that asks gets `Busy`. Anonymous clients do not count as one principal: they share the
places of the process.

A call that has ended holds no place. Its outcomes are kept, because a client whose response was lost sends its retry
again and must get the same result. They are bounded in bytes: the oldest are dropped first, and a repeat of their retry
gets −31003, the call is gone.

Why this cannot leak. Each entry has one timer, which is replaced in each round and removes the entry after one
lifetime. The removal frees the place or the bytes of the entry. `_finished` says which of the two, and
`finish` moves a call from one to the other in one step. A `requestState` and its entry live equally long:
`Times.parked`, from the same moment.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from limpet.config import Limits
from limpet.core.byte_limited_queue import ByteLimitedQueue
from limpet.errors import Busy

if TYPE_CHECKING:
    from limpet.engine.exchange import Exchange


_ALL: Final = 8
_OWN: Final = 16
"""The parts of the process's memory for the outcomes of ended calls: of all, and of one principal."""


class ParkingStatistics(Struct, frozen=True):
    """Counts of parked calls."""

    kept: int
    """Calls that have not ended and that a retry can return to."""
    finished: int
    """Calls that have ended, and whose outcomes are kept for a repeated retry."""
    parked: int
    resumed: int
    expired: int
    refused: int


class Parking:
    """The calls that a retry can return to, by their keys."""

    def __init__(
        self, limits: Limits, memory: int, lifetime: float, expire: "Callable[[Exchange], None]"
    ) -> None:
        self._limits = limits
        self._lifetime = lifetime
        self._expire = expire
        self._kept: dict[str, tuple[Exchange, asyncio.TimerHandle]] = {}
        self._owners: Counter[str] = Counter()
        self._finished = ByteLimitedQueue(memory // _ALL, memory // _OWN)
        self._parked = self._resumed = self._expired = self._refused = 0

    @property
    def _waiting(self) -> int:
        return len(self._kept) - len(self._finished)

    def keep(self, exchange: "Exchange") -> None:
        """Keep a call for one lifetime, which begins again with each round.

        Raises:
            Busy: there are too many, of this principal or in total.
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
        """Return a call by its key; None if it is not kept."""
        known = self._kept.get(key)
        if known is None:
            return None
        self._resumed += 1
        return known[0]

    def finish(self, exchange: "Exchange", size: int) -> list["Exchange"]:
        """Free the place of a call that has ended; keep its outcomes, of `size` bytes, for a repeated retry.

        Return the calls whose outcomes are not kept: those that are dropped for it, or this one if no retry can reach
        it any more.
        """
        if exchange.key in self._finished:
            return []
        if exchange.key not in self._kept:
            return [exchange]
        owner = exchange.session.record.principal
        self._leave(owner)
        dropped = [self._kept.pop(key) for key in self._finished.put(exchange.key, owner, size)]
        for _, timer in dropped:
            timer.cancel()
        return [exchange for exchange, _ in dropped]

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
        """Forget all calls; return those that have not ended."""
        kept, self._kept = self._kept, {}
        self._owners.clear()
        for key in kept:
            self._finished.remove(key)
        for _, timer in kept.values():
            timer.cancel()
        return [exchange for exchange, _ in kept.values() if not exchange.has_ended]

    def statistics(self) -> ParkingStatistics:
        """Return the counts so far."""
        return ParkingStatistics(
            self._waiting, len(self._finished), self._parked, self._resumed, self._expired, self._refused
        )
