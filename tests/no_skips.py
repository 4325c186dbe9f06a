"""A skipped test is a failed test where `NO_SKIPS` is set: `make test` has installed all that a test could lack.

A plugin of pytest; `tests/conftest.py` takes its hooks.
"""

import os
from collections.abc import Generator
from typing import Final

import pytest

FORBIDDEN: Final = bool(os.environ.get("NO_SKIPS"))


def _failed(longrepr: object) -> str:
    reason = longrepr[2] if isinstance(longrepr, tuple) else longrepr
    return (
        f"{reason}\n`make test` skips no test: install what is missing (make system, make node, make peers), "
        "or let the test say what it expects where the reason holds."
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a test's skip into a failure; an expected failure (xfail) stays one."""
    report = yield
    if FORBIDDEN and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", _failed(report.longrepr)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Do the same for a module that skips itself."""
    report = yield
    if FORBIDDEN and report.skipped:
        report.outcome, report.longrepr = "failed", _failed(report.longrepr)
    return report
