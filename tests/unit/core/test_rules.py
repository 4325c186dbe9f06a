"""The rules of a session, without a store: they raise before they change anything, and name what the store has to do."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NoReturn

import pytest
from typing_extensions import override

from limpet.core.lifecycle import SessionInput, SessionState
from limpet.core.records import (
    KEPT_SECONDS,
    STANDALONE_FENCE,
    USED_IDS,
    Answered,
    Attached,
    Claim,
    Claimed,
    Duplicate,
    Ending,
    Refusal,
    WakeUp,
)
from limpet.core.rules import asks, calls, life, readers, streams, turns
from limpet.core.rules.document import At, Document, ExchangeRecord, Index, Told
from limpet.core.stream import Position
from limpet.errors import Fenced, LimpetError, StreamClosed
from limpet.testing.store.bench import PRINCIPAL, STRANGER, record
from limpet.testing.store.limits import tight

ME: Final = "one.1"
OTHER: Final = "two.1"
LIMITS: Final = tight(stream_events=3, session_bytes=100, finished_streams=2)
NO_ROOM: Final = At(5.0, ME, LIMITS, spare=0)
AT: Final = At(5.0, ME, LIMITS, spare=1 << 30)
MOST: Final = 3


def claimed(doc: Document, stream: str = "a", request_id: int = 1, me: str = ME) -> int:
    """Claim a request; return its fence."""
    found = calls.claim(doc, PRINCIPAL, Claim(request_id, stream, b"body"), me, MOST, 1.0)
    assert isinstance(found, Claimed)
    return found.fence


def working() -> Document:
    """Return a session with a plain call, a streamed call, one that has ended, and an ask."""
    doc = Document(record(), 0.0)
    claimed(doc, "plain", 1)
    streams.open_stream(doc, "streamed", claimed(doc, "streamed", 2), 7)
    calls.settle(doc, "ended", claimed(doc, "ended", 3), b"last", AT, tag=9, keep=True)
    assert asks.ask(doc, "streamed.1", "streamed", ME, 4)
    doc.told = ()
    return doc


def told(doc: Document) -> tuple[Told, ...]:
    """Return the wake-ups and changes of indexes that a document has for its store, and empty them, as a commit does."""
    found, doc.told = doc.told, ()
    return found


def facts(doc: Document) -> dict[str, Any]:
    """Return a copy of everything in a document."""
    names = [name for name in Document.__slots__ if name != "logs"]
    logs = {name: (log.low, log.top, log.delivered, log.bytes, log.closed) for name, log in doc.logs.items()}
    return {"logs": logs, **{name: copy.copy(getattr(doc, name)) for name in names}}


EVENTS: Final = [(11, b"data")]
RAISING: Final[dict[str, tuple[Callable[[Document], object], type[LimpetError]]]] = {
    "a plain end of a call that was never claimed": (
        partial(calls.end_plain, stream="none", fence=9, now=5.0),
        Fenced,
    ),
    "a plain end with another fence": (partial(calls.end_plain, stream="plain", fence=9, now=5.0), Fenced),
    "a plain end of a call that has ended": (
        partial(calls.end_plain, stream="ended", fence=3, now=5.0),
        StreamClosed,
    ),
    "an end with another fence": (
        partial(calls.settle, stream="streamed", fence=9, terminal=b"", at=AT, tag=8, keep=False),
        Fenced,
    ),
    "another end of a call that has ended": (
        partial(calls.settle, stream="ended", fence=3, terminal=b"", at=AT, tag=8, keep=False),
        StreamClosed,
    ),
    "an append with another fence": (
        partial(streams.append, stream="streamed", fence=1, events=EVENTS, at=AT),
        Fenced,
    ),
    "an append to a stream that was not opened": (
        partial(streams.append, stream="plain", fence=1, events=EVENTS, at=AT),
        StreamClosed,
    ),
    "an append after the end": (
        partial(streams.append, stream="ended", fence=3, events=EVENTS, at=AT),
        StreamClosed,
    ),
    "a stream of a call that has ended": (
        partial(streams.open_stream, stream="ended", fence=3, tag=4),
        StreamClosed,
    ),
    "a turn with another fence": (partial(turns.turn, stream="plain", fence=2), Fenced),
    "a turn that is held after the end": (
        partial(turns.hold_turn, stream="ended", fence=3, me=ME),
        StreamClosed,
    ),
}


@pytest.mark.parametrize("name", RAISING)
def test_a_rule_that_raises_has_changed_nothing(name: str) -> None:
    rule, error = RAISING[name]
    doc = working()
    before = facts(doc)
    with pytest.raises(error):
        rule(doc)
    assert facts(doc) == before


AGAIN: Final[dict[str, Callable[[Document], object]]] = {
    "claim": lambda doc: calls.claim(doc, PRINCIPAL, Claim(1, "plain", b"body"), ME, MOST, 1.0),
    "the same end": partial(calls.settle, stream="ended", fence=3, terminal=b"last", at=AT, tag=9, keep=True),
    "a plain end that was done": partial(calls.end_plain, stream="gone", fence=2, now=5.0),
    "open_stream": partial(streams.open_stream, stream="streamed", fence=2, tag=8),
    "ask": lambda doc: asks.ask(doc, "streamed.1", "streamed", ME, 1),
    "a detach of an older reader": lambda doc: readers.detach(doc, "streamed", 7, None, 5.0, broke=True),
}


@pytest.mark.parametrize("name", AGAIN)
def test_a_command_that_was_done_changes_nothing(name: str) -> None:
    doc = working()
    before = facts(doc)
    AGAIN[name](doc)
    assert facts(doc) == before


def test_strangers_are_answered_as_for_no_session_and_change_nothing() -> None:
    doc = working()
    before = facts(doc)
    assert calls.claim(doc, STRANGER, Claim(8, "b", b""), ME, MOST, 5.0) is Refusal.NO_SESSION
    assert readers.attach(doc, STRANGER, None, None, None, ME, 5.0) is Refusal.NO_SESSION
    assert asks.answer(doc, STRANGER, "streamed.1", b"", b"", 5.0) is Refusal.NO_SESSION
    assert life.find(doc, STRANGER, 5.0) is None
    calls.cancel(doc, STRANGER, 1)
    assert facts(doc) == before


def test_a_claim_of_another_replica_is_a_duplicate_of_its_own_stream() -> None:
    doc = working()
    found = calls.claim(doc, PRINCIPAL, Claim(1, "plain", b"body"), OTHER, MOST, 1.0)
    assert found == Duplicate("plain", same=True, finished=False, has_reader=True)


def test_wake_ups_are_for_the_replica_that_needs_them() -> None:
    doc = working()
    taken = readers.attach(doc, PRINCIPAL, "streamed", None, None, OTHER, 5.0)
    assert isinstance(taken, Attached)
    assert told(doc) == ((WakeUp.TAKEN, "streamed", ME),)
    streams.append(doc, "streamed", 2, EVENTS, AT)
    calls.cancel(doc, PRINCIPAL, 2)
    assert asks.answer(doc, PRINCIPAL, "streamed.1", b"d", b"{}", 5.0) is Answered.FIRST
    probed = readers.probe(doc, "streamed", ME)
    assert probed is not None
    assert probed.reader == "two"
    assert told(doc) == (
        (WakeUp.STREAM, "streamed", OTHER),
        (WakeUp.CANCEL, "streamed", ME),
        (WakeUp.ANSWER, "streamed.1", ME),
        (WakeUp.PROBE, "streamed", OTHER),
    )


def test_a_reaped_call_ends_under_a_new_fence_and_wakes_its_asker() -> None:
    doc = working()
    assert not calls.reap(doc, "streamed", OTHER, b"lost", AT, tag=20), "it is not that owner's"
    assert calls.reap(doc, "streamed", ME, b"lost", AT, tag=20)
    assert calls.reap(doc, "streamed", ME, b"lost", AT, tag=20), "sent again"
    with pytest.raises(Fenced):
        streams.append(doc, "streamed", 2, EVENTS, AT)
    assert (WakeUp.ANSWER, "streamed.1", ME) in doc.told
    assert doc.outstanding == 0
    assert doc.exchanges["streamed"].kept


def test_a_dead_replica_loses_its_readers_and_its_turns() -> None:
    doc = Document(record(), 0.0)
    fence = claimed(doc)
    turns.hold_turn(doc, "a", fence, ME)
    claimed(doc, "b", 2, OTHER)
    readers.lose_readers(doc, ME, 9.0)
    turns.lose_turns(doc, ME)
    assert (doc.readers, doc.state, doc.held) == (1, SessionState.ATTACHED, {})
    readers.lose_readers(doc, OTHER, 9.0)
    assert (doc.readers, doc.state) == (0, SessionState.DETACHED)


def test_a_session_over_its_budget_forgets_complete_streams_and_then_cuts_its_largest_log() -> None:
    doc = working()
    readers.detach(doc, "ended", 0, None, 5.0, broke=False)
    streams.append(doc, "streamed", 2, [(21, b"x" * 98)], AT)
    assert told(doc)[0] == (Index.FORGOTTEN, "ended", "")
    assert (doc.size, doc.finished) == (98, {})
    assert (doc.ids[3], "ended" in doc.logs) == ("ended", False), "its end stays"
    streams.append(doc, "streamed", 2, [(22, b"x" * 50)], AT)
    assert doc.size == 50
    assert [event.position.tag for event in doc.logs["streamed"].events] == [22]


def test_a_store_without_room_costs_the_writer_its_complete_streams() -> None:
    doc = working()
    readers.detach(doc, "ended", 0, None, 5.0, broke=False)
    streams.append(doc, "streamed", 2, [(21, b"x")], NO_ROOM)
    assert doc.size == 1
    assert not streams.forget_finished(doc, "ended"), "it is forgotten already"


def test_the_newest_complete_streams_are_kept_within_their_number() -> None:
    doc = Document(record(), 0.0)
    for number in range(4):
        fence = claimed(doc, f"s{number}", number)
        readers.detach(doc, f"s{number}", 0, None, 1.0, broke=False)
        calls.settle(doc, f"s{number}", fence, b"last", AT, tag=number + 1, keep=False)
    assert list(doc.finished) == ["s2", "s3"]
    assert doc.exchanges.keys() == doc.logs.keys() == {"s2", "s3"}


def test_a_closed_session_leaves_the_complete_streams_that_are_read() -> None:
    doc = working()
    streams.append(doc, "", STANDALONE_FENCE, EVENTS, AT)
    left = life.close(doc, SessionInput.DELETED, Ending(b'{"id":', b"}", 30), AT)
    assert sorted(left) == ["ended", "streamed"], (
        "the plain call has no stream, and the standalone stream never ends"
    )
    assert [event.data for event in left["streamed"].events] == [b'{"id":2}']
    assert doc.told[-1] == (WakeUp.CLOSED, "", "")
    assert doc.state is SessionState.CLOSED


def test_a_hint_is_never_later_than_the_deadline_of_an_idle_session() -> None:
    doc = Document(record(idle=10.0, grace=4.0, lifetime=1e6), 0.0)
    doc.schedule()
    assert doc.hint == 10.0
    fence = claimed(doc)
    assert life.examine(doc, 10.0) is None, "work counts as life"
    readers.detach(doc, "a", 0, Position(1, 1), 12.0, broke=True)
    assert doc.hint == 16.0
    calls.end_plain(doc, "a", fence, 13.0)
    assert life.examine(doc, 16.0) is None
    assert doc.hint == 17.0
    assert life.examine(doc, 17.0) is SessionInput.GRACE_OVER
    assert doc.hint == 18.0, "it is examined again, should it not be closed now"


class Unscanned(dict[str, ExchangeRecord]):
    """A table that cannot be read as a whole."""

    @override
    def items(self) -> NoReturn:
        raise AssertionError("a cancellation finds its exchange by its id")


def test_a_cancellation_finds_its_exchange_by_its_id() -> None:
    """A batch of cancellations read all exchanges of its session for each of them."""
    doc = working()
    doc.exchanges = Unscanned(doc.exchanges)
    for request_id in (1, "1", 3, 99):
        calls.cancel(doc, PRINCIPAL, request_id)
    assert told(doc) == ((WakeUp.CANCEL, "plain", ME),)


def repeated(doc: Document, request_id: int, now: float, digest: bytes = b"body") -> object:
    """Claim a request that may be a repeat."""
    return calls.claim(doc, PRINCIPAL, Claim(request_id, f"again{now}", digest), ME, MOST, now)


def dropped() -> Document:
    """Return a session with an answer that was kept, and had to be dropped."""
    doc = Document(record(), 0.0)
    calls.settle(doc, "a", claimed(doc), b"last", AT, tag=9, keep=True)
    readers.detach(doc, "a", 0, None, 5.0, broke=True)
    assert streams.drop_finished(doc)
    assert (doc.size, doc.complete, doc.logs, doc.finished) == (0, 0, {}, {})
    return doc


def test_a_dropped_answer_leaves_its_end_and_a_repeat_of_its_request_does_not_run() -> None:
    doc = dropped()
    assert repeated(doc, 1, 6.0) == Duplicate("a", same=True, finished=True, has_reader=False)
    assert readers.attach(doc, PRINCIPAL, "a", None, None, ME, 6.0) is Refusal.UNRESUMABLE
    assert not streams.drop_finished(doc)
    assert not streams.forget_finished(doc, "a")
    assert doc.running == doc.calls == doc.readers == 0


@pytest.mark.parametrize("why", ["another request", "the time is over"])
def test_an_end_frees_its_id_for_another_request_and_after_its_time(why: str) -> None:
    doc = dropped()
    later = 5.0 + max(doc.record.grace, KEPT_SECONDS) + 1
    found = repeated(doc, 1, 6.0, b"other") if why == "another request" else repeated(doc, 1, later)
    assert isinstance(found, Claimed)
    assert "a" not in doc.exchanges


def test_an_answer_that_was_taken_or_is_not_kept_leaves_no_end() -> None:
    doc = Document(record(), 0.0)
    calls.settle(doc, "taken", claimed(doc, "taken", 1), b"last", AT, tag=9, keep=True)
    readers.detach(doc, "taken", 0, doc.logs["taken"].top, 5.0, broke=False)
    calls.settle(doc, "free", claimed(doc, "free", 2), b"last", AT, tag=9, keep=False)
    readers.detach(doc, "free", 0, None, 5.0, broke=False)
    assert streams.drop_finished(doc)
    assert streams.drop_finished(doc)
    assert (doc.exchanges, doc.ids) == ({}, {})


def test_an_answer_that_has_no_room_when_it_is_kept_leaves_its_end() -> None:
    doc = Document(record(), 0.0)
    for number in range(4):
        name = f"s{number}"
        calls.end_plain(doc, name, claimed(doc, name, number), 1.0)
        calls.keep(doc, name, Claim(number, name, b"body"), b"last", AT, tag=number + 1)
    assert list(doc.finished) == ["s2", "s3"]
    assert sorted(doc.ids.values()) == ["s0", "s1", "s2", "s3"]
    for number in range(4):
        assert isinstance(repeated(doc, number, 6.0), Duplicate)


def test_a_call_is_refused_before_it_runs_while_there_is_no_room_for_its_end() -> None:
    doc = Document(record(), 0.0)
    for number in range(USED_IDS):
        calls.settle(
            doc, f"s{number}", claimed(doc, f"s{number}", number), b"last", AT, tag=number + 1, keep=True
        )
        readers.detach(doc, f"s{number}", 0, None, 1.0, broke=True)
    assert len(doc.ids) == USED_IDS
    assert repeated(doc, USED_IDS, 6.0) is Refusal.BUSY
    assert isinstance(repeated(doc, 0, 6.0), Duplicate)
    control = Claim(USED_IDS, "control", b"body", control=True)
    assert isinstance(calls.claim(doc, PRINCIPAL, control, ME, MOST, 6.0), Claimed), "law 10"
    calls.end_plain(doc, "control", doc.fence, 6.0)
    later = 5.0 + max(doc.record.grace, KEPT_SECONDS) + 1
    assert isinstance(repeated(doc, USED_IDS, later), Claimed)
    assert len(doc.exchanges) == 1
