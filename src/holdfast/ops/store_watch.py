"""A store whose calls are counted and timed. It is made only if there are figures; a server without them uses the store itself.

    engine ──▶ watched store ──▶ store
                  │ each call of a store outside of this process: its duration, and its error if it fails
                  │ a few calls of every store: streams, events, resumes, gaps, asks

The memory store answers without waiting, so its calls are not timed: a duration would only show how busy the loop is,
as `LoopDelay` does. The short path of a plain call (`AtOnce`) is the store's own, and pays nothing.

A call is replaced once, when the store is wrapped, by a function that calls the original. The engine finds it as a member of the object, without
another look-up.
"""

import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, cast

from holdfast.core.stream import NewEvents, Page
from holdfast.errors import Fenced, SessionGone, StateError, StoreUnavailable, StreamClosed
from holdfast.ops.figures import Durations, StoreFigures
from holdfast.ports import Clock
from holdfast.stores.base import (
    AskPart,
    Attached,
    ExchangePart,
    OverviewPart,
    ReplicaPart,
    SessionPart,
    StatePart,
    Store,
    StreamPart,
    TaskPart,
)

Call = Callable[..., Awaitable[Any]]
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
_CURSOR: Final = 3
"""The argument of `attach` with the position at which a client resumes."""
_ERRORS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (StoreUnavailable, "unavailable"),
    (Fenced, "fenced"),
    (StreamClosed, ""),
    (SessionGone, ""),
    (StateError, ""),
    (Exception, "other"),
)
"""The label of an exception. Empty: it is an answer of a working store."""


def watched_store(store: Store, figures: StoreFigures, clock: Clock) -> Store:
    """Return a store with the same calls, which are counted and timed."""
    return cast("Store", _WatchedStore(store, figures, clock))


def store_kind(store: Store) -> str:
    """Return the kind of a store, for people and spans: memory, sqlite, redis. That of a watched store is its own."""
    return (
        type(store.watched if isinstance(store, _WatchedStore) else store)
        .__name__.removesuffix("Store")
        .lower()
    )


class _WatchedStore:
    """Everything that is not counted or timed is the store's own."""

    def __init__(self, store: Store, figures: StoreFigures, clock: Clock) -> None:
        self.watched: Store = store
        if store.is_shared or getattr(store, "at_once", None) is None:
            for part, contract in PARTS.items():
                durations = figures.durations[part] = Durations()
                for name, _ in inspect.getmembers(contract, inspect.iscoroutinefunction):
                    call = getattr(store, name)
                    setattr(self, name, _timed(call, part, durations, figures.errors, clock.now))
        _count(self, figures)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.watched, name)

    def __repr__(self) -> str:
        return repr(self.watched)


def _timed(
    call: Call, part: str, durations: Durations, errors: Counter[tuple[str, str]], now: Callable[[], float]
) -> Call:
    add = durations.add

    async def timed(*args: Any, **kwargs: Any) -> Any:
        began = now()
        try:
            return await call(*args, **kwargs)
        except Exception as error:
            if label := next(label for kind, label in _ERRORS if isinstance(error, kind)):
                errors[part, label] += 1
            raise
        finally:
            add(now() - began)

    return timed


def _count(watched: Any, figures: StoreFigures) -> None:
    """Replace the calls that are counted, with or without a duration."""
    append: Call = watched.append

    def count_append(key: str, stream: str, fence: int, events: NewEvents) -> Awaitable[Any]:
        figures.events += len(events)
        for _, data in events:
            figures.bytes += len(data)
        return append(key, stream, fence, events)

    def opened(_: object, __: object) -> None:
        figures.streams += 1

    def attached(arguments: Sequence[Any], result: object) -> None:
        figures.resumes += arguments[_CURSOR] is not None and isinstance(result, Attached)

    def was_read(_: object, page: Page | None) -> None:
        figures.gaps += page is not None and page.missed is not None

    def asked(_: object, has_place: object) -> None:
        figures.asks += bool(has_place)

    def answered(_: object, answer: object) -> None:
        figures.answers += answer is not None

    watched.append = count_append
    counts = {
        "open_stream": opened,
        "attach": attached,
        "read": was_read,
        "ask": asked,
        "take_answer": answered,
    }
    for name, count in counts.items():
        setattr(watched, name, _counted(getattr(watched, name), count))


def _counted(call: Call, count: Callable[[Sequence[Any], Any], None]) -> Call:
    async def counted(*args: Any, **kwargs: Any) -> Any:
        result = await call(*args, **kwargs)
        count(args, result)
        return result

    return counted
