"""The ends of the tasks that ran in this process, so that it can write them again after a failover that lost them.

An end is kept until the store has it, and for `KEPT_SECONDS` after that, if the store is shared: a store in this
process loses nothing. The ends that the store has are charged, and bounded in bytes: beyond `KEPT_BYTES` the oldest are
forgotten. If a failover brings back such a task, its end is not known any more.
"""

from collections import OrderedDict
from typing import Final

from limpet.core.ledger import Charge, encoded
from limpet.engine.load import Load
from limpet.engine.outcome import Outcome
from limpet.ports import Clock

KEPT_SECONDS: Final = 300.0
"""Longer than the promotion of a Redis replica takes."""
KEPT_BYTES: Final = 16 * 1024 * 1024
_ENTRY_BYTES: Final = 512
"""About the memory of an entry beside its outcome."""


_ACCOUNT: Final = "ends of tasks"
"""It is no address, and no key of a principal."""


class TaskEnds:
    """Outcomes by the keys of their tasks."""

    def __init__(self, clock: Clock, load: Load, *, shared: bool) -> None:
        self._clock = clock
        self._load = load
        self._charge: Charge | None = None
        self._most = KEPT_BYTES if shared else 0
        self.unstored: dict[str, Outcome] = {}
        """Ends that the store does not have yet."""
        self._stored: OrderedDict[str, tuple[float, Outcome]] = OrderedDict()
        """By key: since when the store has the end, and the end."""
        self._bytes = 0

    def __len__(self) -> int:
        return len(self.unstored) + len(self._stored)

    def add(self, key: str, outcome: Outcome) -> None:
        """Keep the end of a task; it replaces an end that the store refused."""
        self.unstored[key] = outcome

    def get(self, key: str) -> Outcome | None:
        """Return the end of a task; None if it is not known."""
        return self.unstored.get(key) or self._stored.get(key, (0.0, None))[1]

    def stored(self, key: str) -> None:
        """Record that the store has the end of a task, and forget the oldest ends."""
        outcome = self.unstored.pop(key, None)
        if outcome is not None:
            self._stored[key] = (self._clock.now(), outcome)
            self._bytes += outcome.size + _ENTRY_BYTES
        self.sweep()

    def sweep(self) -> None:
        """Forget the ends that are in the store for long, and the oldest ones of too many bytes."""
        while self._stored:
            key, (since, outcome) = next(iter(self._stored.items()))
            if self._bytes <= self._most and self._clock.now() - since < KEPT_SECONDS:
                break
            del self._stored[key]
            self._bytes -= outcome.size + _ENTRY_BYTES
        if self._bytes:
            # Not before: the ledger of an engine in a group changes when the group is made.
            self._charge = self._charge or self._load.account(_ACCOUNT).open()
            self._charge.set(encoded(self._bytes))
        else:
            self._charge = None
