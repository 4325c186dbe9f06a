"""Which event loop a process of ours runs on."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from holdfast.transports.threads import DaemonThreads


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a loop of the fastest kind this system has."""
    try:
        import uvloop  # noqa: PLC0415 - missing on some systems
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(work: Coroutine[Any, Any, None], *, threads: int) -> None:
    """Run a coroutine as a process of its own would, with so many threads for what blocks."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        # Of itself a loop has six on two cores: half a dozen slow plain functions would hold up all others.
        runner.get_loop().set_default_executor(DaemonThreads(threads))
        runner.run(work)
