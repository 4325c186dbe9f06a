"""The event loop of our processes, a signal that they handle, and the orders that a worker gets beside signals."""

import asyncio
import signal
import sys
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

from limpet.errors import ConfigError
from limpet.transports.threads import use_daemon_threads

Beside = AbstractAsyncContextManager[None]
"""Runs in the loop of a front until its drain has ended: the admin surface, or the answers of a worker to its
parent's questions."""


class Orders:
    """What a parent has told one of its workers about the stop. It is set before the worker gets SIGTERM.

    A worker cannot know this by itself: the SIGINT of a terminal, and a SIGTERM for all processes of a container, reach
    the workers too, before or after the signals of the parent.
    """

    __slots__ = ("at_once", "siblings_stay")

    def __init__(self) -> None:
        self.siblings_stay: bool = False
        """True if another worker accepts from the same sockets, and does not stop."""
        self.at_once: bool = False
        """True if running calls are ended without a wait."""


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


def check_http_system() -> None:
    """Refuse to serve HTTP on a system on which we have never seen it work.

    Raises:
        ConfigError: this system is Windows.
    """
    if sys.platform == "win32":
        raise ConfigError(
            "HTTP is not served on Windows: it is not tested there. Serve on stdio, use WSL, or mount `server.asgi()` in another server, such as uvicorn"
        )


def run(work: Coroutine[Any, Any, None], *, threads: int) -> None:
    """Run a coroutine in a new event loop, with this many threads for blocking functions."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        # By default a loop on two cores has six threads: six slow functions would block all others.
        use_daemon_threads(runner.get_loop(), threads)
        runner.run(work)
