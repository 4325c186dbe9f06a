"""Faults between a replica and its store: delays, lost replies, lost wake-ups, partitions.

A lost reply is the dangerous one: the call was executed, its caller does not know, and it is sent again.
"""

import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, cast

from msgspec import Struct

from limpet.errors import LimpetError, StoreUnavailable
from limpet.stores.base import OnWake, Store, WakeUp
from tests.simulation.cluster import ReplicaConnection
from tests.simulation.loop import Actor, SimLoop

RESEND_AFTER: Final = 0.2
"""Seconds after which a call without a reply is sent again."""
GIVEN_UP: Final = 0.5
"""How often an attach without a reply is given up instead."""
PATIENCE: Final = 1.0
"""Seconds after which a store that cannot be reached is given up."""
SECOND_LOOK: Final = 1.0
"""Stores look again after lost wake-ups this often."""
_LOOKS: Final = frozenset(
    {"read", "sweep", "orphans", "unreported_closings", "announced", "inbox", "take_answer", "get_state"}
)


class Faults(Struct, kw_only=True):
    """How often each fault happens."""

    latency: float = 0.02
    """A call and a reply take up to so many seconds each."""
    lost_reply: float = 0.0
    lost_wakeup: float = 0.0
    fired: Counter[str] = Counter()
    """The faults that happened."""


class FaultyStore:
    """A replica's connection to the store, with faults. Use it as a `Store` through `store`."""

    is_shared = True

    def __init__(self, loop: SimLoop, actor: Actor, connection: ReplicaConnection, faults: Faults) -> None:
        self._loop = loop
        self._actor = actor
        self._connection = connection
        self._faults = faults
        self._random = loop.random.random
        self._on_wake: OnWake | None = None
        self._operations = 0
        self.replica: str = connection.replica
        self.cut_until: float = 0.0
        """The store cannot be reached before this moment."""

    def __repr__(self) -> str:
        return f"<FaultyStore {self._connection!r}>"

    @property
    def store(self) -> Store:
        """This as the engine sees it."""
        return cast("Store", self)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        call = partial(self._look if name in _LOOKS else self._change, name)
        # Found by the next lookup without coming here.
        self.__dict__[name] = call
        return call

    async def _look(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Carry a call that may be made twice for nothing; its way there and back is one wait."""
        await self._loop.pause(self._random() * self._faults.latency)
        if self.cut_until > self._loop.time():
            await self._knock()
        return await self._connection.call(name, args, kwargs)

    async def _change(self, name: str, *args: Any, **kwargs: Any) -> Any:
        await self._loop.pause(self._random() * self._faults.latency)
        if self.cut_until > self._loop.time():
            await self._knock()
        if self._random() >= self._faults.lost_reply:
            try:
                return await self._connection.call(name, args, kwargs)
            finally:
                await self._loop.pause(self._random() * self._faults.latency)
        self._faults.fired["lost reply"] += 1
        if name == "append" and len(args[3]) > 1:
            self._faults.fired["lost reply of several events"] += 1
        self._operations += 1
        operation = (self.replica, self._operations)
        # A refused command changed nothing and is sent again.
        with contextlib.suppress(LimpetError):
            await self._connection.call(name, args, kwargs, operation)
        await self._loop.pause(RESEND_AFTER)
        if name == "attach" and self._random() < GIVEN_UP:
            self._faults.fired["lost attach"] += 1
            raise StoreUnavailable("no reply came in time")
        await self._loop.pause(self._random() * self._faults.latency)
        if self.cut_until > self._loop.time():
            await self._knock()
        return await self._connection.call(name, args, kwargs, operation)

    async def _knock(self) -> None:
        """Wait for a store that cannot be reached, for a while."""
        wait = self.cut_until - self._loop.time()
        self._faults.fired["partition"] += 1
        await self._loop.pause(min(wait, PATIENCE))
        if wait > PATIENCE:
            raise StoreUnavailable("the store cannot be reached")

    # Wake-ups

    def bind(self, on_wake: OnWake) -> None:
        """Ring this bell, late or, where it was lost, at the store's second look."""
        self._on_wake = on_wake
        self._connection.bind(self._woken)

    def _woken(self, what: WakeUp, key: str, name: str) -> None:
        delay = self._random() * self._faults.latency
        if self._random() < self._faults.lost_wakeup or self._loop.time() < self.cut_until:
            self._faults.fired["lost wake-up"] += 1
            delay = max(0.0, self.cut_until - self._loop.time()) + self._random() * SECOND_LOOK
        self._loop.call_later(delay, self._wake, what, key, name, context=self._actor.context)

    def _wake(self, what: WakeUp, key: str, name: str) -> None:
        if self._on_wake is not None:
            self._on_wake(what, key, name)

    def twin(self) -> Store:
        """Return this one: there is one loop only."""
        return self.store

    async def aclose(self) -> None:
        """Ignore wake-ups from now on."""
        self._on_wake = None
