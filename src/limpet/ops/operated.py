"""The view of an operator on one server: its log, and optionally its figures and the ring of its last events."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from limpet.config import Limits
from limpet.engine.back import Back
from limpet.engine.engine import Engine
from limpet.ops.attention import Attention
from limpet.ops.call_log import CallWatch
from limpet.ops.figures import Figures
from limpet.ops.health import Health
from limpet.ops.log import LogObserver
from limpet.ops.ring import Ring
from limpet.ops.store_watch import watched_store
from limpet.ports import Clock, Observer, SystemClock
from limpet.stores.base import Store
from limpet.stores.memory import MemoryStore


class Operated:
    """The means to see one server. Without a ring and figures, its calls are only logged."""

    def __init__(
        self, clock: Clock | None = None, *, ring: Ring | None = None, figures: Figures | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self.ring: Ring | None = ring
        self.figures: Figures | None = figures
        self.health: Health = Health()
        """Of the server behind, if there is one."""
        self.log: LogObserver = self._log()
        self.watch: CallWatch | None = None
        """Set when the server has built its engine, as `back` is."""
        self.back: Back | None = None
        self.parts: dict[str, Operated] = {}
        """By name: the servers behind that this one includes."""

    def part(self, name: str) -> Operated:
        """Return the means to see a server that is a part of this one. Its calls are those of the whole."""
        figures = None if self.figures is None else Figures()
        self.parts[name] = Operated(self._clock, ring=self.ring, figures=figures)
        return self.parts[name]

    def observer(self, given: Observer | None) -> Observer:
        """Return the observer of the server.

        An author's own observer replaces the log, not the ring and the figures.
        """
        if given is None or self.ring is None:
            return given or self.log
        return self._log(given)

    def _log(self, instead: Observer | None = None) -> LogObserver:
        counts, health = (None, None) if self.figures is None else (self.figures.events, self.health)
        server = "" if instead is None else self.log.server
        return LogObserver(self._clock, self.ring, counts, instead=instead, server=server, health=health)

    def watched_store(self, store: Store | None, limits: Limits) -> Store | None:
        """Return a store that is counted and timed; the store itself if there are no figures.

        None means a store in memory.
        """
        if self.figures is None:
            return store
        return watched_store(store or MemoryStore(limits, self._clock), self.figures.store, self._clock)

    def watched(self, back: Back, observer: Observer, store: Store | None) -> Back:
        """Return a back with the same answers, whose calls are watched."""
        self.back = back
        self.watch = CallWatch(self._clock, observer, store, self.figures)
        self.watch.health = self.health
        for member in getattr(back, "members", ()):
            if (part := self.parts.get(member.name)) is not None:
                part.back = member.back
                self.watch.parts.append((part.health, partial(getattr, member, "answered")))
        return self.watch.over(back)

    def attend(self, engine: Engine) -> None:
        """Warn of calls that hang, full queues and dead replicas while the engine runs."""
        if self.watch is not None:
            attention = Attention(engine, self.watch, self._clock, engine.observer)
            self.watch.on_start, self.watch.on_stop = attention.start, attention.stop


class Operable(Protocol):
    """A server that can be operated."""

    store: Store | str | None
    label: str
    """The name for operators, if it is not `name`."""

    @property
    def name(self) -> str:
        """The server's name."""

    @property
    def version(self) -> str:
        """The server's version; empty if it is not known yet."""

    @property
    def is_built(self) -> bool:
        """True if this process has built the engine."""

    @property
    def engine(self) -> Engine:
        """The engine. It is built on first use."""

    def operate(self, operated: Operated) -> None:
        """Log, count and show the calls of this server. Call it before anything uses the engine."""
