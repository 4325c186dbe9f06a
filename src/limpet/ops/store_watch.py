"""A store whose calls are counted and timed.

It is made only if there are figures; a server without them uses the store itself.

    engine ──▶ watched store ──▶ store
                  │ each call of a store outside of this process: its duration, and its error if it fails
                  │ a few calls of every store: streams, events, resumes, gaps, asks

The memory store answers without waiting, so its calls are not timed: a duration would only show how busy the loop is,
as `LoopDelay` does. The short path of a plain call (`AtOnce`) is the store's own, and pays nothing.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from limpet.core.stream import NewEvents, StreamPage
from limpet.engine.observed_store import PARTS, Command, observed_store
from limpet.errors import Fenced, SessionGone, StateError, StoreUnavailable, StreamClosed
from limpet.ops.figures import Durations, StoreFigures
from limpet.ports import Clock
from limpet.stores.base import Attached, Store

Count = Callable[[Sequence[Any], Any], None]
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
    """Return a store with the same commands, which are counted and timed."""
    is_timed = store.is_shared or getattr(store, "at_once", None) is None
    if is_timed:
        figures.durations.update({part: Durations() for part in PARTS})
    counts = _counts(figures)

    def watch(part: str, name: str, command: Command) -> Command:
        if is_timed:
            command = _timed(command, part, figures.durations[part], figures.errors, clock.now)
        if name == "append":
            return _counted_append(command, figures)
        return _counted(command, counts[name]) if name in counts else command

    return observed_store(store, watch)


def _timed(
    command: Command,
    part: str,
    durations: Durations,
    errors: Counter[tuple[str, str]],
    now: Callable[[], float],
) -> Command:
    add = durations.add

    async def timed(*args: Any, **kwargs: Any) -> Any:
        began = now()
        try:
            return await command(*args, **kwargs)
        except Exception as error:
            if label := next(label for kind, label in _ERRORS if isinstance(error, kind)):
                errors[part, label] += 1
            raise
        finally:
            add(now() - began)

    return timed


def _counted_append(append: Command, figures: StoreFigures) -> Command:
    def counted(key: str, stream: str, fence: int, events: NewEvents) -> Awaitable[Any]:
        figures.events += len(events)
        for _, data in events:
            figures.bytes += len(data)
        return append(key, stream, fence, events)

    return counted


def _counts(figures: StoreFigures) -> dict[str, Count]:
    """Return the functions that count commands by their arguments and results."""

    def opened(_: object, __: object) -> None:
        figures.streams += 1

    def attached(arguments: Sequence[Any], result: object) -> None:
        figures.resumes += arguments[_CURSOR] is not None and isinstance(result, Attached)

    def was_read(_: object, page: StreamPage | None) -> None:
        figures.gaps += page is not None and page.missed is not None

    def asked(_: object, has_place: object) -> None:
        figures.asks += bool(has_place)

    def answered(_: object, answer: object) -> None:
        figures.answers += bool(answer)

    return {
        "open_stream": opened,
        "attach": attached,
        "read": was_read,
        "ask": asked,
        "take_answer": answered,
    }


def _counted(command: Command, count: Callable[[Sequence[Any], Any], None]) -> Command:
    async def counted(*args: Any, **kwargs: Any) -> Any:
        result = await command(*args, **kwargs)
        count(args, result)
        return result

    return counted
