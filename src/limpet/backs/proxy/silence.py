"""How long the server may be silent during a call: one limit and one timer for all calls of an upstream.

Every call has the same limit, so the call that began first, or whose last sign of life is the oldest, is late first.
The timer is set for the earliest deadline. When it fires, it is set for the next one. A call that ends in time costs
no timer. `close` cancels the timer: it holds the context of the call that set it, with the arguments of that call.
"""

import asyncio


class Silence:
    """The calls that wait for the server."""

    __slots__ = ("_is_closed", "loop", "seconds", "timer", "waits")

    def __init__(self, seconds: float) -> None:
        self.seconds: float = seconds
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._is_closed = False
        self.waits: set[Wait] = set()
        """The calls that are watched."""
        self.timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Silence of {self.seconds:g} s, {len(self.waits)} calls>"

    def watch(self, deadline: float) -> None:
        """Check at this time. A timer that is already set has an earlier time."""
        if self.timer is None and not self._is_closed:
            self.timer = self.loop.call_at(deadline, self._look)

    def close(self) -> None:
        """Watch no call any more: the upstream ends, and its calls with it."""
        self._is_closed = True
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _look(self) -> None:
        self.timer = None
        now = self.loop.time()
        for wait in list(self.waits):
            wait.look(now)
        earliest = min((wait.deadline for wait in self.waits if wait.deadline is not None), default=None)
        if earliest is not None:
            self.watch(earliest)


class Wait:
    """One request on its way to the server and back: cancels the present task when the server is silent for too long.

    Call `end` last.
    """

    __slots__ = ("_cancelling", "_pauses", "_silence", "_task", "deadline", "is_late")

    def __init__(self, silence: Silence) -> None:
        task = asyncio.current_task(silence.loop)
        if task is None:
            raise RuntimeError("a call waits within a task")
        self._silence = silence
        self._task = task
        self._cancelling = task.cancelling()
        self._pauses = 0
        self.deadline: float | None = silence.loop.time() + silence.seconds
        """None while the time does not count, and once it is over."""
        self.is_late: bool = False
        """True if the server has been silent for too long: the task was cancelled."""
        silence.waits.add(self)
        if silence.timer is None:
            silence.watch(self.deadline)

    def restart(self) -> None:
        """Record a sign of life: the time begins again, unless it does not count now."""
        if not self._pauses and not self.is_late:
            self.deadline = self._silence.loop.time() + self._silence.seconds
            self._silence.watch(self.deadline)

    def pause(self) -> None:
        """Do not count the time until `resume`, which is called as often."""
        self._pauses += 1
        self.deadline = None

    def resume(self) -> None:
        """Count the time from now on."""
        self._pauses -= 1
        self.restart()

    def look(self, now: float) -> None:
        """Cancel the task if the time is over."""
        if self.deadline is not None and self.deadline <= now:
            self.deadline = None
            self.is_late = True
            self._task.cancel()

    def end(self) -> bool:
        """Stop watching. True if the server was late, and nothing else has cancelled the task."""
        self._silence.waits.discard(self)
        return self.is_late and self._task.uncancel() <= self._cancelling
