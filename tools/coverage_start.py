"""Measure lines and branches in every process of an environment. `tools/coverage.sh` copies this module into it.

`sys.monitoring` (Python 3.12) reports a line once and costs next to nothing afterwards. The C tracer of coverage costs three
times the processor time of our tests, and their limits of time are then too short. coverage uses `sys.monitoring` for branches
from Python 3.14 on, which has an event for each side of a branch. Python 3.12 and 3.13 have one event for both sides; it is
enough if it stays on at an instruction until both sides were seen.
"""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any


def until_both(report: Callable[..., Any]) -> Callable[..., Any]:
    """Return a callback that reports a branch until both of its sides were taken."""
    sides: dict[tuple[CodeType, int], int] = {}

    @functools.wraps(report)
    def branch(monitor: Any, code: CodeType, instruction: int, destination: int) -> Any:
        first = sides.setdefault((code, instruction), destination)
        report(monitor, code, instruction, destination)
        return None if first == destination else sys.monitoring.DISABLE

    return branch


def start(configuration: str) -> None:
    """Begin to measure in this process, while this file exists. Python may read the file that calls this twice."""
    if not Path(configuration).exists() or "coverage" in sys.modules:
        return
    import coverage  # noqa: PLC0415 - only while something is measured
    from coverage import env, sysmon  # noqa: PLC0415

    if sys.version_info < (3, 14):
        events: Any = sys.monitoring.events
        events.BRANCH_LEFT = events.BRANCH_RIGHT = events.BRANCH
        env.PYBEHAVIOR.branch_right_left = True
        monitor: Any = sysmon.SysMonitor
        monitor.sysmon_branch_either = until_both(monitor.sysmon_branch_either)
    coverage.Coverage(config_file=configuration, data_suffix=True, auto_data=True).start()
