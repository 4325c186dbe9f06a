"""The health of the server behind: from events, and from calls that succeed."""

import pytest

from limpet.ops.figures import Figures
from limpet.ops.health import FAILED, MAX_REASON, WORKED, Health, answered_calls
from limpet.ops.log import LogObserver
from limpet.ops.operated import Operated
from limpet.ops.ring import Ring
from limpet.testing import NotingObserver, VirtualClock


def test_events_say_when_it_worked_and_when_and_why_it_failed() -> None:
    health = Health()
    assert (health.worked_at, health.failed_at, health.reason) == (0.0, 0.0, "")
    health.note(10.0, "upstream.opened", {})
    health.note(11.0, "session.opened", {})
    assert (health.worked_at, health.failed_at) == (10.0, 0.0)
    health.note(12.0, "upstream.unreachable", {"error": ConnectionError("refused")})
    assert (health.failed_at, health.kind, health.reason) == (12.0, "unreachable", "refused")
    health.note(13.0, "upstream.ended", {"reason": "exited", "status": 3})
    assert (health.failed_at, health.kind, health.reason) == (13.0, "ended", "exited, status 3")
    health.note(14.0, "upstream.unusable", {"error": "x" * 1_000})
    assert len(health.reason) == MAX_REASON
    health.note(15.0, "client.reconnected", {})
    assert (health.worked_at, health.failed_at) == (15.0, 14.0)


def test_a_call_that_succeeds_counts_and_one_that_fails_does_not() -> None:
    health, figures = Health(), Figures()
    health.look(1.0, answered_calls(figures))
    figures.call("tools/call", "t", "session", "failed", 0.1)
    figures.call("server/discover", "", "session", "ok", 0.1)
    health.look(2.0, answered_calls(figures))
    assert health.worked_at == 0.0
    figures.call("tools/call", "t", "session", "ok", 0.1)
    health.look(3.0, answered_calls(figures))
    health.look(4.0, answered_calls(figures))
    assert health.worked_at == 3.0


@pytest.mark.parametrize("own", [None, NotingObserver()])
def test_the_observer_of_a_server_with_figures_passes_the_events_on(own: NotingObserver | None) -> None:
    operated = Operated(VirtualClock(), ring=Ring(), figures=Figures())
    observer = operated.observer(own)
    assert isinstance(observer, LogObserver)
    for event in (*WORKED, *FAILED):
        observer.note(event)
    assert operated.health.worked_at > 0
    assert operated.health.kind
