"""A store whose commands are observed: counted and timed (`ops/store_watch.py`), or with spans (`tracing/observer.py`).

Only an engine that is observed has one; the others use the store itself. Each command of the contract is replaced once,
when the object is made, by the function that the observer returns for it. The engine finds it as a member of the
object, without another look-up. The few other members are the store's own, also the short path of a plain call
(`AtOnce`).
"""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from limpet.stores.base import (
    AskPart,
    AtOnce,
    ExchangePart,
    OverviewPart,
    ReplicaPart,
    SessionPart,
    StatePart,
    Store,
    StreamPart,
    TaskPart,
)

Command = Callable[..., Awaitable[Any]]
Observe = Callable[[str, str, Command], Command]
"""Returns the observed form of a command, by the part of the contract and the name."""
PARTS: Final[dict[str, type]] = {
    "sessions": SessionPart,
    "exchanges": ExchangePart,
    "streams": StreamPart,
    "asks": AskPart,
    "overview": OverviewPart,
    "state": StatePart,
    "tasks": TaskPart,
    "replicas": ReplicaPart,
}
"""The parts of the contract, by the label of their metrics."""


def observed_store(store: Store, observe: Observe) -> Store:
    """Return a store with the same commands, which are observed."""
    return cast("Store", _ObservedStore(store, observe))


def unobserved(store: Store) -> Store:
    """Return the store itself, whose class says what it can do."""
    while isinstance(store, _ObservedStore):
        store = store.observed
    return store


def store_kind(store: Store) -> str:
    """Return the kind of a store, for people and spans: memory, sqlite, redis."""
    return type(unobserved(store)).__name__.removesuffix("Store").lower()


class _ObservedStore:
    def __init__(self, store: Store, observe: Observe) -> None:
        self.observed: Store = store
        self.bind, self.aclose, self.prove, self.twin = store.bind, store.aclose, store.prove, store.twin
        self.at_once: AtOnce | None = getattr(store, "at_once", None)
        for part, contract in PARTS.items():
            for name, member in vars(contract).items():
                if inspect.iscoroutinefunction(member):
                    setattr(self, name, observe(part, name, getattr(store, name)))

    @property
    def is_shared(self) -> bool:
        return self.observed.is_shared

    @property
    def replica(self) -> str:
        return self.observed.replica

    def __repr__(self) -> str:
        return repr(self.observed)
