"""Asks: their number is limited, the first answer counts, and a later one is compared with it.

An ask belongs to the stream that it was sent on, and ends with it. The digest of its answer is remembered for a while,
so that a client that did not receive our 202 may send its answer again.
"""

from collections import OrderedDict

from msgspec.structs import replace

from limpet.core.records import REMEMBERED_ANSWERS, REMEMBERED_SECONDS, Answered, Refusal, WakeUp
from limpet.core.rules.document import Ask, Document


def ask(doc: Document, name: str, stream: str, me: str, most: int) -> bool:
    """Register an ask if fewer than `most` have no answer, and its stream does not keep too many answers."""
    if name in doc.asks:
        return True
    if doc.outstanding >= most:
        return False
    exchange = doc.standalone() if stream == doc.record.standalone else doc.exchanges.get(stream)
    if len(doc.asks) >= REMEMBERED_ANSWERS:
        kept = sum(one.answer is not None for one in doc.asks.values() if one.stream == stream)
        if kept >= REMEMBERED_ANSWERS:
            return False
    if exchange is not None:
        doc.exchanges[stream] = replace(exchange, asks=(*exchange.asks, name))
    doc.add_ask(name, Ask(stream, me))
    doc.outstanding += 1
    return True


def answer(
    doc: Document, principal: str, name: str, digest: bytes, payload: bytes, now: float
) -> Answered | Refusal:
    """Keep the first answer, and wake its asker."""
    if doc.record.principal != principal:
        return Refusal.NO_SESSION
    known = doc.asks.get(name)
    if known is None:
        return _forgotten(doc, name, digest, now)
    if known.answer is not None:
        return answered(known.digest, digest)
    doc.asks[name] = replace(known, answer=payload, digest=digest)
    doc.outstanding -= 1
    doc.told += ((WakeUp.ANSWER, name, known.owner),)
    return Answered.FIRST


def take_answer(doc: Document, name: str) -> bytes | None:
    """Return the answer of an ask; empty while it waits; None if it is unknown or forgotten."""
    known = doc.asks.get(name)
    return None if known is None else known.answer or b""


def _forgotten(doc: Document, name: str, digest: bytes, now: float) -> Answered:
    """Compare an answer with the first answer of an ask that is forgotten."""
    while doc.answered and next(iter(doc.answered.values()))[1] <= now:
        doc.answered.popitem(last=False)
    first = doc.answered.get(name) if doc.answered else None
    return Answered.UNKNOWN if first is None else answered(first[0], digest)


def answered(first: bytes, digest: bytes) -> Answered:
    """Compare an answer with the first one, by their digests."""
    return Answered.AGAIN if first == digest else Answered.CONFLICT


def withdraw(doc: Document, name: str, now: float) -> None:
    """Forget an ask and its answer. The digest of the answer is kept for REMEMBERED_SECONDS."""
    known = doc.asks.pop(name, None)
    if known is None:
        return
    exchange = doc.exchanges.get(known.stream)
    if exchange is not None and name in exchange.asks:
        rest = tuple(one for one in exchange.asks if one != name)
        doc.exchanges[known.stream] = replace(exchange, asks=rest)
    if known.answer is None:
        doc.outstanding -= 1
        return
    if doc.answered is None:
        doc.answered = OrderedDict()
    doc.answered[name] = known.digest, now + REMEMBERED_SECONDS
    if len(doc.answered) > REMEMBERED_ANSWERS:
        doc.answered.popitem(last=False)
