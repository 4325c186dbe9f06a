"""Turns: the calls of a session run one after another, in the order of their fences.

A call whose answer is sent and whose handler still runs holds its turn, so that the next call does not overlap with it.
"""

from holdfast.core.records import WakeUp
from holdfast.core.rules.document import Document, Held


def _first(doc: Document) -> str | None:
    """Return the call in flight with the smallest fence. None if there is no call, or an earlier call keeps its turn."""
    calls = [(one.fence, name) for name, one in doc.in_flight() if not one.control]
    first = min(calls, default=None)
    if first is None or any(held.fence < first[0] for held in doc.held.values()):
        return None
    return first[1]


def turn(doc: Document, stream: str, fence: int) -> bool:
    """Return True if a call may start."""
    doc.writable(stream, fence)
    return _first(doc) == stream


def hold_turn(doc: Document, stream: str, fence: int, me: str) -> None:
    """Keep the turn of a call after its end."""
    doc.writable(stream, fence)
    doc.held[stream] = Held(fence, me)


def pass_turn(doc: Document, stream: str, fence: int) -> None:
    """End a turn, and wake the owner of the next call."""
    held = doc.held.get(stream)
    if held is not None and held.fence == fence:
        del doc.held[stream]
    if (following := _first(doc)) is not None:
        doc.told += ((WakeUp.TURN, following, doc.exchanges[following].owner),)


def lose_turns(doc: Document, owner: str) -> None:
    """Forget the turns that an incarnation held, which was declared dead."""
    for stream in [stream for stream, held in doc.held.items() if held.owner == owner]:
        del doc.held[stream]
