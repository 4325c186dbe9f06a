"""Wake-ups from other replicas, and a poll for those that were lost.

A wake-up names the thing to read and carries no data. Pub/sub does not keep messages: a message that is published while no
connection is open is lost. So once a second everything that waits in this process is compared with the store, with
one script for each
session that has work here (`check` in lua/streams.lua). A lost wake-up costs at most that second.

There are two channels: `bell` for all replicas, and `bell:<replica>` for one. A replica ignores its own messages; it has
called its callback already when it made the change.
"""

import asyncio
import contextlib
from typing import Any, Final

from redis.exceptions import RedisClusterException, RedisError

from holdfast.errors import StoreError, StoreUnavailable
from holdfast.stores.base import OnWake, WakeUp
from holdfast.stores.redis.core import LocalWork
from holdfast.stores.redis.exchanges import ExchangeMethods
from holdfast.supervision import supervise

POLL_SECONDS: Final = 1.0
_AT_ONCE: Final = 64
"""Sessions that are compared at the same time: a session on an unavailable shard delays few others."""
_WAKEUPS: Final = {kind.value.encode(): kind for kind in WakeUp}


class WakeUpMethods(ExchangeMethods):
    """bind, and the two tasks behind it."""

    _tasks: list[asyncio.Task[None]]
    _listening: asyncio.Event

    def bind(self, on_wake: OnWake) -> None:
        """Call this function from now on; take a name for this process, and start to listen to the other replicas."""
        self._on_wake = on_wake
        if not self._tasks:
            self._take_name()
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
        if sender == self._owner.encode():
            return
        # A later release may send kinds that this one does not know.
        kind = _WAKEUPS.get(what)
        if kind is WakeUp.CLOSED:
            self.gone(key.decode())
        if kind is WakeUp.TAKEN and self._reads(key.decode(), name.decode()):
            # The wake-up may be older than the reader that is here now: ask the store.
            self._compare_soon(key.decode())
        elif kind is not None:
            self._on_wake(kind, key.decode(), name.decode())

    def _reads(self, key: str, stream: str) -> bool:
        work = self._work.get(key)
        return work is not None and stream in work.readers

    def _compare_soon(self, key: str) -> None:
        task = asyncio.get_running_loop().create_task(self._look_at(key))
        self._tasks.append(task)
        task.add_done_callback(self._looked)

    def _looked(self, task: asyncio.Task[None]) -> None:
        if task in self._tasks:
            self._tasks.remove(task)

    async def _look_at(self, key: str) -> None:
        work = self._work.get(key)
        if work is not None:
            with contextlib.suppress(StoreError):
                await self._compare(key, work)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self.look_again()

    async def look_again(self) -> None:
        """Wake up everything in this process that has changed and had no wake-up."""
        for kind in (WakeUp.FORWARD, WakeUp.NEWS):
            self._on_wake(kind, "", "")
        keys = list(self._work)
        for start in range(0, len(keys), _AT_ONCE):
            await self.each(self._look_at(key) for key in keys[start : start + _AT_ONCE])

    async def _compare(self, key: str, work: LocalWork) -> None:
        streams = list(dict.fromkeys([*work.running, *work.readers]))
        stored = {
            stream: recent.stored for stream in work.running if (recent := self._recent.get(key, stream))
        }
        reply = await self.session("check", key, len(work.running), len(streams), *streams, *work.asks)
        if reply[0] != b"ok":
            if self.gone(key):
                self._on_wake(WakeUp.CLOSED, key, "")
            return
        changes: list[list[Any]] = reply[2]
        for what, raw, top in changes:
            name = raw.decode()
            if what == b"lost" or (what == b"stream" and top < stored.get(name, 0)):
                await self._restore_lost(key, work, name)
                continue
            if what == b"stream":
                if work.readers.get(name, top) >= top:
                    continue
                work.readers[name] = top
            elif what == b"taken":
                if work.readers.pop(name, None) is None:
                    continue
                self.forget_if_idle(key)
            self._on_wake(_WAKEUPS[what], key, name)

    async def _restore_lost(self, key: str, work: LocalWork, name: str) -> None:
        """Restore an exchange that runs here, or an ask that waits here, after a failover that lost it.

        An ask of an exchange that another replica has ended is not restored: its caller gets a wake-up.
        """
        if name in work.running:
            if await self._restore(key, name, work.running[name].fence):
                self._on_wake(WakeUp.STREAM, key, name)
            return
        stream = work.asks.get(name)
        if stream is None:
            return
        if stream in work.running and not await self._restore(key, stream, work.running[stream].fence):
            self._on_wake(WakeUp.ANSWER, key, name)
            return
        await self.run("ask", key, name, stream, self._limits.asks)
        if name not in work.asks:
            # It was withdrawn meanwhile.
            await self.run("withdraw", key, name)
