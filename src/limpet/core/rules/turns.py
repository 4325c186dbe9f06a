"""Turns: the calls of a session run one after another, in the order of their fences.

A call whose answer is sent and whose handler still runs holds its turn, so that the next call does not overlap with it.

Where several replicas claim, a later claim may have a smaller fence, because each makes its fences from its own clock.
So the session remembers the largest fence of a call that got its turn, and no claim gets a fence below it: a call that
has begun stays the first one.
"""

from limpet.core.empty_table import EMPTY
from limpet.core.records import WakeUp
from limpet.core.rules.document import Document, Held, is_dead_with


def _first(doc: Document) -> str | None:
    """Return the call in flight with the smallest fence.

    None if there is no call, or an earlier call keeps its turn.
    """
    calls = [(one.fence, name) for name, one in doc.in_flight() if not one.control]
    first = min(calls, default=None)
    if first is None or any(held.fence <= first[0] and name != first[1] for name, held in doc.held.items()):
        return None
    return first[1]


def turn(doc: Document, stream: str, fence: int) -> bool:
    """Return True if a call may start."""
    doc.writable(stream, fence)
    if _first(doc) != stream:
        return False
    doc.turned = max(doc.turned, fence)
    return True


def hold_turn(doc: Document, stream: str, fence: int, me: str) -> None:
    """Keep the turn of a call after its end."""
    doc.writable(stream, fence)
    if doc.held is EMPTY:
        doc.held = {}
    doc.held[stream] = Held(fence, me)


def pass_turn(doc: Document, stream: str, fence: int) -> None:
    """End a turn."""
    held = doc.held.get(stream)
    if held is not None and held.fence == fence:
        del doc.held[stream]


def wake_next(doc: Document) -> None:
    """Wake the owner of the call that may start now.

    After the step that ended a turn: of two turns that end at once, one is seen.
    """
    if (following := _first(doc)) is not None:
        doc.told += ((WakeUp.TURN, following, doc.exchanges[following].owner),)


def lose_turns(doc: Document, owner: str) -> None:
    """Forget the turns that an incarnation held, which was declared dead."""
    for stream in [stream for stream, held in doc.held.items() if is_dead_with(held.owner, owner)]:
        del doc.held[stream]
