"""The next session at the server, also without a call: a client that only listens must receive the changes.

A link that ended with its session is replaced by the next call. Until then the server reports no change to us. So the
next link is opened without a call, after a pause: a server that restarts loses all sessions at once, so the pauses are
random. The pauses grow, and the attempts end after ATTEMPTS, even if each new session is lost at once. A session that
lasted STEADY_SECONDS makes both start again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from holdfast.errors import HoldfastError
from holdfast.ports import Ports
from holdfast.upstream.backoff import Backoff

PAUSES: Final = (1.0, 60.0)
"""The first and the longest pause, in seconds."""
ATTEMPTS: Final = 10
STEADY_SECONDS: Final = 60.0


class Reconnection:
    """Opens the next link of one upstream."""

    def __init__(self, connect: Callable[[], Awaitable[object]], ports: Ports) -> None:
        self._connect = connect
        self._clock, random, self._observer = ports
        self._backoff = Backoff(random, PAUSES)
        self._left = ATTEMPTS
        self._connected_at = 0.0
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Reconnection {self._left} attempts left>"

    def soon(self) -> None:
        """Open the next link after a pause, unless that is under way. Does not wait."""
        if self._clock.now() - self._connected_at > STEADY_SECONDS:
            self._left = ATTEMPTS
            self._backoff.worked()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._left:
            self._left -= 1
            await asyncio.sleep(self._backoff.pause())
            try:
                await self._connect()
            except HoldfastError as error:
                self._observer.note("upstream.not_reconnected", error=error)
                continue
            self._connected_at = self._clock.now()
            return
