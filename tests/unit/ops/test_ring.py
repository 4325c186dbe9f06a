"""The ring of the last events: bounded, in order, and not filled by calls that succeed."""

from limpet.ops.ring import Ring


def test_calls_that_succeed_do_not_push_other_events_out() -> None:
    ring = Ring(max_events=40)
    ring.add(0.0, "session.opened", {"session": "s1"})
    for number in range(1000):
        ring.add(float(number), "call.ended", {"session": "s1"})
    ring.add(1000.0, "session.closed", {"session": "s1"})
    events = [happened.event for happened in ring.after()]
    assert events == ["session.opened", *["call.ended"] * 10, "session.closed"]
    assert [happened.event for happened in ring.of_session("s1")] == events
    assert [happened.event for happened in ring.after(limit=4)] == [
        "session.opened",
        *["call.ended"] * 2,
        "session.closed",
    ]


def test_events_after_a_number_are_the_newest_in_order() -> None:
    ring = Ring()
    for number in range(1, 11):
        ring.add(0.0, "call.ended" if number % 2 else "call.failed", {})
    assert [happened.number for happened in ring.after(4)] == [5, 6, 7, 8, 9, 10]
    assert [happened.number for happened in ring.after(4, limit=2)] == [8, 10]
    assert ring.after(10) == []
    assert ring.last == 10


def test_the_oldest_events_are_dropped_by_number_and_by_size() -> None:
    ring = Ring(max_events=8)
    for _ in range(100):
        ring.add(0.0, "call.failed", {})
    assert [happened.number for happened in ring.after()] == list(range(97, 101))
    ring = Ring(max_bytes=4000)
    for _ in range(100):
        ring.add(0.0, "call.failed", {"text": "x" * 100_000})
    kept = ring.after()
    assert 1 <= len(kept) <= 5
    assert all(len(happened.facts["text"]) == 500 for happened in kept)
    ring = Ring(max_bytes=4000)
    for _ in range(100):
        # Another replica has sent it.
        ring.add(0.0, "x" * 100_000, {"y" * 100_000: ""})
    assert 1 <= len(ring.after()) <= 5
    assert {(len(happened.event), *map(len, happened.facts)) for happened in ring.after()} == {(500, 500)}


def test_a_flood_of_sessions_and_failed_calls_does_not_push_out_an_event_that_a_client_asks_about() -> None:
    ring = Ring(max_events=40)
    ring.add(0.0, "handler.failed", {"correlation": "9c2f0b77aa10"})
    for _ in range(100):
        ring.add(0.0, "session.opened", {})
        ring.add(0.0, "call.failed", {})
    (found,) = ring.with_correlation("9c2f0b77aa10")
    assert found.number == 1
    assert [happened.number for happened in ring.after()] == [1, *range(182, 202)]
    assert [happened.number for happened in ring.after(limit=3)] == [199, 200, 201]
