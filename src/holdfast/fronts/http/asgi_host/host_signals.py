"""Notices that the host receives a signal to stop: our signal handler is called before the host's.

ASGI reports the end to an application only after the last response has ended. A stream ends only when
its client leaves or the server ends it, so a host would wait forever. The rules that make this safe:

- Only a handler that the host installed is wrapped, and it is always called. Without one (a test
  client, a script) the default action stays.
- A host that uses `loop.add_signal_handler` keeps working: the loop learns of a signal through its
  wake-up descriptor, with any Python handler.
- Python allows handlers in the main thread only; elsewhere nothing is done.
- Our handler is removed only if it is still the installed one: a handler that was installed later stays.
"""

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any, Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
Handler = Callable[[int, FrameType | None], Any]


class HostSignals:
    """Calls `stop` once, on the loop that installed it, when the host receives a signal to stop."""

    def __init__(self, stop: Callable[[], Awaitable[None]]) -> None:
        self._stop = stop
        self._wrapped: dict[int, Handler] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Future[None] | None = None
        self.installed: bool = False

    def install(self) -> None:
        """Wrap the host's handlers that are installed by now. Hosts install theirs at different moments: call it again."""
        if threading.current_thread() is not threading.main_thread():
            self.installed = True
            return
        self._loop = asyncio.get_running_loop()
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if number in self._wrapped or handler in {signal.default_int_handler, self._handle}:
                continue
            if callable(handler):
                self._wrapped[number] = handler
                signal.signal(number, self._handle)
        self.installed = len(self._wrapped) == len(SIGNALS)

    def restore(self) -> None:
        """Install the host's handlers again, for each signal whose present handler is ours.

        A handler that was installed after ours (such as that of another mount) may call ours. Then ours stays, and only
        calls the host's handler.
        """
        for number, handler in list(self._wrapped.items()):
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)
                del self._wrapped[number]
        self._loop = self._stopping = None
        self.installed = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._begin)
        handler = self._wrapped.get(number)
        if handler is not None:
            handler(number, frame)

    def _begin(self) -> None:
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop())
