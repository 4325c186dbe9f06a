"""Exchanges: claimed before anything runs, ended once, kept for a repeat, given back, ended for a dead replica.

`claim` checks session, principal, id and room, and registers the exchange (law 2). It gives the exchange a fence; every
later write names it, and a writer with another fence is refused. An exchange ends once (law 3): `settle`, `end_plain`
and `reap` find an exchange in flight, and leave one that is not.

An id is in use from the claim until the end. After that it is free, unless the answer is kept for a repeat of exactly
the same request; another request under that id frees it, and so does the time for which an answer is kept. If there was
no room for the answer, its end stays instead (`streams.py`). The claim reserves the room for that: a call is refused
before it runs if too many ids are in use.
"""

from msgspec.structs import replace

from limpet.core.lifecycle import SessionState
from limpet.core.records import (
    KEPT_SECONDS,
    USED_IDS,
    WITHDRAWN_STREAMS,
    Claim,
    Claimed,
    Duplicate,
    Refusal,
    WakeUp,
)
from limpet.core.rules.asks import withdraw
from limpet.core.rules.document import At, Document, ExchangeRecord, is_dead_with
from limpet.core.rules.readers import lose_readers
from limpet.core.rules.streams import finish, forget, free_id, start, write
from limpet.core.rules.turns import lose_turns
from limpet.core.stream import before_terminal
from limpet.errors import Fenced, StreamClosed
from limpet.wire.jsonrpc import RequestId

# Short names for a plain call: Python 3.11 looks up a member of an enumeration slowly.
_DETACHED = SessionState.DETACHED


def claim(
    doc: Document, principal: str, wanted: Claim, me: str, most: int, now: float
) -> Claimed | Duplicate | Refusal:
    """Register the exchange if its id is free and fewer than `most` calls are in flight."""
    record, stream = doc.record, wanted.stream
    if record.principal != principal:
        return Refusal.NO_SESSION
    mine = doc.exchanges.get(stream)
    if mine is not None:
        return _claimed_before(doc, stream, mine, me, now)
    if doc.withdrawn is not None and stream in doc.withdrawn:
        _withdraw(doc, stream, surely=True)
        return Refusal.WITHDRAWN
    taken = None if record.isolate else doc.ids.get(wanted.id)
    if taken is not None:
        other = doc.exchanges[taken]
        verdict = duplicate(
            wanted,
            taken,
            other.digest,
            running=other.running,
            has_reader=other.has_reader,
            stale=is_stale(other.kept_at, record.grace, now),
        )
        if verdict is not None:
            return verdict
        release(doc, taken, other)
    control = wanted.control
    if not control:
        if doc.calls >= most or (len(doc.ids) >= USED_IDS and not forget_stale(doc, now)):
            return Refusal.BUSY
        doc.calls += 1
    doc.touched = now
    returned = doc.state is _DETACHED and doc.client_seen(now)
    doc.fence += 1
    fence = doc.fence
    doc.add(stream, ExchangeRecord(wanted.id, wanted.digest, control, fence, me, me))
    doc.running += 1
    doc.readers += 1
    return Claimed(record, fence, returned)


def _claimed_before(
    doc: Document, stream: str, exchange: ExchangeRecord, me: str, now: float
) -> Claimed | Duplicate | Refusal:
    """Answer a claim of a stream that is claimed already."""
    if not exchange.running or exchange.owner != me:
        return claimed_already(stream, running=exchange.running, has_reader=exchange.has_reader)
    if doc.withdrawn is not None and stream in doc.withdrawn:
        _unclaim(doc, stream, exchange, now)
        return Refusal.WITHDRAWN
    return Claimed(doc.record, exchange.fence, returned=False)


def duplicate(
    claim: Claim, stream: str, digest: bytes | None, *, running: bool, has_reader: bool, stale: bool
) -> Duplicate | None:
    """Compare a claim with the exchange `stream` that holds its id. None: the id is free for this request.

    Then the holder has ended, and its answer is kept for a request with another digest, or is `stale`.
    """
    same = digest == claim.digest and (running or has_reader or not stale)
    return Duplicate(stream, same, not running, has_reader) if running or same else None


def is_stale(kept_at: float, grace: float, now: float) -> bool:
    """Return True if an answer was kept for so long that its client will not repeat the request."""
    return now - kept_at > max(grace, KEPT_SECONDS)


def claimed_already(stream: str, *, running: bool, has_reader: bool) -> Duplicate:
    """Answer the claim of a stream that another replica has claimed, or that has ended."""
    return Duplicate(stream, same=True, finished=not running, has_reader=has_reader)


def forget_stale(doc: Document, now: float) -> bool:
    """Forget the kept answers, and their ends, whose clients will not repeat the request. False: there are none."""
    stale = [
        stream
        for stream, one in doc.exchanges.items()
        if one.kept and not one.reader and is_stale(one.kept_at, doc.record.grace, now)
    ]
    for stream in stale:
        forget(doc, stream)
    return bool(stale)


def release(doc: Document, stream: str, exchange: ExchangeRecord) -> None:
    """Free the id of an exchange that has ended, and the answer that was kept for a repeat, or its end."""
    if stream not in doc.logs:
        forget(doc, stream)
        return
    doc.exchanges[stream] = replace(exchange, kept=False)
    free_id(doc, stream, exchange)


# Requests that do not start


def give_back(doc: Document, stream: str, fence: int, now: float) -> None:
    """End an exchange of which nothing ran, and remember its name."""
    exchange = doc.exchanges.get(stream)
    if exchange is None or (exchange.running and not fence):
        _withdraw(doc, stream, surely=fence > 0)
    elif exchange.running and exchange.fence == fence:
        _unclaim(doc, stream, exchange, now)


def _unclaim(doc: Document, stream: str, exchange: ExchangeRecord, now: float) -> None:
    end_plain(doc, stream, exchange.fence, now)
    _withdraw(doc, stream, surely=True)


def _withdraw(doc: Document, stream: str, *, surely: bool) -> None:
    doc.withdrawn = doc.withdrawn or {}
    remember_withdrawn(doc.withdrawn, stream, surely=surely)


def remember_withdrawn(known: dict[str, bool], stream: str, *, surely: bool) -> None:
    """Remember that an exchange does not start, and forget the oldest ones; `surely`: nothing of it ran."""
    known[stream] = surely or known.get(stream, False)
    while len(known) > WITHDRAWN_STREAMS:
        del known[next(iter(known))]


# Ends


def end_plain(doc: Document, stream: str, fence: int, now: float) -> None:
    """End an exchange without a message: a plain answer was sent, or none. Nothing of it stays.

    Raises:
        Fenced, StreamClosed: as `Document.writable`; but an end that is sent again finds no exchange, and changes
            nothing.
    """
    exchange = doc.exchanges.get(stream)
    if exchange is None or exchange.fence != fence:
        if exchange is None and fence <= doc.fence:
            return
        raise Fenced
    if not exchange.running:
        raise StreamClosed
    _stop(doc, exchange, now)
    forget(doc, stream)
    _look_again(doc)


def settle(doc: Document, stream: str, fence: int, terminal: bytes, at: At, *, tag: int, keep: bool) -> None:
    """End an exchange with its terminal message.

    Raises:
        Fenced, StreamClosed: as `Document.writable`; but the same end that is sent again changes nothing.
    """
    exchange, log = doc.exchanges.get(stream), doc.logs.get(stream)
    if (
        exchange is not None
        and exchange.fence == fence
        and log is not None
        and log.closed
        and log.top.tag == tag
    ):
        return
    exchange = doc.writable(stream, fence)
    _end(doc, stream, exchange, terminal, at, tag=tag, keep=keep)


def reap(doc: Document, stream: str, owner: str, terminal: bytes, at: At, *, tag: int) -> bool:
    """End an exchange of an owner that was declared dead, under a new fence: the owner can write nothing more."""
    exchange, log = doc.exchanges.get(stream), doc.logs.get(stream)
    if exchange is None:
        return False
    if not exchange.running:
        return log is not None and log.top.tag == tag
    if exchange.owner != owner:
        return False
    for name in exchange.asks:
        doc.told += ((WakeUp.ANSWER, name, doc.asks[name].owner),)
    doc.fence += 1
    exchange = replace(exchange, fence=doc.fence)
    _end(doc, stream, exchange, terminal, at, tag=tag, keep=True)
    return True


def _end(
    doc: Document, stream: str, exchange: ExchangeRecord, terminal: bytes, at: At, *, tag: int, keep: bool
) -> None:
    _stop(doc, exchange, at.now)
    exchange = doc.exchanges[stream] = replace(exchange, running=False, kept=keep, kept_at=at.now, asks=())
    if not keep:
        free_id(doc, stream, exchange)
    if stream not in doc.logs:
        start(doc, stream, before_terminal(tag))
    write(doc, stream, exchange, [(tag, terminal)], at, final=True)
    finish(doc, stream, at)
    _look_again(doc)


def _stop(doc: Document, exchange: ExchangeRecord, now: float) -> None:
    """Count an exchange as no longer in flight, and forget its asks."""
    doc.running -= 1
    if not exchange.control:
        doc.calls -= 1
    doc.settled = doc.touched = now
    if exchange.asks:
        for name in exchange.asks:
            withdraw(doc, name, now)


def _look_again(doc: Document) -> None:
    """Give the session a new hint after an end, where it needs one.

    A hint that is too early is correct: a sweep replaces it. But if a sweep saw the session while this exchange ran,
    the hint may be as late as the end of the session's lifetime.
    """
    if doc.hint > doc.settled + doc.record.idle or doc.state is _DETACHED:
        doc.schedule()


def orphaned(doc: Document, owner: str, now: float) -> list[tuple[str, ExchangeRecord]]:
    """Forget the readers and turns of an incarnation that was declared dead; return the exchanges that it ran.

    Those of the earlier incarnations of its replica count too: they are dead as well.
    """
    lose_turns(doc, owner)
    lose_readers(doc, owner, now)
    return [
        (stream, one)
        for stream, one in doc.exchanges.items()
        if one.running and is_dead_with(one.owner, owner)
    ]


# After the end


def keep(doc: Document, stream: str, wanted: Claim, terminal: bytes | None, at: At, *, tag: int) -> None:
    """Keep a settled exchange's answer for a repeat, unless its id is in use again or a reader has received it."""
    if wanted.id in doc.ids:
        return
    exchange, log = doc.exchanges.get(stream), doc.logs.get(stream)
    if exchange is None:
        if terminal is None:
            return
        exchange = ExchangeRecord(
            wanted.id,
            wanted.digest,
            wanted.control,
            doc.fence,
            at.me,
            "",
            running=False,
            kept=True,
            kept_at=at.now,
        )
        # Its id, too, before there may be no room for it: its end stays.
        doc.add(stream, exchange)
        start(doc, stream, before_terminal(tag))
        write(doc, stream, exchange, [(tag, terminal)], at, final=True)
        finish(doc, stream, at)
        return
    if log is None or log.delivered == log.top:
        return
    doc.add(stream, replace(exchange, kept=True, kept_at=at.now))


def cancel(doc: Document, principal: str, request_id: RequestId) -> None:
    """Wake the owner of the exchange in flight under this id, if there is exactly one."""
    if doc.record.principal != principal:
        return
    if doc.record.isolate:
        # Several exchanges may have this id, and `ids` has one of them.
        matches = [stream for stream, one in doc.in_flight() if one.id == request_id]
    else:
        stream = doc.ids.get(request_id)
        matches = [stream] if stream is not None and doc.exchanges[stream].running else []
    if len(matches) == 1:
        [name] = matches
        exchange = doc.exchanges[name]
        if not exchange.cancelled:
            doc.exchanges[name] = replace(exchange, cancelled=True)
        doc.told += ((WakeUp.CANCEL, name, exchange.owner),)
