"""Three replicas behind a balancer on one Redis, with everything going wrong at once: no invariant breaks.

The full plan is `make chaos`; this is its small sister, with a seed that is printed.
"""

import asyncio
import os

import pytest
from msgspec.structs import replace

from tests.chaos.faults import schedule
from tests.chaos.history import History, Opening
from tests.chaos.judge import Judge
from tests.chaos.notes import Notes, Plan
from tests.chaos.trial import FULL, SMALL, Report, show, trial
from tests.postgres_server import needs_postgres
from tests.redis_server import needs_redis

_STANDBY = replace(
    SMALL,
    store="postgres-standby",
    sessions=16,
    requests=4,
    cuts=40,
    faults={"kill": 1, "restart": 1},
    fault_seconds=8.0,
)
SEED = int(os.environ.get("CHAOS_SEED", "1"))


@needs_redis
@pytest.mark.slow
def test_no_invariant_breaks_while_clients_replicas_and_redis_fail() -> None:
    report = _held(SEED)
    # A trial in which too few of the planned faults fired, or none hit a call, proves nothing, and is held again with the next seed.
    for seed in (SEED + 1, SEED + 2):
        report = report if _hurts(report) else _held(seed)
    assert _hurts(report), show(report)
    assert report.counts["intrusions"] > 20


@needs_postgres
@pytest.mark.slow
def test_no_invariant_breaks_while_a_standby_of_postgresql_takes_over() -> None:
    """A short trial; the long ones are in `tests.chaos.record`."""
    report = _held(SEED, _STANDBY)
    assert report.counts["intrusions"] > 0


def _hurts(report: Report) -> bool:
    """True if enough faults fired, and some calls were lost with their replicas, and said so."""
    return report.is_valid and report.counts.get("outcome unknown", 0) > 0


def _held(seed: int, plan: Plan = SMALL) -> Report:
    report = asyncio.run(trial(replace(plan, seed=seed)))
    print("\n".join(report.weather))
    print(show(report))
    assert report.violations == [], show(report)
    return report


def test_the_full_plan_is_the_one_that_was_promised() -> None:
    faults = [fault.kind for fault in schedule(FULL)]
    assert (FULL.sessions, FULL.requests, FULL.events, FULL.cuts) == (200, 20, 10, 1_000)
    assert [faults.count(kind) for kind in ("kill", "stop", "restart")] == [20, 20, 1]
    assert FULL.stop_seconds > FULL.lease
    assert FULL.imitations == 200


def test_a_seed_makes_the_same_faults_again() -> None:
    assert schedule(SMALL) == schedule(SMALL)
    assert schedule(SMALL) != schedule(replace(SMALL, seed=SMALL.seed + 1))


@pytest.mark.parametrize(("kills", "valid"), [(4, True), (3, False)])
def test_a_trial_in_which_too_little_went_wrong_is_not_valid(kills: int, *, valid: bool) -> None:
    opening = Opening(plan=SMALL, versions={}, planned={"kill": 4}, fired={"kill": kills}, weather=[])
    assert Judge(History(opening=opening, notes=Notes())).is_valid is valid
