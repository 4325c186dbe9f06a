"""How far the reader of a stream is behind the messages that this process has written to it."""

from limpet.config import Limits
from limpet.core.stream import Position
from limpet.engine.wake import Wake


class Pace:
    """The newest position, and the bytes that were written since a reader was last there."""

    __slots__ = ("_bytes", "_position", "moved")

    def __init__(self) -> None:
        self._position = Position(0, 0)
        self._bytes = 0
        self.moved: Wake = Wake()
        """Set when the reader has moved, or is another one."""

    def wrote(self, position: Position, size: int) -> None:
        """Record messages of `size` bytes; the last one has this position."""
        self._position = max(self._position, position)
        self._bytes += size

    def measure(self, cursor: Position, limits: Limits) -> bool:
        """Measure how far the reader is behind. True if more than half a log is between it and the newest message."""
        behind = self._position.seq - cursor.seq
        if behind <= 0:
            self._bytes = 0
            return False
        return behind > limits.stream_events // 2 or self._bytes > limits.stream_bytes // 2
