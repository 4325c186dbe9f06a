"""Runs many seeds of a scenario and, if one fails, shows its events so that it can be run again alone."""

import os
from collections import Counter
from typing import Final

from tests.simulation.scenarios import SCENARIOS, Run, play

SEEDS: Final = int(os.environ.get("SIMULATION_SEEDS", "250"))
"""How many seeds of each scenario are tried. `make simulation-full` tries 2,000."""
BLOCK: Final = 125
FIRST: Final = int(os.environ.get("SIMULATION_FIRST_SEED", "0"))
"""Another number tries other seeds; the same one tries the same."""
BLOCKS: Final = [range(start, start + BLOCK) for start in range(FIRST, FIRST + SEEDS, BLOCK)]
_SHOWN: Final = 60


def try_seeds(name: str, seeds: range) -> None:
    """Run a scenario with each seed. Fails with the first seed that violates an invariant."""
    fired: Counter[str] = Counter()
    for seed in seeds:
        run = play_seed(name, seed)
        assert not run.ledger.violations, describe(name, run)
        fired += run.fired
    missing = [fault for fault in SCENARIOS[name].expected if not fired[fault]]
    assert not missing, f"{name}: nothing was proved, {missing} never happened in {seeds}"


def play_seed(name: str, seed: int) -> Run:
    """Run one seed; a run that hangs or fails says which it was."""
    try:
        return play(name, seed)
    except Exception as error:
        raise AssertionError(f"{name} with seed {seed}: {error!r}") from error


def describe(name: str, run: Run) -> str:
    """Return a report: the seed, the violated law, and the last events."""
    trace = [f"  {at:8.3f}  {text}" for at, text in run.ledger.trace[-_SHOWN:]]
    lines = [f"{name} with seed {run.seed}, faults {dict(run.fired)}:", *run.ledger.violations, *trace]
    return "\n".join(lines)
