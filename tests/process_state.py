"""What a command changes in its process, put back after each test: the log and the garbage collector.

`limpet serve` sets the level of its log and pauses the collector, for the whole life of its process. Tests run it in
theirs, and what it leaves behind there is found by an innocent test, in another file, in some orders only.
"""

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

_LOGGERS: Final = ("", "limpet", "limpet.audit", "asyncio")


@contextmanager
def process_as_before() -> Iterator[None]:
    """Put the levels of the loggers, the handlers of the root logger and the collector back as they were."""
    root = logging.getLogger()
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    handlers, is_collecting, frozen = [*root.handlers], gc.isenabled(), gc.get_freeze_count()
    try:
        yield
    finally:
        root.handlers[:] = handlers
        for name, level in levels.items():
            if logging.getLogger(name).level != level:
                logging.getLogger(name).setLevel(level)
        if gc.get_freeze_count() > frozen:
            gc.unfreeze()
        if is_collecting:
            gc.enable()


@pytest.fixture(autouse=True)
def each_test_leaves_its_process_as_before() -> Iterator[None]:
    """Let no test find the log or the collector of another one."""
    with process_as_before():
        yield
