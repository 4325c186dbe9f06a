"""Names the function that blocks an event loop: an `async def` that calls `time.sleep`, or computes for seconds.

While such a function runs, no other call of the process is answered, and the loop itself cannot report it. So a thread
does: it asks the loop twice a second for a sign of life, and looks at the stack of a loop that gives none for a second.
The way of a call costs nothing. A process that does not get the processor is not a blocked loop: then the thread is
late too, and starts again.
"""

import asyncio
import os
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Final, Self

from limpet.ports import Clock, Observer, SystemClock

PERIOD: Final = 0.5
"""Seconds between two looks."""
LIMIT: Final = 1.0
"""Seconds without a sign of life after which the function is named."""
MOST: Final = 1_000
"""Functions that are remembered, because each is named once."""
_OURS: Final = str(Path(__file__).parents[1]) + os.sep
_STANDARD: Final = str(Path(os.__file__).parent) + os.sep
_LOOP: Final = str(Path(asyncio.__file__).parent) + os.sep
_INSTALLED: Final = f"{os.sep}site-packages{os.sep}"


class LoopWatch:
    """Watches the running event loop while its context is entered."""

    def __init__(self, observer: Observer, clock: Clock | None = None) -> None:
        self._observer = observer
        self._clock = clock or SystemClock()
        self._done = threading.Event()
        self._named: set[CodeType] = set()
        self._asked: float | None = None
        """When the loop was asked for a sign of life that it has not given yet."""
        self._warned = False

    def __enter__(self) -> Self:
        loop, thread = asyncio.get_running_loop(), threading.get_ident()
        threading.Thread(target=self._watch, args=(loop, thread), name="limpet-loop", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        before = self._clock.now()
        while not self._done.wait(PERIOD):
            now = self._clock.now()
            was_late, before = now - before > 2 * PERIOD, now
            if was_late and self._asked is not None and not self._warned:
                self._asked = now  # This process did not run. Count again from here.
            elif self._asked is None:
                self._asked = now
                try:
                    loop.call_soon_threadsafe(self._answer)
                except RuntimeError:
                    return  # The loop is closed.
            elif now - self._asked >= LIMIT and not self._warned:
                self._warn(sys._current_frames().get(thread), now - self._asked)

    def _answer(self) -> None:
        """Give the sign of life, in the loop."""
        asked, self._asked = self._asked, None
        if self._warned and asked is not None:
            self._warned = False
            self._observer.note("loop.free", seconds=round(self._clock.now() - asked, 1))

    def _warn(self, frame: FrameType | None, seconds: float) -> None:
        found = blocking(frame)
        if found is None or found[0].f_code in self._named or len(self._named) >= MOST:
            return
        function, inner = found
        self._named.add(function.f_code)
        self._warned = True
        self._observer.note(
            "loop.blocked",
            function=function.f_code.co_qualname,
            place=f"{inner.f_code.co_filename}:{inner.f_lineno}",
            seconds=round(seconds, 1),
        )


def blocking(frame: FrameType | None) -> tuple[FrameType, FrameType] | None:
    """Return the author's function that the loop runs, and its frame that stands now; None if there is none.

    `frame` is the innermost one of the loop's thread. Frames outside of the loop, of the program that runs it, do not
    count.
    """
    stack: list[FrameType] = []
    while frame is not None and not frame.f_code.co_filename.startswith(_LOOP):
        if not frame.f_code.co_filename.startswith((_OURS, _STANDARD, "<frozen ")):
            stack.append(frame)
        frame = frame.f_back
    own = [one for one in stack if _INSTALLED not in one.f_code.co_filename] or stack
    return (own[-1], own[0]) if own and frame is not None else None
