"""The reason why a call waits, read from its task when an operator asks. A running call pays nothing for it.

A suspended coroutine shows the object that it awaits (`cr_await`), which may be another coroutine, and so on to a
future. The innermost of our own modules in this chain gives the reason: a store, a server behind, a question to the
client, or the writer, which waits for a client that reads slowly. If there is none, the author's function itself waits
or computes, or it has started other tasks and waits for them. Then an unanswered ask of the call is the reason.

A client that does not read stops the call wherever its task is: another task forwards the messages of a server behind,
or of a function that has started tasks. So the connection is asked first: a write to it that has not returned
(`is_unread`) waits for the client. If the connection is at another replica, that one reports it (`fleet.py`).
"""

from collections.abc import Iterator
from functools import lru_cache
from types import CoroutineType, FrameType, GeneratorType
from typing import Any, Final

from limpet.core.exchange import ExchangeState
from limpet.engine.exchange import Exchange, SessionExchange
from limpet.engine.inner import InnerExchange, answering
from limpet.engine.rounds import RoundWriter
from limpet.engine.tasks import TaskWriter

QUEUED: Final = frozenset({ExchangeState.CLAIMED, ExchangeState.QUEUED, ExchangeState.QUEUED_OPEN})
"""The states of a call whose handler has not begun."""
_BY_STATE: Final = {
    **dict.fromkeys(QUEUED, "slot"),
    ExchangeState.PARKED: "ask",
    ExchangeState.ENDING: "store",
    ExchangeState.ENDING_HELD: "store",
}
_BY_PLACE: Final = {
    "limpet.engine.asks": "ask",
    "limpet.engine.outages": "store",
    "limpet.engine.rounds": "ask",
    "limpet.engine.rounds.RoundWriter.send": "reader",
    "limpet.engine.slots": "slot",
    "limpet.engine.tasks": "store",
    "limpet.engine.tasks.TaskWriter.ask": "ask",
    "limpet.engine.writer": "reader",
    "limpet.engine.stream_buffer": "reader",
    "limpet.stores": "store",
    "limpet.upstream": "upstream",
    "limpet.backs.proxy": "upstream",
    "limpet.backs.proxy.turns": "slot",
    "limpet.backs.hosted": "handler",
}
"""By module or function. A package includes its modules, and a module its functions, unless they are named too."""
WAITS: Final = ("slot", "handler", "ask", "reader", "store", "upstream")
LIVE_STATES: Final = {
    **dict.fromkeys(QUEUED, "queued"),
    ExchangeState.RUNNING: "running",
    ExchangeState.STREAMING: "running",
    ExchangeState.PARKED: "parked",
    ExchangeState.TASK: "handed over",
}
"""The words for the states of a call that has not ended."""
MAYBE_READER: Final = frozenset({"", "handler", "upstream"})
"""A call whose task is there waits for its client in truth, if the client does not read."""
_DEEPEST: Final = 200


def live_state(exchange: Exchange) -> str:
    """Return the word for the state of a call; empty: its end is decided."""
    return LIVE_STATES.get(answering(exchange).state, "")


def waits_for(exchange: Exchange) -> str:
    """Return the reason why a call waits: slot, handler, ask, reader, store or upstream."""
    known = _BY_STATE.get(answering(exchange).state)
    # The task of a call that was handed over waits for the one of its handler.
    task = exchange.handler if isinstance(exchange, InnerExchange) else exchange.task
    if known is not None or task is None:
        return known or "slot"
    found = ""
    for frame in _frames(task.get_coro()):
        found = _meaning(frame.f_globals.get("__name__", ""), frame.f_code.co_qualname) or found
    if found in MAYBE_READER and exchange.writer.is_unread:
        return "reader"
    return found or ("ask" if _has_asked(exchange) else "handler")


def _has_asked(exchange: Exchange) -> bool:
    """True if an ask of a call waits for its answer, in any task."""
    exchange = answering(exchange)
    if isinstance(exchange, SessionExchange):
        return any(name.startswith(exchange.key) for name in exchange.session.pending)
    return isinstance(exchange.writer, RoundWriter | TaskWriter) and bool(exchange.writer.asks)


def _frames(awaited: Any) -> Iterator[FrameType]:
    """Yield the frames of a chain of coroutines, the outermost first."""
    for _ in range(_DEEPEST):
        if isinstance(awaited, CoroutineType):
            frame, awaited = awaited.cr_frame, awaited.cr_await
        elif isinstance(awaited, GeneratorType):
            frame, awaited = awaited.gi_frame, awaited.gi_yieldfrom
        else:
            return
        if frame is not None:
            yield frame


@lru_cache(maxsize=4096)
def _meaning(module: str, function: str) -> str:
    place = f"{module}.{function}"
    while place:
        if place in _BY_PLACE:
            return _BY_PLACE[place]
        place = place.rpartition(".")[0]
    return ""
