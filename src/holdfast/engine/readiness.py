"""Readiness: a write shows that new work can be written to the store. At most one at a time, about one a second.

A read proves nothing: a replica of Redis, a full disk and a full memory all answer reads.
"""

import asyncio
from typing import Final

from holdfast.engine.runtime import Runtime
from holdfast.errors import StoreError

FRESH_SECONDS: Final = 1.0
"""Seconds for which a result is used again: the probes of many balancers must not load the store."""
PATIENCE: Final = 2.0
"""Seconds that a probe may take; balancers give up after about as many."""


class Readiness:
    """Shares one probe among all callers."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._probe: asyncio.Task[bool] | None = None
        self._begun = 0.0

    async def is_writable(self) -> bool:
        """True if a write has succeeded within about the last second."""
        now = self._runtime.clock.now()
        probe = self._probe
        if probe is None or (probe.done() and now - self._begun >= FRESH_SECONDS):
            self._begun = now
            probe = self._probe = asyncio.get_running_loop().create_task(self._write())
        return await asyncio.shield(probe)

    async def _write(self) -> bool:
        try:
            async with asyncio.timeout(PATIENCE):
                await self._runtime.store.prove()
        except (StoreError, TimeoutError) as error:
            self._runtime.observer.note("store.not_ready", error=error)
            return False
        return True
