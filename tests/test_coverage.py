"""The record of coverage fits the present source: it was not written by hand, and it is not of a former tree."""

from tools.covered import LEAST, gone, recorded, statements


def test_the_recorded_figure_is_the_one_of_its_lines_and_branches() -> None:
    record = recorded()
    (lines, all_lines), (branches, all_branches) = record["lines"], record["branches"]
    percent = 100 * (lines + branches) / (all_lines + all_branches)
    assert abs(percent - record["percent"]) < 0.01
    assert record["percent"] >= LEAST
    assert sum(map(len, record["uncovered"].values())) <= all_lines - lines


def test_most_lines_that_no_test_runs_are_in_the_source() -> None:
    uncovered = recorded()["uncovered"]
    left, all_lines = gone(uncovered), sum(map(len, uncovered.values()))
    assert sum(map(len, left.values())) <= all_lines / 5, (
        f"measure again, `make coverage`; or `python -m tools.covered forget`: {left}"
    )


def test_a_line_that_is_gone_is_found() -> None:
    assert gone({"errors.py": ["no such line"], "no_such_module.py": ["x"]}) == {
        "errors.py": ["no such line"],
        "no_such_module.py": ["x"],
    }


def test_the_record_is_not_much_older_than_the_source() -> None:
    """A tenth of new code, all of it without a test, would lower the figure by nine per cent."""
    assert statements() <= 1.1 * recorded()["statements"], "measure again: `make coverage`"
