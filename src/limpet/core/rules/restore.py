"""What a failover of the store has lost, and its writer still knows: claims, events and asks come back as they were.

A store with asynchronous replicas may lose its last commits. Their writer notices it by the numbers of its commits. It
restores the exchanges that run in it, under the same fences; their last events, under the same positions, so that
readers continue as if nothing had happened; and the asks that wait. If the events that it remembers begin after the
last one in the store, there is a gap, which readers receive.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from limpet.core.records import WakeUp
from limpet.core.rules.document import Ask, Document, ExchangeRecord
from limpet.core.rules.streams import start
from limpet.core.stream import Event, Position


class Writes(Struct, frozen=True):
    """The newest events of a stream, and the position before them."""

    before: Position
    events: Sequence[Event]


def restore(
    doc: Document,
    exchanges: Mapping[str, ExchangeRecord],
    asks: Mapping[str, Ask],
    logs: Mapping[str, Writes],
) -> int:
    """Put back the exchanges and asks that are missing, and the events of the exchanges in flight. Returns how many."""
    count = 0
    for stream, exchange in sorted(exchanges.items(), key=lambda item: item[1].fence):
        if doc.exchanges.get(stream) is None:
            _restore_exchange(doc, stream, exchange)
            count += 1
    for stream, writes in logs.items():
        found = doc.exchanges.get(stream)
        if found is not None and found.running:
            count += _restore_log(doc, stream, found, writes)
    for name, ask in asks.items():
        found = doc.exchanges.get(ask.stream)
        waits = ask.stream == doc.record.standalone or (found is not None and found.running)
        if doc.asks.get(name) is None and waits:
            doc.add_ask(name, ask)
            doc.outstanding += ask.answer is None
            if found is not None and name not in found.asks:
                doc.exchanges[ask.stream] = replace(found, asks=(*found.asks, name))
            count += 1
        elif not waits:
            doc.told += ((WakeUp.ANSWER, name, ask.owner),)
    return count


def _restore_exchange(doc: Document, stream: str, exchange: ExchangeRecord) -> None:
    request_id = exchange.id
    holder = None if request_id is None else doc.ids.get(request_id)
    doc.add(stream, exchange)
    if request_id is not None and holder is not None:
        # A later exchange uses it.
        doc.ids[request_id] = holder
    doc.fence = max(doc.fence, exchange.fence)
    doc.running += 1
    doc.calls += not exchange.control
    doc.readers += exchange.has_reader


def _restore_log(doc: Document, stream: str, exchange: ExchangeRecord, writes: Writes) -> int:
    """Add the events that the log does not have. Returns how many."""
    log = doc.logs.get(stream)
    if log is None:
        log = start(doc, stream, Position(1, writes.before.tag))
    size = log.bytes
    if writes.before.seq > log.top.seq:
        log.skip_to(writes.before)
    missing = [event for event in writes.events if event.position.seq > log.top.seq]
    for event in missing:
        log.append(event.position.tag, event.data)
    doc.size += log.bytes - size
    if missing:
        doc.told += ((WakeUp.STREAM, stream, exchange.reader),)
    return len(missing)
