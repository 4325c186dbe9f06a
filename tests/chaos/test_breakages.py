"""A trial that cannot fail proves nothing: each law broken on purpose shows up as the violation it is."""

import asyncio
from typing import Final

import pytest
from msgspec.structs import replace

from tests.chaos.breakages import BREAKAGES
from tests.chaos.notes import Plan
from tests.chaos.trial import SMALL, show, trial
from tests.redis_server import needs_redis

pytestmark = pytest.mark.campaign
"""A broken law shows when the right moments meet, which takes a machine that keeps up."""

SHORT: Final = replace(
    SMALL,
    seed=7,
    sessions=16,
    requests=4,
    cuts=48,
    faults={"kill": 2, "stop": 1},
    fault_seconds=5.0,
    grace=4.0,
    leavers=0,
    duplicates=0.3,
    patience=9.0,
)
CAUGHT: Final = {
    "route-by-id": (SHORT, {"I4"}),
    "no-principal": (SHORT, {"I10", "I3"}),
    "no-reaper": (SHORT, {"I1"}),
    "from-now-on": (SHORT, {"I2"}),
    "repeat-last": (SHORT, {"I2"}),
    "close-on-break": (SHORT, {"I8"}),
    "log-ids": (SHORT, {"I11"}),
    "no-fence": (replace(SHORT, faults={"stop": 4}, fault_seconds=8.0), {"I1", "I2"}),
    # Killed at their beginning, before their client has an event to resume from, calls are repeated.
    "no-keeping": (
        replace(
            SHORT,
            requests=20,
            faults={"kill": 6},
            lanes=4,
            events=4,
            interval=0.4,
            stream_after=0.4,
            fault_seconds=6.0,
            duplicates=0.05,
        ),
        {"I4"},
    ),
    "read-then-write": (replace(SHORT, faults={}, cuts=0), {"I5"}),
}
"""By broken law: the plan that shows it, and the invariants of which at least one must be found broken."""


def test_every_breakage_has_a_plan_that_shows_it() -> None:
    assert CAUGHT.keys() == BREAKAGES.keys()


@needs_redis
@pytest.mark.slow
@pytest.mark.parametrize("law", sorted(CAUGHT))
def test_a_broken_law_is_found_out(law: str) -> None:
    plan: Plan
    plan, expected = CAUGHT[law]
    report = asyncio.run(trial(plan, broken=law))
    print(show(report))
    assert report.laws & expected, show(report)
