"""RedisStore: the contract of stores on Redis or Valkey, version 7 or later.

The commands of a session are rules and commits (`stores/shared`). Every operation is one script on one slot, which is one atomic step; `core.py` has the theory. A command whose reply was lost is
sent again and counts once. Time is that of Redis.
"""

import asyncio

from redis.exceptions import RedisClusterException, RedisError
from typing_extensions import override

from holdfast.config import Limits
from holdfast.errors import StoreUnavailable
from holdfast.ports import Clock, Observer, Random, SilentObserver, SystemRandom
from holdfast.stores.base import OnWake
from holdfast.stores.credentials import Credentials
from holdfast.stores.redis.core import PATIENCE, Core
from holdfast.stores.redis.link import RedisLink, connect
from holdfast.stores.redis.replicas import ReplicaMethods
from holdfast.stores.redis.sessions import SessionMethods
from holdfast.stores.redis.state import StateMethods
from holdfast.stores.redis.wakeups import WakeUpMethods
from holdfast.stores.rules import lease_ended
from holdfast.stores.shared.sessions import SharedSessions


class RedisStore(SessionMethods, StateMethods, ReplicaMethods, WakeUpMethods):
    """Sessions that outlive this process, and that every replica can serve."""

    def __init__(
        self,
        url: str | RedisLink,
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

        `credentials` gives user and password for each new connection. With a `clock`, the store uses its time and not that of Redis: for tests and simulations.
        """
        link = connect(url, credentials) if isinstance(url, str) else url
        self._credentials = credentials
        self._url = url
        self._namespace = namespace
        Core.__init__(
            self,
            link,
            limits,
            clock,
            random or SystemRandom(),
            observer or SilentObserver(),
            namespace,
            replica,
        )
        SharedSessions.__init__(self, limits, self._random)
        self._unreported = {}
        self._doubtful = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._listening = asyncio.Event()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<RedisStore {self.me}, {len(self._entries)} sessions>"

    is_shared = True

    def twin(self) -> "RedisStore":
        """Return a handle with its own connections; a link that was passed in is shared."""
        other = RedisStore(
            self._url,
            self._limits,
            self._clock,
            namespace=self._namespace,
            replica=self.replica,
            credentials=self._credentials,
        )
        other.incarnation = self.incarnation
        other.me = self.me
        return other

    async def heard(self) -> None:
        """Return when wake-ups of other replicas arrive; until then, each change is noticed within a second."""
        await self._listening.wait()

    async def check(self) -> None:
        """Check that Redis can be reached, and warn if it deletes keys when its memory is full.

        Raises:
            StoreUnavailable: it cannot be reached.
        """
        try:
            async with asyncio.timeout(PATIENCE):
                policy = await self._link.policy()
        except (RedisError, RedisClusterException, OSError, TimeoutError) as error:
            raise StoreUnavailable(f"the store cannot be reached: {error}") from error
        if policy not in {"", "noeviction"}:
            self._observer.note(
                "store.evicts",
                policy=policy,
                advice="set maxmemory-policy noeviction: this Redis may delete sessions when it is full",
            )

    @override
    def bind(self, on_wake: OnWake) -> None:
        if self._is_closed and isinstance(self._url, str):
            # Used again, perhaps on another event loop: the locks of the old client belong to the loop before.
            self._link = connect(self._url, self._credentials)
            self._listening = asyncio.Event()
        self._is_closed = False
        super().bind(on_wake)

    async def prove(self) -> None:
        """Check the lease, and write a key of the shared indexes, which every new session needs.

        Raises:
            StoreUnavailable: also if the lease of this replica has ended.
        """
        if (await self.index("prove"))[0] == b"dead":
            raise lease_ended()

    async def aclose(self) -> None:
        """Stop listening and close all connections. Stored data stays; `bind` opens the store again."""
        self._is_closed = True
        tasks, self._tasks = self._tasks, []
        # The client library may swallow a cancellation that comes while it connects.
        while pending := [task for task in tasks if not task.done()]:
            for task in pending:
                task.cancel()
            await asyncio.wait(pending, timeout=0.1)
        await self._link.aclose()
        self.forget_all()
