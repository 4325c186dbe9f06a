"""The required part: what every store does."""

from typing import Protocol

from holdfast.stores.base.asks import AskPart
from holdfast.stores.base.exchanges import ExchangePart
from holdfast.stores.base.overview import OverviewPart
from holdfast.stores.base.sessions import SessionPart
from holdfast.stores.base.streams import StreamPart
from holdfast.stores.base.wakeups import OnWake


class RequiredPart(SessionPart, ExchangePart, StreamPart, AskPart, OverviewPart, Protocol):
    """Sessions, exchanges, streams, asks and the overview, and the life of the store object itself."""

    def bind(self, on_wake: OnWake) -> None:
        """Send the wake-ups of this process to `on_wake`; a store that was closed is open again.

        The first call of a process that serves: a store that was made before a fork takes a replica
        name of its own here, unless it was given one.
        """
        ...

    async def aclose(self) -> None:
        """Release everything held: threads, connections, and what only this process knows."""
        ...

    async def prove(self) -> None:
        """Write something without meaning, as new work would be written.

        Raises:
            StoreUnavailable: new work cannot be written now.
        """
        ...
