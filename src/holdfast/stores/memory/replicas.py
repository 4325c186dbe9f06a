"""What replicas need of a store, for the one process that a memory store has."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Self

from holdfast.stores.base import Adopted, Announced, Closed, Forwarded, Lease, OnWake, Orphan, WakeUp

_KEPT: Final = 1_000
"""Announcements kept."""
_INBOX: Final = 10_000


class ReplicaMethods:
    """One replica, alive as long as it can ask. It has no orphans, and its listeners die with it."""

    _on_wake: OnWake
    _now: Callable[[], float]
    is_shared = False
    replica: str = "only"

    def twin(self) -> Self:
        """Return this one: nobody else looks at its lease."""
        return self

    def __init__(self) -> None:
        self._inbox: OrderedDict[str, bytes] = OrderedDict()
        self._news: OrderedDict[str, tuple[int, bytes]] = OrderedDict()
        self._announced = 0
        self._secrets: dict[str, tuple[bytes, float]] = {}
        """Each with the time until which it is kept."""
        self._leased = False

    async def renew(self, seconds: float) -> Lease:
        """Live on."""
        self._leased = True
        return Lease(self.replica, 1, seconds)

    async def release(self) -> None:
        """Live no longer."""
        self._leased = False

    async def replicas(self) -> list[str]:
        """Return this one."""
        return [self.replica] if self._leased else []

    async def orphans(self) -> list[Orphan]:
        """Return none: who could ask owns everything."""
        return []

    async def reap(self, orphan: Orphan, terminal: bytes, *, tag: int) -> bool:  # noqa: ARG002
        """Reap nothing."""
        return False

    async def adopt(self, orphan: Orphan, *, tag: int) -> Adopted | None:  # noqa: ARG002
        """Adopt nothing."""
        return None

    async def forward(self, replica: str, name: str, payload: bytes, *, seconds: float) -> bool:  # noqa: ARG002
        """Put a request to this replica, if it is the one that is meant."""
        if replica != self.replica or not self._leased or len(self._inbox) >= _INBOX:
            return False
        self._inbox.setdefault(name, payload)
        self._on_wake(WakeUp.FORWARD, "", "")
        return True

    async def inbox(self) -> list[Forwarded]:
        """Return what was not taken."""
        return [Forwarded(name, payload) for name, payload in self._inbox.items()]

    async def remove_forwarded(self, name: str) -> None:
        """Take a request out."""
        self._inbox.pop(name, None)

    async def announce(self, name: str, event: bytes) -> None:
        """Tell this replica."""
        if name in self._news:
            return
        self._announced += 1
        self._news[name] = self._announced, event
        if len(self._news) > _KEPT:
            self._news.popitem(last=False)
        self._on_wake(WakeUp.NEWS, "", "")

    async def announced(self, after: str) -> Announced:
        """Return what came after a cursor."""
        if not after:
            return Announced(str(self._announced), [])
        events = [event for number, event in self._news.values() if number > int(after)]
        return Announced(str(self._announced), events)

    async def secret(self, name: str, candidate: bytes, *, seconds: float) -> bytes:
        """Return the first candidate."""
        now = self._now()
        kept = {one: secret for one, secret in self._secrets.items() if secret[1] > now}
        value, _ = kept.get(name, (candidate, 0.0))
        self._secrets = {**kept, name: (value, now + seconds)}
        return value

    async def closing_reported(self, closed: Closed) -> None:
        """Take note of nothing."""

    async def unreported_closings(self) -> list[Closed]:
        """Return none."""
        return []
