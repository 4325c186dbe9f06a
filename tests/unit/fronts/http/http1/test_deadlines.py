"""The time of connections: a sweep counts for an interval at most, and one that is much too late ends no connection."""

import pytest

from limpet.config import Limits
from limpet.fronts.http.http1.deadlines import Deadlines


def test_a_sweep_that_is_much_too_late_ends_no_connection_and_counts_one_interval() -> None:
    deadlines = Deadlines(Limits(), 30.0)
    times = (100.0, 101.0, 101.5, 103.5, 105.6, 106.6, 109.0, 120.0, 130.0)
    assert [(deadlines.tick(time), deadlines.now) for time in times] == [
        (True, 0.0),
        (True, 1.0),
        (True, 1.5),
        (True, 2.5),  # late by one interval only
        (False, 3.5),
        (True, 4.5),
        (False, 5.5),
        (True, 6.5),  # the second one in a row: a loop that is always late must end connections too
        (False, 7.5),
    ]


@pytest.mark.parametrize(
    ("limits", "stall", "interval"),
    [
        (Limits(), 30.0, 1.0),
        (Limits(header_seconds=2), 30.0, 0.5),
        (Limits(body_seconds=1), 30.0, 0.25),
        (Limits(), 0.4, 0.1),
    ],
)
def test_sweeps_are_as_frequent_as_the_shortest_limit_needs(
    limits: Limits, stall: float, interval: float
) -> None:
    assert Deadlines(limits, stall).interval == interval
