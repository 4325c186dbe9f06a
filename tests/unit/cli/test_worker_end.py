"""A worker whose parent is dead ends at once, and its last lines are in the log."""

import io
import logging
import os
import socket
import threading

import pytest

from limpet.cli import worker
from limpet.ops import log_thread
from limpet.ops.log_thread import ThreadedHandler
from tests.support import wait_until


class _Ended(Exception):
    pass


@pytest.mark.parametrize(
    "patience",
    [pytest.param(None, id="nothing is served yet"), pytest.param(-worker.MARGIN, id="it does not end")],
)
def test_the_last_lines_are_written(patience: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(_: int) -> None:
        raise _Ended(out.getvalue())

    out = io.StringIO()
    handler = ThreadedHandler(out)
    monkeypatch.setattr(log_thread, "_PAUSE_SECONDS", threading.TIMEOUT_MAX)
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    monkeypatch.setattr(os, "kill", lambda *_: None)
    monkeypatch.setattr(os, "_exit", end)
    logging.getLogger("author").warning("first")
    wait_until(lambda: not handler._bytes)
    logging.getLogger("author").warning("last")
    dead, here = socket.socketpair()
    dead.close()
    watch = worker._Watch(here, None)
    watch.patience = patience
    with here, pytest.raises(_Ended, match=r"^first\nlast\n$"):
        watch._watch()
