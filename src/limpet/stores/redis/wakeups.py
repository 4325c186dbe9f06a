"""Wake-ups from other replicas, over pub/sub.

Pub/sub does not keep messages: a message that is published while no connection is open is lost
(`stores/shared/server.py`). There are two channels: `bell` for all replicas, and `bell:<replica>` for one.
"""

import asyncio
import contextlib
from typing import Any, Final

from redis.exceptions import RedisClusterException, RedisError
from typing_extensions import override

from limpet.errors import StoreUnavailable
from limpet.stores.base import WakeUp
from limpet.stores.redis.core import PATIENCE, Core

_WAKEUPS: Final = {kind.value.encode(): kind for kind in WakeUp}


class WakeUpMethods(Core):
    """Receives wake-ups."""

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
