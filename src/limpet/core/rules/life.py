"""The life of a session: admission, its next deadline, its home, its subscriptions, its closing.

A session has a hint, the earliest time at which it can be due. Activity only moves a deadline away, so nearly every
rule leaves the hint as it is; a rule that moves the deadline nearer (a break, an end) calls `schedule`. A sweep
examines the sessions whose hint has passed, closes those that are due, and gives the others their next hint. It also
forgets answers that were kept for a repeat for long enough: a session that is always in use has no other end of them.
"""

from math import inf

from msgspec.structs import replace

from limpet.config import Limits
from limpet.core.lifecycle import SessionInput, step
from limpet.core.records import STANDALONE_FENCE, Ending, Found, SessionRecord, Status, WakeUp
from limpet.core.rules.calls import forget_stale
from limpet.core.rules.document import At, Document, Index
from limpet.core.rules.streams import write
from limpet.core.stream import Log


def is_crowded(limits: Limits, sessions: int, own: int) -> bool:
    """Return True if a new session needs the place of another one.

    `own`: sessions of its principal; 0 if it may not evict.
    """
    return sessions >= limits.sessions or own >= limits.sessions_per_principal


def find(doc: Document, principal: str, now: float) -> Found | None:
    """Return the session if it is this principal's. A sign of the client."""
    if doc.record.principal != principal:
        return None
    return Found(doc.record, doc.client_seen(now))


def look(doc: Document, now: float) -> Status:
    """Return the view of an operator on the session."""
    return doc.status(now, log_bytes=int(doc.size), kept_bytes=int(doc.kept))


def change(doc: Document, level: str | None, initialized: bool | None) -> None:  # noqa: FBT001
    """Set the fields that are not None."""
    doc.change_record(level, initialized)


def take_home(doc: Document, expected: str, home: str) -> SessionRecord:
    """Make a replica the home if the home is `expected`; return the record as it is now."""
    if doc.record.home == expected:
        # A copy: a replica that has the record from before must not see the change.
        doc.record = replace(doc.record, home=home)
    return doc.record


def examine(doc: Document, now: float) -> SessionInput | None:
    """Return why the session ends now; None if it does not. In both cases it gets its next hint."""
    forget_stale(doc, now)
    doc.hint = inf
    doc.schedule(doc.next_look(now))
    return doc.ends_now(now)


def close(doc: Document, reason: SessionInput, ending: Ending | None, at: At) -> dict[str, Log]:
    """Close the session: exchanges in flight end, with `ending`.

    Return the complete streams that still have a reader.
    """
    doc.state = step(doc.state, reason)
    left: dict[str, Log] = {}
    for name, exchange in list(doc.exchanges.items()):
        log = doc.logs.get(name)
        if log is None or exchange.id is None or exchange.fence == STANDALONE_FENCE or not exchange.reader:
            continue
        if exchange.running and ending is not None:
            write(doc, name, exchange, [(ending.tag, ending.message(exchange.id))], at, final=True)
        if log.closed:
            left[name] = log
    doc.told += ((WakeUp.CLOSED, "", ""),)
    return left


def subscribe(doc: Document, uri: str, cost: int, limits: Limits, spare: int) -> bool:
    """Remember a subscription that costs so many kept bytes; `spare`: the bytes that the principal may still add."""
    if uri in doc.subscriptions:
        return True
    size = sum(len(known.encode()) for known in (*doc.subscriptions, uri))
    if len(doc.subscriptions) >= limits.subscriptions or size > limits.subscription_bytes or cost > spare:
        return False
    doc.subscriptions |= {uri}
    doc.kept += cost
    doc.told += ((Index.SUBSCRIBED, uri, ""),)
    return True


def unsubscribe(doc: Document, uri: str, cost: int) -> bool:
    """Forget a subscription. Return False if there is none."""
    if uri not in doc.subscriptions:
        return False
    doc.subscriptions -= {uri}
    doc.kept -= cost
    doc.told += ((Index.UNSUBSCRIBED, uri, ""),)
    return True


def subscriptions(doc: Document) -> frozenset[str]:
    """Return the resources that the session has subscribed to."""
    return doc.subscriptions
