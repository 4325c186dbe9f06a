"""PostgresStore: the contract of stores on PostgreSQL.

The commands of a session are rules and commits (`stores/shared`). Every operation is one statement, which is one transaction (`sql/functions.sql`), in one round
trip (`lanes.py`). A command whose answer was lost is sent again and counts once. Time is that of the server.
"""

import asyncio

from typing_extensions import override

from holdfast.config import Limits
from holdfast.ports import Clock, Observer, Random, SilentObserver, SystemRandom
from holdfast.stores.base import OnWake
from holdfast.stores.credentials import Credentials
from holdfast.stores.postgres.core import PostgresCore, check_namespace
from holdfast.stores.postgres.replicas import PostgresReplicas
from holdfast.stores.postgres.sessions import PostgresSessions
from holdfast.stores.postgres.state import PostgresState
from holdfast.stores.postgres_address import parse
from holdfast.stores.shared.sessions import SharedSessions


class PostgresStore(PostgresSessions, PostgresState, PostgresReplicas):
    """Sessions that outlive this process, and that every replica can serve."""

    is_shared = True

    def __init__(
        self,
        url: str,
        limits: Limits = Limits(),
        clock: Clock | None = None,
        *,
        namespace: str = "default",
        replica: str = "",
        random: Random | None = None,
        observer: Observer | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """Make a store at a URL; it connects when it is first used.

        `credentials` gives user and password for each new connection. With a `clock`, the store uses its time and not that of the server: for tests and simulations.
        """
        check_namespace(namespace)
        self._url = url
        self._namespace = namespace
        PostgresCore.__init__(
            self,
            parse(url, namespace),
            limits,
            clock,
            random or SystemRandom(),
            observer or SilentObserver(),
            replica,
            credentials,
        )
        SharedSessions.__init__(self, limits, self._random)
        self._stray_after = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._listening = asyncio.Event()
        self._waiting = {}
        self._sending = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<PostgresStore {self.me}, {len(self._entries)} sessions>"

    def twin(self) -> "PostgresStore":
        """Return a handle with its own connections."""
        other = PostgresStore(
            self._url,
            self._limits,
            self._given_clock,
            namespace=self._namespace,
            replica=self.replica,
            credentials=self._credentials,
        )
        other.incarnation = self.incarnation
        other.me = self.me
        return other

    @override
    def bind(self, on_wake: OnWake) -> None:
        if self._is_closed:
            # Used again, perhaps on another event loop.
            self._open()
            self._listening = asyncio.Event()
        self._is_closed = False
        super().bind(on_wake)

    async def aclose(self) -> None:
        """Send the wake-ups that wait, stop listening and close all connections. Stored data stays; `bind` opens the store again."""
        self._is_closed = True
        tasks, self._tasks = self._tasks, []
        await self._stop(tasks)
        await self._lanes.aclose()
        self.forget_all()
