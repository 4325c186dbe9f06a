"""The progress of a call: a bar on standard error, which gives way to the questions of the server."""

from typing import Any, ClassVar, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from holdfast.cli.using.plain import plain


class Bar:
    """The progress of a call, once there is some. A command shows one bar at a time."""

    shown: ClassVar["Bar | None"] = None

    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
        )
        console = Console(stderr=True)
        # Without a terminal, rich would write an empty line.
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task: Any = None

    def __enter__(self) -> Self:
        Bar.shown = self
        return self

    def __exit__(self, *_: object) -> None:
        Bar.shown = None
        self.hide()

    def report(self, done: float, total: float | None, message: str | None) -> None:
        """Show progress."""
        if self._task is None:
            self._task = self._bar.add_task("", total=total)
        self._bar.start()
        self._bar.update(self._task, completed=done, total=total, description=plain(message or ""))

    def hide(self) -> None:
        """Remove the bar until the next report: it would overwrite the words that are typed."""
        self._bar.stop()
