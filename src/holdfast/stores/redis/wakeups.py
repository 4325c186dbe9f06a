"""Wake-ups from other replicas, and a poll for those that were lost.

A wake-up names the thing to read and carries no data. Pub/sub does not keep messages: a message that is published while no
connection is open is lost. So once a second each session that has work here is read again (`SharedSessions.look_again`). A lost wake-up
costs at most that second.

There are two channels: `bell` for all replicas, and `bell:<replica>` for one. A replica ignores its own messages; it has
called its callback already when it made the change.
"""

import asyncio
import contextlib
from typing import Any, Final

from redis.exceptions import RedisClusterException, RedisError

from holdfast.errors import StoreUnavailable
from holdfast.stores.base import OnWake, WakeUp
from holdfast.stores.redis.documents import RedisDocuments
from holdfast.stores.shared.sessions import SharedSessions
from holdfast.supervision import supervise

POLL_SECONDS: Final = 1.0
_WAKEUPS: Final = {kind.value.encode(): kind for kind in WakeUp}


class WakeUpMethods(RedisDocuments, SharedSessions):
    """bind, and the two tasks behind it."""

    _tasks: list[asyncio.Task[None]]
    _listening: asyncio.Event

    def bind(self, on_wake: OnWake) -> None:
        """Call this function from now on; take a name for this process, and start to listen to the other replicas."""
        self.wake = on_wake
        if not self._tasks:
            self._take_name()
            self.forget_all()
            loops = {"wake-ups": self._listen, "polling": self._poll}
            self._tasks = [supervise(name, loop, self._observer) for name, loop in loops.items()]

    async def check(self) -> None:
        """Check the settings of Redis."""
        raise NotImplementedError

    async def _listen(self) -> None:
        with contextlib.suppress(StoreUnavailable):
            await self.check()
        while True:
            with contextlib.suppress(RedisError, RedisClusterException, OSError):
                await self._receive()
            await asyncio.sleep(0.2)

    async def _receive(self) -> None:
        channels = (await self._link.subscriber()).pubsub(ignore_subscribe_messages=True)
        try:
            await channels.subscribe(f"{self._prefix}bell", f"{self._prefix}bell:{self.replica}")
            self._listening.set()
            while True:
                message = await channels.get_message(timeout=30.0)
                if message is not None:
                    self._take(message["data"])
        finally:
            self._listening.clear()
            with contextlib.suppress(RedisError, RedisClusterException, OSError):
                # The library does not wait for the end of a connection, and TLS needs a moment for it.
                connection: Any = channels.connection
                if connection is not None:
                    await connection.disconnect()
                await channels.aclose()  # type: ignore[no-untyped-call]

    def _take(self, data: bytes) -> None:
        what, key, name, sender, *_ = *data.split(b" "), b"", b"", b""
        if sender == self.me.encode():
            return
        # A later release may send kinds that this one does not know.
        if (kind := _WAKEUPS.get(what)) is not None:
            self.woken(kind, key.decode(), name.decode())

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self.look_again()

    async def look_again(self) -> None:
        """Wake up everything in this process that has changed and had no wake-up."""
        for kind in (WakeUp.FORWARD, WakeUp.NEWS):
            self.wake(kind, "", "")
        await super().look_again()
