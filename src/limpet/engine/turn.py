"""The turn of a call that runs in order: it ends when the task of the call and all its threads have ended."""

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final


class Turn:
    """The running parts of a call: its task, and the threads of its plain functions."""

    __slots__ = ("_lock", "_on_end", "_parts")

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._parts = 1
        self._on_end = on_end
        self._lock = threading.Lock()

    @property
    def has_threads(self) -> bool:
        """True if a plain function runs in a thread."""
        return self._parts > 1

    @property
    def is_over(self) -> bool:
        """True if neither the task nor a thread of the call runs any more."""
        return self._parts == 0

    def enter(self) -> None:
        """Count a thread, before it begins."""
        with self._lock:
            self._parts += 1

    def leave(self) -> None:
        """Count the end of a thread, in any thread, or of the task. After the last one the turn is over."""
        with self._lock:
            self._parts -= 1
            is_over = not self._parts
        if is_over:
            self._on_end()


TURN: Final[ContextVar[Turn | None]] = ContextVar("limpet_turn", default=None)
"""The turn of the call that runs in this context, where calls have turns."""
