"""Details of the rules that no other test of them needs: each was a mutant that survived (`python -m tests.bugbank.mutants`)."""

from collections import OrderedDict
from typing import Final

import pytest
from msgspec.structs import replace

from limpet.core.records import KEPT_SECONDS, Answered, Claim, Claimed, WakeUp
from limpet.core.rules import asks, calls, life, readers, streams
from limpet.core.rules.document import Ask, At, Document, is_dead_with
from limpet.core.stream import Packed
from limpet.testing.store.bench import PRINCIPAL, record
from limpet.testing.store.limits import tight

ME: Final = "one.1"
LIMITS: Final = tight(subscriptions=2)
AT: Final = At(5.0, ME, LIMITS, spare=1 << 30)


def begun(doc: Document, stream: str = "a", request_id: int = 1) -> int:
    claimed = calls.claim(doc, PRINCIPAL, Claim(request_id, stream, b"body"), ME, 9, 1.0)
    assert isinstance(claimed, Claimed)
    return claimed.fence


@pytest.fixture
def doc() -> Document:
    return Document(record(), 0.0)


def test_only_expired_digests_of_answers_are_forgotten(doc: Document) -> None:
    doc.answered = OrderedDict(old=(b"x", 5.0), new=(b"y", 50.0))
    assert asks._forgotten(doc, "new", b"y", 10.0) is Answered.AGAIN
    assert list(doc.answered) == ["new"]
    assert asks._forgotten(doc, "new", b"y", 50.0) is Answered.UNKNOWN


def test_a_withdrawn_ask_leaves_its_exchange_and_no_other_does(doc: Document) -> None:
    begun(doc)
    for name in ("first", "second"):
        assert asks.ask(doc, name, "a", ME, 4)
    asks.withdraw(doc, "first", 2.0)
    assert doc.exchanges["a"].asks == ("second",)
    doc.asks["alone"] = Ask("gone", ME)
    asks.withdraw(doc, "alone", 2.0)
    doc.asks["unknown"] = Ask("a", ME)
    asks.withdraw(doc, "unknown", 2.0)
    assert doc.exchanges["a"].asks == ("second",)


def test_a_claim_sent_again_does_not_return_a_session(doc: Document) -> None:
    fence = begun(doc)
    again = calls.claim(doc, PRINCIPAL, Claim(1, "a", b"body"), ME, 9, 1.0)
    assert again == Claimed(doc.record, fence, returned=False)


def test_an_answer_is_kept_for_its_last_second_too() -> None:
    assert not calls.is_stale(0.0, 0.0, KEPT_SECONDS)
    assert calls.is_stale(0.0, 0.0, KEPT_SECONDS + 1)


def test_an_answer_that_is_released_is_not_kept_and_frees_its_id(doc: Document) -> None:
    calls.settle(doc, "a", begun(doc), b"last", AT, tag=9, keep=True)
    calls.release(doc, "a", doc.exchanges["a"])
    assert (doc.exchanges["a"].kept, doc.ids) == (False, {})


def test_an_end_that_is_not_kept_frees_its_id(doc: Document) -> None:
    calls.settle(doc, "a", begun(doc), b"last", AT, tag=9, keep=False)
    assert doc.ids == {}


def test_a_stream_given_back_by_its_first_fence_has_surely_not_run(doc: Document) -> None:
    calls.give_back(doc, "a", 1, 2.0)
    assert doc.withdrawn == {"a": True}
    assert readers.is_given_back(doc, "a")
    assert not readers.is_given_back(doc, "b")


def test_the_plain_end_of_the_newest_call_can_be_sent_again(doc: Document) -> None:
    fence = begun(doc)
    for _ in range(2):
        calls.end_plain(doc, "a", fence, 2.0)
    assert doc.running == 0


def test_an_unknown_exchange_is_not_reaped(doc: Document) -> None:
    assert not calls.reap(doc, "a", ME, b"lost", AT, tag=9)


def test_an_answer_is_kept_after_its_end(doc: Document) -> None:
    calls.settle(doc, "a", begun(doc), b"last", AT, tag=9, keep=False)
    calls.keep(doc, "a", Claim(1, "a", b"body"), None, AT, tag=9)
    assert (doc.exchanges["a"].kept, doc.ids) == (True, {1: "a"})


@pytest.mark.parametrize("isolate", [False, True])
def test_the_call_with_the_id_is_cancelled_and_its_owner_wakes_each_time(isolate: bool) -> None:
    doc = Document(replace(record(), isolate=isolate), 0.0)
    begun(doc, "a", 1)
    begun(doc, "b", 2)
    before = len(doc.told)
    for _ in range(2):
        calls.cancel(doc, PRINCIPAL, 1)
    assert [doc.exchanges[one].cancelled for one in ("a", "b")] == [True, False]
    assert doc.told[before:] == ((WakeUp.CANCEL, "a", ME),) * 2


def test_a_new_document_has_no_complete_stream_and_a_standalone_stream_that_does_not_run(
    doc: Document,
) -> None:
    assert doc.complete == 0
    standalone = doc.standalone()
    assert (standalone.control, standalone.running) == (True, False)


@pytest.mark.parametrize(
    ("owner", "dead", "is_dead"),
    [
        ("a.1", "a.1", True),
        ("a.1", "a.2", True),
        ("a.2", "a.1", False),
        ("b.1", "a.2", False),
        (".1", ".2", False),
    ],
)
def test_earlier_incarnations_of_a_dead_replica_are_dead(owner: str, dead: str, is_dead: bool) -> None:
    assert is_dead_with(owner, dead) is is_dead


def test_subscriptions_are_counted_and_an_unknown_one_cannot_be_ended(doc: Document) -> None:
    assert life.subscribe(doc, "x:a", 10, LIMITS, 10)
    assert not life.subscribe(doc, "x:b", 10, LIMITS, 9)
    assert not life.unsubscribe(doc, "x:b", 10)
    assert life.unsubscribe(doc, "x:a", 10)
    assert (doc.kept, doc.subscriptions) == (0, frozenset())


@pytest.mark.parametrize(("alive", "words"), [(True, [3, 5]), (False, [2, 4])])
def test_the_word_of_a_reader_changes_with_each_answer(alive: bool, words: list[int]) -> None:
    doc = Document(record(), 0.0)
    begun(doc)
    seen = []
    for _ in words:
        readers.vouch(doc, "a", alive=alive)
        seen.append(doc.exchanges["a"].word)
    assert seen == words


def test_the_reader_of_a_kept_answer_takes_its_place_when_it_has_all_of_it(doc: Document) -> None:
    calls.settle(doc, "a", begun(doc), b"last", AT, tag=9, keep=True)
    exchange = doc.exchanges["a"]
    readers.detach(doc, "a", exchange.generation, doc.logs["a"].top, 6.0, broke=False)
    assert (doc.exchanges["a"].kept, doc.exchanges["a"].reader, doc.ids) == (False, "", {})


def test_an_answer_that_comes_back_is_forgotten_in_its_time_as_the_others(doc: Document) -> None:
    calls.keep(doc, "a", Claim(1, "a", b"body"), b"last", AT, tag=9)
    assert doc.logs["a"].closed, "its reader gets the end of the stream"
    assert not calls.forget_stale(doc, AT.now + KEPT_SECONDS)
    assert calls.forget_stale(doc, AT.now + KEPT_SECONDS + 1)
    assert (doc.exchanges, doc.ids, doc.logs) == ({}, {}, {})


@pytest.mark.parametrize("leaves_first", [True, False])
def test_a_complete_stream_without_a_reader_takes_less_memory(doc: Document, leaves_first: bool) -> None:
    def leave() -> None:
        cursor = doc.logs["a"].top if "a" in doc.logs else None
        readers.detach(doc, "a", doc.exchanges["a"].generation, cursor, 6.0, broke=False)

    def end() -> None:
        calls.settle(doc, "a", doc.exchanges["a"].fence, b"last", AT, tag=9, keep=True)

    begun(doc)
    steps = [leave, end] if leaves_first else [end, leave]
    steps[0]()
    assert "a" not in doc.logs or not isinstance(doc.logs["a"].events, Packed)
    steps[1]()
    assert isinstance(doc.logs["a"].events, Packed)


def test_room_is_made_by_the_streams_that_must_go_and_no_other(doc: Document) -> None:
    for number, stream in enumerate(("first", "second", "third")):
        calls.settle(doc, stream, begun(doc, stream, number), b"x" * 100, AT, tag=number, keep=False)
        readers.detach(doc, stream, doc.exchanges[stream].generation, None, 6.0, broke=False)
    streams.open_stream(doc, "open", fence := begun(doc, "open", 9), 7)
    at = At(5.0, ME, tight(session_bytes=doc.size), spare=1 << 30)
    streams.append(doc, "open", fence, [(8, b"x" * 100)], at)
    assert doc.logs["open"].bytes == doc.logs["second"].bytes
    assert list(doc.finished) == ["second", "third"]


def test_a_session_that_is_just_full_loses_no_event(doc: Document) -> None:
    streams.open_stream(doc, "open", fence := begun(doc, "open", 9), 7)
    for tag in range(3):
        streams.append(doc, "open", fence, [(tag, b"x" * 100)], AT)
    at = At(5.0, ME, tight(session_bytes=doc.size + 10), spare=0)
    streams.append(doc, "open", fence, [(9, b"x" * 10)], at)
    assert len(doc.logs["open"].events) == 4
    streams.append(doc, "open", fence, [(8, b"x")], at)
    assert (doc.size, doc.logs["open"].low.seq) == (211, 2)


def test_the_newest_event_stays_also_if_it_alone_is_too_large(doc: Document) -> None:
    streams.open_stream(doc, "open", fence := begun(doc, "open", 9), 7)
    streams.append(doc, "open", fence, [(8, b"x" * 100)], At(5.0, ME, tight(session_bytes=50), spare=1 << 30))
    assert [bytes(event.data) for event in doc.logs["open"].events] == [b"x" * 100]


def test_a_session_gives_up_its_last_small_events_and_without_a_log_it_gives_up_none(doc: Document) -> None:
    assert not streams.cut_largest(doc, 10, LIMITS)
    assert doc.size == 0
    streams.open_stream(doc, "open", fence := begun(doc, "open", 9), 7)
    for tag in range(3):
        streams.append(doc, "open", fence, [(tag, b"x")], AT)
    assert [streams.cut_largest(doc, 1, LIMITS) for _ in range(3)] == [True, True, False]
    assert doc.size == 1


def test_an_isolated_answer_that_is_dropped_leaves_no_end() -> None:
    doc = Document(replace(record(), isolate=True), 0.0)
    calls.settle(doc, "a", begun(doc), b"last", AT, tag=9, keep=True)
    readers.detach(doc, "a", 0, None, 5.0, broke=True)
    assert streams.drop_finished(doc)
    assert doc.exchanges == {}
