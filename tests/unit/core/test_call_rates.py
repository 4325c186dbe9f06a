"""Token buckets: bursts, refill, reports between replicas, bounds."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.config import Rate
from limpet.core import call_rates
from limpet.core.call_rates import BUCKETS, REPORTED, CallRates

RATE = Rate(10, 1.0)
KEY = b"pkey"


def admitted(buckets: CallRates, now: float, tries: int, key: bytes = KEY) -> int:
    """Return how many of so many calls pass at one moment."""
    passed = 0
    for _ in range(tries):
        if buckets.wait(key, RATE, now) == 0:
            buckets.take(key, RATE, now)
            passed += 1
    return passed


def test_a_burst_passes_and_then_the_rate() -> None:
    buckets = CallRates("one")
    assert admitted(buckets, 0.0, 50) == 10
    assert buckets.wait(KEY, RATE, 0.0) == pytest.approx(0.1)
    assert [admitted(buckets, moment / 10, 5) for moment in range(1, 11)] == [1] * 10
    assert admitted(buckets, 100.0, 50) == 10, "no more than a burst is saved up"


@given(st.lists(st.tuples(st.floats(0.0, 0.5), st.integers(0, 20)), max_size=50))
def test_no_time_has_more_calls_than_a_burst_and_the_rate(steps: list[tuple[float, int]]) -> None:
    buckets, now, passed = CallRates("one"), 0.0, 0
    for pause, tries in steps:
        now += pause
        passed += admitted(buckets, now, tries)
        assert passed <= 10 + now * 10 + 1e-6


def test_a_call_after_a_long_pause_leaves_one_less_than_a_burst() -> None:
    buckets, rate = CallRates("one"), Rate(1, 1.0)
    for moment in (0.0, 100.0):
        buckets.take(KEY, rate, moment)
    assert buckets.wait(KEY, rate, 100.0) == pytest.approx(1.0)


def test_each_key_has_its_own_bucket() -> None:
    buckets = CallRates("one")
    assert admitted(buckets, 0.0, 20, b"pann") == 10
    assert admitted(buckets, 0.0, 20, b"pbob") == 10


def test_a_changed_rate_begins_a_new_bucket() -> None:
    buckets = CallRates("one")
    admitted(buckets, 0.0, 20)
    other = Rate(5, 1.0)
    assert buckets.wait(KEY, other, 0.0) == 0
    buckets.take(KEY, other, 0.0)
    assert buckets.wait(KEY, RATE, 0.0) == 0


def test_the_calls_of_another_replica_count_here_once() -> None:
    one, two = CallRates("one"), CallRates("two")
    assert admitted(one, 0.0, 20) == 10
    report = one.report()
    for _ in range(3):
        two.learn([report], lambda _: RATE, 0.0)
    assert admitted(two, 0.0, 20) == 0
    assert two.wait(KEY, RATE, 0.0) == pytest.approx(0.1), "counted once"
    # The next report has the former interval again, for replicas that missed it.
    two.learn([one.report()], lambda _: RATE, 0.0)
    assert two.wait(KEY, RATE, 0.0) == pytest.approx(0.1)


def test_calls_that_were_too_many_are_paid_back() -> None:
    one, two = CallRates("one"), CallRates("two")
    assert admitted(one, 0.0, 20) + admitted(two, 0.0, 20) == 20
    first, second = one.report(), two.report()
    one.learn([second], lambda _: RATE, 0.0)
    two.learn([first], lambda _: RATE, 0.0)
    assert admitted(one, 1.0, 20) + admitted(two, 1.0, 20) == 0
    assert admitted(one, 1.1, 20) == 1


def test_a_lost_report_costs_nothing_while_its_intervals_are_in_the_next_one() -> None:
    one, two = CallRates("one"), CallRates("two")
    admitted(one, 0.0, 10)
    for _ in range(3):
        one.report()
    two.learn([one.report()], lambda _: RATE, 0.0)
    assert admitted(two, 0.0, 20) == 0
    three = CallRates("three")
    three.learn([one.report()], lambda _: RATE, 0.0)
    assert admitted(three, 0.0, 20) == 10, "a report has the last four intervals"


def test_after_a_restart_a_replica_is_another_origin() -> None:
    one, two = CallRates("one"), CallRates("two")
    for _ in range(5):
        one.report()
    two.learn([one.report()], lambda _: RATE, 0.0)
    again = CallRates("one again")
    admitted(again, 0.0, 10)
    two.learn([again.report()], lambda _: RATE, 0.0)
    assert admitted(two, 0.0, 20) == 0


def test_its_own_report_and_damaged_ones_change_nothing() -> None:
    one = CallRates("one")
    admitted(one, 0.0, 4)
    foreign = [b"", b"\xff", msgspec.msgpack.encode(["x"]), msgspec.msgpack.encode({"a": 1}), one.report()]
    assert one.learn(foreign, lambda _: RATE, 0.0) == set()
    assert admitted(one, 0.0, 20) == 6


def test_a_key_without_a_rate_here_is_skipped() -> None:
    one, two = CallRates("one"), CallRates("two")
    admitted(one, 0.0, 4)
    assert two.learn([one.report()], lambda _: None, 0.0) == set()
    assert len(two) == 0


def test_a_report_is_bounded_and_the_rest_follows() -> None:
    one = CallRates("one")
    for number in range(REPORTED + 10):
        one.take(b"p%d" % number, RATE, 0.0)
    one.take(b"p%d" % (REPORTED + 5), RATE, 0.0)
    first = one.report()
    assert len(first) < 20 * REPORTED
    assert one.has_news
    two = CallRates("two")
    busiest = two.learn([first], lambda _: RATE, 0.0)
    assert len(busiest) == REPORTED
    assert b"p%d" % (REPORTED + 5) in busiest
    assert len(two.learn([one.report()], lambda _: RATE, 0.0)) == 10


def test_nothing_is_to_report_some_intervals_after_the_last_call() -> None:
    one = CallRates("one")
    seen = [one.has_news]
    one.take(KEY, RATE, 0.0)
    for _ in range(6):
        seen.append(one.has_news)
        one.report()
    assert seen == [False, True, True, True, True, True, False]


def test_the_number_of_buckets_is_bounded_and_the_oldest_goes_first() -> None:
    one = CallRates("one")
    for number in range(BUCKETS + 10):
        one.take(b"p%d" % number, Rate(1, 60.0), 0.0)
        if number == 100:
            one.take(b"p0", Rate(1, 60.0), 0.0)
    assert len(one) == BUCKETS
    assert one.wait(b"p0", Rate(1, 60.0), 0.0) > 0
    assert one.wait(b"p1", Rate(1, 60.0), 0.0) == 0


def test_the_calls_that_wait_for_a_report_are_bounded_and_none_wait_without_other_replicas() -> None:
    alone, replica = CallRates("a", reports=False), CallRates("b")
    for number in range(BUCKETS + 10):
        for buckets in (alone, replica):
            buckets.take(b"%d" % number, RATE, 0.0)
    replica.take(b"0", RATE, 0.0)
    assert not alone.has_news
    assert len(replica._unreported) == BUCKETS
    assert replica._unreported[b"0"] == 2


def test_of_many_replicas_the_ones_that_were_silent_longest_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(call_rates, "_REPLICAS", 2)
    here = CallRates("here")
    assert repr(here) == f"<CallRates 0/{BUCKETS}>"
    reports = []
    for name in ("a", "b", "c"):
        there = CallRates(name)
        admitted(there, 0.0, 1)
        reports.append(there.report())
    here.learn([*reports, *reports[1:]], lambda _: RATE, 0.0)
    assert admitted(here, 0.0, 50) == 10 - 3, "each was counted once"
    here.learn([reports[1], reports[0], reports[1]], lambda _: RATE, 0.0)
    assert here.wait(KEY, RATE, 0.0) == pytest.approx(0.2), "the forgotten one is counted again"
