"""The wait for a call, and its progress: a bar on standard error, which gives way to the questions of the server."""

import asyncio
from typing import Any, ClassVar, Final, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from limpet.cli.using.plain import plain

QUIET_SECONDS: Final = 2.0
"""How long a call may take before its wait is shown."""


class Bar:
    """The wait for a call: its progress, or after a while that it still runs. A command shows one bar at a time."""

    shown: ClassVar["Bar | None"] = None

    def __init__(self, name: str) -> None:
        """`name`: the tool that is called."""
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
        )
        console = Console(stderr=True)
        # Without a terminal, rich would write an empty line.
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._waiting = f"waiting for {plain(name)}"
        # It counts the time from here.
        self._task: Any = self._bar.add_task(self._waiting, total=None)
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        Bar.shown = self
        self._timer = asyncio.get_running_loop().call_later(QUIET_SECONDS, self._bar.start)
        return self

    def __exit__(self, *_: object) -> None:
        Bar.shown = None
        self.hide()

    def report(self, done: float, total: float | None, message: str | None) -> None:
        """Show progress."""
        self._bar.start()
        self._bar.update(
            self._task, completed=done, total=total, description=plain(message or "") or self._waiting
        )

    def hide(self) -> None:
        """Remove the bar until the next report: it would overwrite the words that are typed."""
        if self._timer is not None:
            self._timer.cancel()
        self._bar.stop()
