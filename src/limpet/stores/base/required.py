"""The required part: the calls of every store."""

from typing import Protocol

from limpet.stores.base.asks import AskPart
from limpet.stores.base.exchanges import ExchangePart
from limpet.stores.base.overview import OverviewPart
from limpet.stores.base.sessions import SessionPart
from limpet.stores.base.streams import StreamPart
from limpet.stores.base.wakeups import OnWake


class SessionCommands(SessionPart, ExchangePart, StreamPart, AskPart, Protocol):
    """All commands that concern one session."""


class RequiredPart(SessionCommands, OverviewPart, Protocol):
    """The commands, the overview, and the life of the store object itself."""

    def bind(self, on_wake: OnWake) -> None:
        """Send the wake-ups of this process to `on_wake`; a store that was closed is open again.

        The first call of a process that serves: a store that was made before a fork takes its own
        replica name here, unless it was given one.
        """

    async def aclose(self) -> None:
        """Release everything: threads, connections, and the data that only this process has."""

    async def prove(self) -> None:
        """Write a value without meaning, in the same way as new work, and check that this replica may begin work.

        Raises:
            StoreUnavailable: new work cannot be written now, or the lease of this replica has ended (`renew`). A store
                object that never had a lease is not checked for one.
        """
