"""The rate limit of log events."""

from limpet.core.log_rates import BURST, NAMES, TOTAL, LogRates


def test_a_burst_passes_then_a_trickle_and_the_rest_is_counted() -> None:
    rates = LogRates(0.0)
    assert [rates.admit("a", 0.0) for _ in range(BURST + 3)] == [0] * BURST + [None] * 3
    assert rates.admit("b", 0.0) == 0
    assert rates.admit("a", 1.0) == 3
    assert rates.admit("a", 1.5) is None
    assert rates.admit("a", 2.0) == 1


def test_after_a_pause_there_is_a_whole_burst_again_and_no_more() -> None:
    rates = LogRates(0.0)
    for _ in range(BURST):
        rates.admit("a", 0.0)
    assert [rates.admit("a", 1_000.0) for _ in range(BURST + 1)] == [0] * BURST + [None]


def test_all_names_together_have_a_bound_too() -> None:
    rates = LogRates(0.0)
    passed = [rates.admit(name, 0.0) for name in range(10_000)]
    assert passed.count(0) == BURST * TOTAL


def test_no_number_of_names_makes_the_table_grow() -> None:
    rates = LogRates(0.0)
    for name in range(5 * NAMES):
        rates.admit(name, name / 1_000)
    assert len(rates._names) <= NAMES
    later = [rates.admit(f"later {name}", 100_000.0 + name) for name in range(2 * NAMES)]
    assert set(later) == {0}, "names that have been quiet make room"
    assert len(rates._names) <= NAMES


def test_a_full_table_forgets_names_with_their_whole_burst_and_remembers_the_others() -> None:
    rates = LogRates(0.0)
    for _ in range(BURST):
        rates.admit("busy", 0.0)
    for name in range(3 * NAMES):
        rates.admit(name, 0.0)
    assert len(rates._names) <= NAMES
    assert rates.admit("new", 0.5) == 0
    assert rates.admit("busy", 0.5) is None, "its burst was used up, and that is not forgotten"


def test_the_first_name_beyond_the_table_makes_room() -> None:
    rates = LogRates(0.0)
    for name in range(NAMES):
        rates.admit(name, 0.0)
    rates.admit("new", 1_000.0)
    assert list(rates._names) == ["new"]
