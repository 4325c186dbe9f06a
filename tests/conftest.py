"""Settings of every test run: the effort of hypothesis, the order of files, the meaning of a skip.

HYPOTHESIS_PROFILE picks `dev`, `ci` or `nightly`.
"""

import os
import signal
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings

from tests.no_skips import pytest_make_collect_report, pytest_runtest_makereport
from tests.process_state import each_test_leaves_its_process_as_before
from tests.token_watch import no_token_is_logged

__all__ = [
    "each_test_leaves_its_process_as_before",
    "no_token_is_logged",
    "pytest_make_collect_report",
    "pytest_runtest_makereport",
]

# A shell starts a background job with Ctrl+C ignored, and the processes that tests start and interrupt would inherit it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# `nohup` ignores SIGHUP for all that it starts, and a server leaves it ignored. With a handler only this process ignores it.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda _number, _frame: None)

# Settings of the user's shell are not settings of the tests and of the processes that they start.
for name in list(os.environ):
    if name.startswith(("LIMPET_", "OTEL_")) or name in {
        "COLUMNS",
        "LINES",
        "FORCE_COLOR",
        "NO_COLOR",
        "PY_COLORS",
        "TERM",
    }:
        del os.environ[name]

# No deadline per example: the machine is shared, and a slow example is not a wrong one.
settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=500, deadline=None, print_blob=True)
settings.register_profile("nightly", max_examples=20_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

LONG: Final = (
    "chaos", "workers", "conformance", "interop", "backs", "docs", "demo", "client", "checking", "browser",
    "hosts", "redis", "upgrade", "test_bench.py", "http",
)  # fmt: skip
"""Folders of long files, the longest first: begun last, one of them would continue alone. They wait for processes most of
the time; the short files that compute follow."""
_HERE: Final = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the long files begin."""
    places = {folder: place for place, folder in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.relative_to(_HERE).parts[0], len(LONG)))
