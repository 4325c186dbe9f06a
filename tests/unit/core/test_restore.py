"""After a failover of the store: what its writer still knows is in the document again, once, and readers see no difference."""

from typing import Final

from msgspec.structs import replace

from limpet.core.records import Claim, Claimed, WakeUp
from limpet.core.rules import asks, calls, streams
from limpet.core.rules.document import Ask, At, Document, ExchangeRecord
from limpet.core.rules.restore import Writes, restore
from limpet.core.stream import Event, Position
from limpet.testing.store.bench import PRINCIPAL, record
from limpet.testing.store.limits import tight

ME: Final = "one.1"
AT: Final = At(5.0, ME, tight(stream_events=10, session_bytes=1000), spare=1 << 30)
TAG: Final = 7


def opened() -> Document:
    """Return the session as the failover has left it: it was opened, and nothing more."""
    return Document(record(), 0.0)


def claimed(doc: Document, stream: str, request_id: int) -> int:
    """Claim a request; return its fence."""
    found = calls.claim(doc, PRINCIPAL, Claim(request_id, stream, b"body"), ME, 5, 1.0)
    assert isinstance(found, Claimed)
    return found.fence


def working() -> Document:
    """Return the session as its writer knows it: a plain call, and one with two events and an ask."""
    doc = opened()
    claimed(doc, "plain", 1)
    fence = claimed(doc, "streamed", 2)
    streams.open_stream(doc, "streamed", fence, TAG)
    streams.append(doc, "streamed", fence, [(TAG, b"first"), (TAG, b"second")], AT)
    assert asks.ask(doc, "streamed.1", "streamed", ME, 4)
    return doc


def known(doc: Document) -> tuple[dict[str, ExchangeRecord], dict[str, Ask], dict[str, Writes]]:
    """Return the exchanges, asks and events that the writer remembers."""
    events = [Event(Position(2, TAG), b"first"), Event(Position(3, TAG), b"second")]
    return dict(doc.in_flight()), dict(doc.asks.items()), {"streamed": Writes(Position(1, TAG), events)}


def counters(doc: Document) -> tuple[object, ...]:
    """Return the numbers of the header that exchanges, asks and logs change."""
    return doc.running, doc.calls, doc.readers, doc.outstanding, doc.size, doc.fence


def read(doc: Document) -> list[tuple[Position, bytes]]:
    """Return the events that a reader gets from the beginning of the stream."""
    page = doc.logs["streamed"].read(Position(1, TAG), 10, 1000)
    return [(event.position, bytes(event.data)) for event in page.events]


def test_calls_events_and_asks_come_back_as_they_were() -> None:
    before, after = working(), opened()
    assert restore(after, *known(before)) == 5
    assert dict(after.in_flight()) == dict(before.in_flight())
    assert dict(after.ids.items()) == dict(before.ids.items())
    assert dict(after.asks.items()) == dict(before.asks.items())
    assert read(after) == read(before) == [(Position(2, TAG), b"first"), (Position(3, TAG), b"second")]
    assert counters(after) == counters(before)


def test_what_is_there_is_not_restored_again() -> None:
    before, after = working(), opened()
    restore(after, *known(before))
    numbers, after.told = counters(after), ()
    assert restore(after, *known(before)) == 0
    assert (counters(after), after.told) == (numbers, ())


def test_readers_are_woken_for_restored_events() -> None:
    before, after = working(), opened()
    restore(after, *known(before))
    reader = after.exchanges["streamed"].reader
    assert (WakeUp.STREAM, "streamed", reader) in after.told


def test_a_store_that_has_some_of_the_events_gets_the_others() -> None:
    before, after = working(), opened()
    exchanges, waiting, logs = known(before)
    first = Writes(logs["streamed"].before, logs["streamed"].events[:1])
    assert restore(after, exchanges, waiting, {"streamed": first}) == 4
    assert restore(after, exchanges, waiting, logs) == 1
    assert read(after) == read(before)
    assert counters(after) == counters(before)


def test_events_that_the_writer_has_forgotten_too_are_a_gap() -> None:
    before, after = working(), opened()
    exchanges, waiting, logs = known(before)
    later = Writes(Position(2, TAG), logs["streamed"].events[1:])
    restore(after, exchanges, waiting, {"streamed": Writes(Position(1, TAG), ())})
    restore(after, exchanges, waiting, {"streamed": later})
    page = after.logs["streamed"].read(Position(1, TAG), 10, 1000)
    assert [event.position for event in page.events] == [Position(3, TAG)]
    assert page.missed is not None


def test_the_events_before_those_that_the_writer_remembers_stay() -> None:
    before, after = working(), opened()
    exchanges, waiting, logs = known(before)
    first, second = logs["streamed"].events
    restore(after, exchanges, waiting, {"streamed": Writes(Position(1, TAG), (first,))})
    assert restore(after, exchanges, waiting, {"streamed": Writes(first.position, (second,))}) == 1
    assert read(after) == read(before)


def test_an_ask_that_comes_back_belongs_to_its_call_also_if_the_call_was_not_lost() -> None:
    before, after = working(), opened()
    exchanges, waiting, logs = known(before)
    restore(after, {stream: replace(one, asks=()) for stream, one in exchanges.items()}, {}, logs)
    restore(after, exchanges, waiting, logs)
    assert after.exchanges["streamed"].asks == ("streamed.1",)


def test_a_call_that_has_ended_gets_no_events_and_its_ask_is_answered_as_lost() -> None:
    before, after = working(), opened()
    exchanges, waiting, logs = known(before)
    restore(after, exchanges, {}, {})
    calls.settle(after, "streamed", exchanges["streamed"].fence, b"end", AT, tag=9, keep=True)
    size, told = after.size, len(after.told)
    assert restore(after, exchanges, waiting, logs) == 0
    assert (after.size, after.outstanding, dict(after.asks.items())) == (size, 0, {})
    assert list(after.told[told:]) == [(WakeUp.ANSWER, "streamed.1", ME)]


def test_an_id_that_another_request_has_taken_stays_with_it() -> None:
    before, after = working(), opened()
    claimed(after, "other", 1)
    restore(after, *known(before))
    assert after.ids[1] == "other"
    assert after.exchanges["plain"].running


def test_the_end_of_a_restored_call_leaves_its_id_to_the_request_that_has_taken_it() -> None:
    before, after = working(), opened()
    claimed(after, "other", 1)
    restore(after, *known(before))
    calls.settle(after, "plain", after.exchanges["plain"].fence, b"end", AT, tag=9, keep=False)
    assert after.ids[1] == "other"
