"""What a call waits for, read from its task when an operator asks. A running call pays nothing for it.

A suspended coroutine shows what it awaits (`cr_await`), which may be another coroutine, and so on to a future. The innermost module of ours
in this chain says what the call waits for: a module of a store, of a server behind, of the questions to clients, or of the writer, which
waits for a client that reads slowly. If there is none, the author's function itself waits or computes.
"""

from collections.abc import Iterator
from types import CoroutineType, FrameType, GeneratorType
from typing import Any, Final

from holdfast.core.exchange import State
from holdfast.engine.exchange import Exchange

_BY_STATE: Final = {
    State.CLAIMED: "slot",
    State.QUEUED: "slot",
    State.QUEUED_OPEN: "slot",
    State.RERUN: "slot",
    State.PARKED: "ask",
    State.ENDING: "store",
    State.ENDING_HELD: "store",
}
_BY_MODULE: Final = {
    "holdfast.engine.asks": "ask",
    "holdfast.engine.rounds": "ask",
    "holdfast.engine.tasks": "ask",
    "holdfast.engine.writer": "reader",
    "holdfast.engine.stream_buffer": "reader",
    "holdfast.stores": "store",
    "holdfast.upstream": "upstream",
    "holdfast.backs.proxy": "upstream",
    "holdfast.backs.hosted": "handler",
}
WAITS: Final = ("slot", "handler", "ask", "reader", "store", "upstream")
_DEEPEST: Final = 200


def waits_for(exchange: Exchange) -> str:
    """Return what a call waits for: slot, handler, ask, reader, store or upstream."""
    known = _BY_STATE.get(exchange.state)
    if known is not None or exchange.task is None:
        return known or "slot"
    found = "handler"
    for frame in _frames(exchange.task.get_coro()):
        module: str = frame.f_globals.get("__name__", "")
        found = _meaning(module) or found
    return found


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


def _meaning(module: str) -> str:
    while module:
        if module in _BY_MODULE:
            return _BY_MODULE[module]
        module = module.rpartition(".")[0]
    return ""
