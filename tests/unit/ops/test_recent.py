"""The calls of each tool in the last minutes, and the rule that says when a tool needs attention."""

import pytest

from limpet.ops.attention import Trouble, trouble_of
from limpet.ops.figures import CallOutcome, Figures
from limpet.ops.recent import NO_CALLS, EndedCalls, Recent, RecentCalls


class Tools:
    """Calls that end on a clock of the test, which looks once a second."""

    def __init__(self) -> None:
        self.figures = Figures()
        self.now = 1_000.0
        self.recent = RecentCalls(self.figures, self.now)

    def end(self, name: str, outcome: CallOutcome = "ok", seconds: float = 0.01, *, times: int = 1) -> None:
        for _ in range(times):
            self.figures.call("tools/call", name, "session", outcome, seconds)

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1.0
            self.recent.look(self.now)

    def of(self, name: str) -> Recent:
        return self.recent.by_subject(self.now)["tools/call", name]


def test_a_tool_shows_the_calls_of_the_last_minute_and_of_the_four_before() -> None:
    tools = Tools()
    tools.end("search", times=30)
    tools.end("search", "tool_error", times=2)
    tools.pass_time(90)
    tools.end("search", seconds=0.3, times=10)
    tools.end("search", "cancelled")
    tools.end("search", "failed")
    found = tools.of("search")
    assert (found.last.calls, found.last.errors) == (12, 1), "a cancelled call is no error"
    assert (found.earlier_calls, found.earlier_errors) == (32, 2)
    assert 60 <= found.seconds < 66
    assert 0.2 < found.last.quantile(0.5) <= 0.5
    tools.pass_time(90)
    assert tools.of("search").last == NO_CALLS
    assert tools.of("search").earlier_calls == 44
    tools.pass_time(400)
    assert not tools.recent.by_subject(tools.now), "a tool that is not called is not shown"


def test_copies_are_bounded_and_share_rows_that_have_not_changed() -> None:
    tools = Tools()
    tools.end("search")
    tools.pass_time(1_000)
    copies = [rows["tools/call", "search"] for _, rows in tools.recent._copies]
    assert len(copies) <= 62
    assert len({id(row) for row in copies}) == 1


@pytest.mark.parametrize(
    ("calls", "errors", "earlier_calls", "earlier_errors", "trouble"),
    [
        (100, 0, 400, 0, ""),
        (100, 10, 400, 4, "rising"),
        (100, 9, 400, 4, ""),
        (100, 12, 400, 40, ""),
        (100, 20, 400, 40, "rising"),
        (10, 4, 400, 0, ""),
        (10, 5, 400, 0, "rising"),
        (10, 3, 10, 2, "failing"),
        (0, 0, 20, 5, "failing"),
        (20, 4, 0, 0, ""),
        (20, 5, 0, 0, "failing"),
        (20, 1, 400, 3, ""),
    ],
)
def test_a_tool_is_in_trouble_if_many_calls_fail_or_more_than_before(
    calls: int, errors: int, earlier_calls: int, earlier_errors: int, trouble: Trouble
) -> None:
    last = EndedCalls((calls, *NO_CALLS.counts[1:]), errors)
    assert trouble_of(Recent(60.0, last, earlier_calls, earlier_errors)) == trouble
