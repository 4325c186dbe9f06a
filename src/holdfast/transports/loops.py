"""The event loop of our processes, and a signal that they handle."""

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

from holdfast.transports.threads import DaemonThreads

Beside = AbstractAsyncContextManager[None]
"""Runs in the loop of a front until its drain has ended: the admin surface, or the answers of a worker to its parent's questions."""


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop event loop if uvloop is installed, else one of asyncio."""
    try:
        import uvloop  # noqa: PLC0415 - missing on some systems
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def hangup() -> tuple[signal.Signals, ...]:
    """Return SIGHUP if this process may handle it. Not on Windows, nor if it is ignored: by `nohup`, or in a worker."""
    number = getattr(signal, "SIGHUP", None)
    return () if number is None or signal.getsignal(number) is signal.SIG_IGN else (number,)


def run(work: Coroutine[Any, Any, None], *, threads: int) -> None:
    """Run a coroutine in a new event loop, with this many threads for blocking functions."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        # By default a loop on two cores has six threads: six slow functions would block all others.
        runner.get_loop().set_default_executor(DaemonThreads(threads))
        runner.run(work)
