"""Readers: each stream has one at a time, and a new one replaces it.

A reader has a generation, so the end of an old connection cannot remove a newer reader. A reader that breaks may be the
last one of its session: then the session is detached, and its grace period starts.
"""

from msgspec.structs import replace

from limpet.core.records import STANDALONE_FENCE, Attached, Probed, Refusal, WakeUp
from limpet.core.rules.document import Document, ExchangeRecord, is_dead_with, replica_of
from limpet.core.rules.streams import free_id
from limpet.core.stream import Position


def attach(
    doc: Document, principal: str, stream: str | None, cursor: Position | None, since: int | None, me: str, now: float
) -> Attached | Refusal:  # fmt: skip
    """Make the caller the reader of the stream. It replaces the reader before it."""
    if doc.record.principal != principal:
        return Refusal.NO_SESSION
    name = doc.record.standalone if stream is None else stream
    exchange = doc.standalone() if name == doc.record.standalone else doc.exchanges.get(name)
    log = doc.logs.get(name)
    if exchange is None or log is None:
        return _unreadable(doc, name, exchange)
    if cursor is None:
        cursor = log.delivered if exchange.fence == STANDALONE_FENCE else log.start
    elif not log.proves(cursor):
        return Refusal.UNRESUMABLE
    if since is not None:
        if exchange.reader and exchange.generation != since:
            return Refusal.BUSY
        cursor = max(cursor, log.delivered)
        if exchange.reader:
            return Attached(doc.record, since, cursor, returned=False, finished=log.is_end(cursor))
    returned = doc.client_seen(now)
    generation = _take_place(doc, name, exchange, me)
    return Attached(doc.record, generation, cursor, returned, log.is_end(cursor))


def _take_place(doc: Document, stream: str, exchange: ExchangeRecord, me: str) -> int:
    """Make a connection of this replica the reader; return its generation."""
    if not exchange.reader:
        doc.readers += 1
    elif replica_of(exchange.reader) != replica_of(me):
        doc.told += ((WakeUp.TAKEN, stream, exchange.reader),)
    if doc.withdrawn is not None:
        # A connection waits for it again.
        doc.withdrawn.pop(stream, None)
    doc.exchanges[stream] = replace(exchange, reader=me, generation=exchange.generation + 1)
    return exchange.generation + 1


def _unreadable(doc: Document, stream: str, exchange: ExchangeRecord | None) -> Refusal:
    """Return why a stream that does not exist cannot be read."""
    if exchange is not None and exchange.running:
        return Refusal.UNBEGUN
    return Refusal.WITHDRAWN if is_given_back(doc, stream) else Refusal.UNRESUMABLE


def detach(
    doc: Document, stream: str, generation: int, cursor: Position | None, now: float, *, broke: bool
) -> bool:
    """Remove the reader of a stream. If it broke and no reader is left, the grace period starts."""
    exchange = doc.exchanges.get(stream)
    if exchange is None or exchange.generation != generation or not exchange.reader:
        return False
    log, is_kept = doc.logs.get(stream), exchange.kept
    if cursor is not None and log is not None:
        log.delivered = max(log.delivered, cursor)
        if log.closed:
            log.pack()
        if is_kept and log.delivered == log.top:
            is_kept = False
            free_id(doc, stream, exchange)
    doc.exchanges[stream] = replace(exchange, reader="", kept=is_kept)
    is_detached = doc.reader_lost(now, broke=broke)
    doc.schedule()
    return is_detached


def lose_readers(doc: Document, owner: str, now: float) -> None:
    """Remove the readers of an incarnation that was declared dead, as breaks."""
    for stream, exchange in list(doc.exchanges.items()):
        if is_dead_with(exchange.reader, owner):
            doc.exchanges[stream] = replace(exchange, reader="")
            doc.reader_lost(now, broke=True)
            doc.schedule()


def is_given_back(doc: Document, stream: str) -> bool:
    """Return True if nothing of an exchange ran, and it does not exist."""
    return doc.withdrawn is not None and doc.withdrawn.get(stream, False) and stream not in doc.exchanges


def probe(doc: Document, stream: str, me: str) -> Probed | None:
    """Return the state of a stream and its reader, and wake the replica that has the reader."""
    if is_given_back(doc, stream):
        return Probed(running=False, kept=False, reader="", word=0, withdrawn=True)
    exchange = doc.exchanges.get(stream)
    if exchange is None:
        return None
    reader = replica_of(exchange.reader)
    if reader and reader != replica_of(me):
        doc.told += ((WakeUp.PROBE, stream, exchange.reader),)
    is_left = doc.withdrawn is not None and stream in doc.withdrawn
    return Probed(
        exchange.running,
        exchange.kept,
        reader,
        exchange.word,
        withdrawn=is_left,
        generation=exchange.generation,
    )


def vouch(doc: Document, stream: str, *, alive: bool) -> None:
    """Record that the reader is alive, or that it is not."""
    exchange = doc.exchanges.get(stream)
    if exchange is not None:
        doc.exchanges[stream] = replace(exchange, word=exchange.word // 2 * 2 + 2 + alive)
