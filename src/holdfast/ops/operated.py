"""What an operator has of one server: its log, and where they are wanted its figures and the ring of its last events."""

from holdfast.engine.back import Back
from holdfast.ops.figures import Figures
from holdfast.ops.log import LogObserver
from holdfast.ops.ring import Ring
from holdfast.ops.watch import Watch
from holdfast.ports import Clock, Observer, SystemClock
from holdfast.stores.base import Store


class Operated:
    """The means to see one server. Without a ring and figures, its calls are only logged."""

    def __init__(
        self, clock: Clock | None = None, *, ring: Ring | None = None, figures: Figures | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self.ring: Ring | None = ring
        self.figures: Figures | None = figures
        self.log: LogObserver = LogObserver(self._clock, ring, None if figures is None else figures.events)
        self.watch: Watch | None = None
        """Set when the server has built its engine."""

    def __repr__(self) -> str:
        return f"<Operated {self.watch!r}>"

    def watched(self, back: Back, observer: Observer, store: Store | None) -> Back:
        """Return a back that answers as the given one does, and is watched."""
        self.watch = Watch(self._clock, observer, store, self.figures)
        return self.watch.over(back)
