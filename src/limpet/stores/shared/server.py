"""A store on a server that processes of several hosts share: its name, clock, lease, and wake-ups of others.

A wake-up names the thing to read and carries no data, and it may be lost. So each session that has work here is also
read again from time to time (`look_again`): a lost wake-up costs that time. A replica ignores its own messages; it has
called its callback already when it made the change.
"""

import asyncio
import re
from collections.abc import Callable
from math import inf
from typing import Final, Generic, Self, TypeVar

from limpet.config import Limits
from limpet.errors import ConfigError
from limpet.ports import Clock, Observer, Random, SilentObserver, SystemRandom
from limpet.stores.base import OnWake, silent
from limpet.stores.credentials import Credentials
from limpet.stores.shared.server_clock import ServerClock
from limpet.stores.shared.sessions import SharedSessions
from limpet.supervision import supervise

POLL_SECONDS: Final = 1.0
U = TypeVar("U")
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


class ServerStore(SharedSessions, Generic[U]):
    """Sessions that outlive this process, and that every replica can serve."""

    is_shared = True
    wake: OnWake
    me: str
    replica: str
    format: int
    """The format of the stored data that this release knows."""
    unheard_seconds: float = inf
    """Seconds between two polls while wake-ups do not arrive, if they are fewer than POLL_SECONDS."""

    def __init__(
        self,
        url: U,
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

        `credentials` gives user and password for each new connection. With a `clock`, the store uses its time and not
        that of the server: for tests and simulations.

        Raises:
            ConfigError: the namespace or the URL is not valid.
        """
        if not _NAMESPACE.fullmatch(namespace):
            raise ConfigError(f"namespace={namespace!r}: use letters, digits, dots, dashes and underscores")
        self._url = url
        self._namespace = namespace
        self._credentials = credentials
        self._observer = observer or SilentObserver()
        self._clock = ServerClock(clock)
        self.now: Callable[[], float] = self._clock.now
        self.wake = silent
        self._named = replica
        self._other_format = self.format
        super().__init__(limits, random or SystemRandom())
        self._take_name()
        self._tasks: list[asyncio.Task[None]] = []
        self._listening = asyncio.Event()
        self._is_closed = False
        self._open()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.me}, {len(self._entries)} sessions>"

    # What a store adds

    def _open(self) -> None:
        """Prepare the connections, which are made when they are first used."""
        raise NotImplementedError

    async def _listen(self) -> None:
        """Receive wake-ups forever, and pass them on (`woken`); `_listening` is set while they arrive."""
        raise NotImplementedError

    async def _disconnect(self) -> None:
        """Close all connections."""
        raise NotImplementedError

    # The life of the store object

    def _take_name(self) -> None:
        """Become a replica that owns nothing yet. No two processes may use the same name."""
        self.replica = self._named or self._random.token(6)
        self._become(0)

    def _become(self, incarnation: int) -> None:
        self.incarnation: int = incarnation
        self.me = f"{self.replica}.{incarnation}"

    def _renewed(self, incarnation: int, found: int) -> int:
        """Take the incarnation of a lease; `found` is the format of another replica, or the own one."""
        if found not in (self.format, self._other_format):
            self._observer.note("store.formats", format=self.format, other=found)
        self._other_format = found
        if incarnation != self.incarnation:
            self._become(incarnation)
        return incarnation

    def twin(self) -> Self:
        """Return a handle with its own connections; a link that was passed in is shared."""
        other = type(self)(
            self._url,
            self._limits,
            self._clock.given,
            namespace=self._namespace,
            replica=self.replica,
            credentials=self._credentials,
        )
        other._become(self.incarnation)
        return other

    def bind(self, on_wake: OnWake) -> None:
        """Call this function from now on; take a name for this process, and start to listen to the other replicas."""
        if self._is_closed:
            # Used again, perhaps on another event loop: what was made for the loop before cannot be used.
            self._open()
            self._listening = asyncio.Event()
        self._is_closed = False
        self.wake = on_wake
        if not self._tasks:
            self._take_name()
            self.forget_all()
            loops = {"wake-ups": self._listen, "polling": self._poll}
            self._tasks = [supervise(name, loop, self._observer) for name, loop in loops.items()]

    async def aclose(self) -> None:
        """Stop listening and close all connections. Stored data stays; `bind` opens the store again."""
        self._is_closed = True
        tasks, self._tasks = self._tasks, []
        # A library may swallow a cancellation that comes while it connects.
        while pending := [task for task in tasks if not task.done()]:
            for task in pending:
                task.cancel()
            await asyncio.wait(pending, timeout=0.1)
        await self._disconnect()
        self.forget_all()

    # Wake-ups

    async def heard(self) -> None:
        """Return when wake-ups of other replicas arrive; until then, each change is noticed by polling."""
        await self._listening.wait()

    async def _poll(self) -> None:
        while True:
            is_heard = self._listening.is_set()
            await asyncio.sleep(POLL_SECONDS if is_heard else min(POLL_SECONDS, self.unheard_seconds))
            await self.look_again()
