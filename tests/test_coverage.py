"""The record of coverage fits the present source: it was not written by hand, and it is not of a former tree."""

import pytest

from tools.covered import LEAST, PURE, fallen, gone, percent, recorded, statements


@pytest.mark.parametrize("layer", recorded())
def test_the_recorded_figure_is_the_one_of_its_lines_and_branches(layer: str) -> None:
    record = recorded()[layer]
    (lines, most), uncovered = record["lines"], record["uncovered"]
    assert record["percent"] == percent(record["lines"], record["branches"])
    missing = sum(len(texts) if layer in PURE else texts for texts in uncovered.values())
    assert missing <= most - lines


def test_all_layers_are_recorded_and_enough_of_those_without_io() -> None:
    record = recorded()
    assert record.keys() == statements().keys()
    assert [layer for layer in PURE if record[layer]["percent"] < LEAST] == []


@pytest.mark.parametrize("layer", PURE)
def test_most_lines_that_no_test_runs_are_in_the_source(layer: str) -> None:
    record = recorded()[layer]
    (run, most), left = record["lines"], gone(record["uncovered"])
    assert sum(map(len, left.values())) <= max(1, (most - run) / 5), (
        f"measure again, `make coverage`; or `python -m tools.covered forget`: {left}"
    )


def test_a_line_that_is_gone_is_found() -> None:
    assert gone({"errors.py": ["no such line"], "no_such_module.py": ["x"]}) == {
        "errors.py": ["no such line"],
        "no_such_module.py": ["x"],
    }


def test_a_layer_that_has_fallen_is_refused_by_its_name() -> None:
    before = {"wire": {"percent": 97.3}, "ops": {"percent": 90.0}}
    assert fallen(before, before) == []
    new = {"wire": {"percent": 96.9}, "ops": {"percent": 89.4}}
    assert fallen(new, before) == [
        "wire: 96.9 % (at least 97.00 %)",
        "ops: 89.4 % (at least 89.50 %)",
    ]


@pytest.mark.parametrize("layer", recorded())
def test_the_record_is_not_much_older_than_the_source(layer: str) -> None:
    """A tenth of new code, all of it without a test, would lower the figure by nine per cent."""
    assert statements()[layer] <= 1.1 * recorded()[layer]["statements"] + 20, "measure again: `make coverage`"
