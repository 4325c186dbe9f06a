"""Streams: begun, written, and forgotten when there is no room.

The order in which data is forgotten (law 9), while the session is over its budget or the store over its own:

1. the oldest events of the stream that is written, down to its own bounds (`Log.trim`, a primitive of the store);
2. complete streams of the session without a reader: those that were delivered, else the oldest ones (`drop_finished`);
3. while only the store is over its budget: complete streams of other sessions (`forget_finished`, by the store's
   index);
4. the oldest events of the session's largest log, at least an eighth of it each time (`cut_largest`).

The newest event of a stream is never forgotten, so a terminal message can always be delivered.

An answer that is kept for a repeat leaves its *end* behind when it is forgotten in steps 2 and 3: the exchange stays,
with the id and the digest of its request, and without a log. A repeat finds it, and does not run again. It stays for as
long as the answer would have been kept.
"""

from limpet.config import Limits
from limpet.core.records import STANDALONE_FENCE, WakeUp
from limpet.core.rules.document import At, Document, ExchangeRecord, Index
from limpet.core.stream import Log, NewEvents, Position
from limpet.errors import StreamClosed


def start(doc: Document, stream: str, position: Position) -> Log:
    """Return the log of a stream. If it does not exist yet, begin it at `position`."""
    log = doc.logs.get(stream)
    if log is None:
        doc.add_log(stream, position)
        # A draft keeps another kind of log.
        log = doc.logs[stream]
    return log


def open_stream(doc: Document, stream: str, fence: int, tag: int) -> Position:
    """Begin the stream of an exchange. If it exists already, keep it."""
    doc.writable(stream, fence)
    return start(doc, stream, Position(1, tag)).low


def append(doc: Document, stream: str, fence: int, events: NewEvents, at: At) -> Position:
    """Add events to the stream of an exchange in flight, or to the standalone stream."""
    if fence == STANDALONE_FENCE:
        stream, exchange = doc.record.standalone, doc.standalone()
    else:
        exchange = doc.writable(stream, fence)
    return write(doc, stream, exchange, events, at)


def write(
    doc: Document, stream: str, exchange: ExchangeRecord, events: NewEvents, at: At, *, final: bool = False
) -> Position:
    """Add events to a log, and make room for them in the session.

    Raises:
        StreamClosed: the stream does not exist.
    """
    log = doc.logs.get(stream)
    if log is None:
        raise StreamClosed
    if log.top.tag == events[-1][0] and log.top.seq > log.low.seq:
        return log.top
    limits = at.limits
    before = log.bytes
    log.extend(events, final=final)
    log.trim(limits.stream_events, limits.stream_bytes)
    grown = log.bytes - before
    doc.size += grown
    if doc.size > limits.session_bytes or grown > at.spare:
        _make_room(doc, limits, at.spare - grown)
    doc.told += ((WakeUp.STREAM, stream, exchange.reader),)
    return log.top


def _make_room(doc: Document, limits: Limits, spare: int) -> None:
    most = min(limits.session_bytes, doc.size + spare)
    while doc.size > most and drop_finished(doc):
        pass
    while (over := doc.size - limits.session_bytes) > 0 and cut_largest(doc, over, limits):
        pass


def cut_largest(doc: Document, over: int, limits: Limits) -> bool:
    """Cut the largest log of the session. Return False if it has no event that may be deleted."""
    log = max(doc.logs.values(), key=lambda one: one.bytes, default=None)
    freed = 0 if log is None else log.trim(limits.stream_events, cut_to(log.bytes, over))
    doc.size -= freed
    return freed > 0


def cut_to(size: int, over: int) -> int:
    """Return the bytes that a session's largest log is cut to: those over the budget go, at least an eighth.

    Its reader has received these events, or does not read. The readers of other logs lose nothing.
    """
    return size - max(over, size // 8)


# Complete streams


def finish(doc: Document, stream: str, at: At) -> None:
    """Note that a stream is complete, and forget the streams that are needed least while there are too many."""
    if not doc.exchanges[stream].reader:
        doc.logs[stream].pack()
    doc.add_finished(stream, at.now)
    doc.told += ((Index.FINISHED, stream, ""),)
    while doc.complete > at.limits.finished_streams and drop_finished(doc):
        pass


def drop_finished(doc: Document) -> bool:
    """Forget the complete stream that is needed least. Return False if all of them have a reader."""
    name = _least_needed(doc)
    if name is None:
        return False
    _drop(doc, name)
    return True


def forget_finished(doc: Document, stream: str) -> bool:
    """Forget a complete stream, unless it has a reader: the reader may not have received the answer yet."""
    exchange = doc.exchanges.get(stream)
    if exchange is None or exchange.reader or stream not in doc.finished:
        return False
    _drop(doc, stream)
    return True


def _drop(doc: Document, stream: str) -> None:
    """Forget a complete stream; of an answer that is kept for a repeat, the end stays."""
    exchange, log = doc.exchanges[stream], doc.logs[stream]
    request_id = exchange.id
    # Isolated requests are never repeats.
    is_owed = exchange.kept and log.delivered != log.top and not doc.record.isolate
    if not is_owed or request_id is None or doc.ids.get(request_id) != stream:
        forget(doc, stream)
        return
    forget(doc, stream)
    doc.add(stream, exchange)


def _least_needed(doc: Document) -> str | None:
    """Return a complete stream without a reader: one that was delivered, else the oldest."""
    fallback = None
    for name in doc.finished:
        if doc.exchanges[name].reader:
            continue
        log = doc.logs[name]
        if log.delivered == log.top:
            return name
        fallback = fallback or name
    return fallback


def forget(doc: Document, stream: str) -> None:
    """Forget an exchange with everything of it."""
    exchange = doc.exchanges.pop(stream)
    # As `free_id`, without a call: a plain call ends here.
    if exchange.id is not None and doc.ids.get(exchange.id) == stream:
        del doc.ids[exchange.id]
    if exchange.reader:
        doc.readers -= 1
    log = doc.logs.pop(stream, None) if doc.logs else None
    if log is not None:
        doc.size -= log.bytes
        if doc.finished.pop(stream, None) is not None:
            doc.complete -= 1
        doc.told += ((Index.FORGOTTEN, stream, ""),)


def free_id(doc: Document, stream: str, exchange: ExchangeRecord) -> None:
    """Free the request id of an exchange, unless a later exchange uses it."""
    if exchange.id is not None and doc.ids.get(exchange.id) == stream:
        del doc.ids[exchange.id]
