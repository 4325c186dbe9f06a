"""Readiness: would a claim be accepted now? One write to the store decides it.

At most one at a time, about one a second.

After a request was refused because of the store, the next probe writes at once. A read proves nothing: a replica of
Redis, a full disk and a full memory all answer reads. A write alone is not enough either: a replica whose lease has
ended may write, and its claims are refused. So `prove` writes as new work does, and checks the lease by the store's
clock. The log has one line for each change of the result, not for each probe.
"""

import asyncio
from math import inf
from typing import Final

from limpet.engine.runtime import Runtime
from limpet.errors import StoreError

FRESH_SECONDS: Final = 1.0
"""Seconds for which a result is used again: the probes of many balancers must not load the store."""
PATIENCE: Final = 2.0
"""Seconds that a probe may take; balancers give up after about as many."""


class Readiness:
    """Shares one probe among all callers."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._probe: asyncio.Task[str] | None = None
        self._begun = -inf
        self._obstacle = ""
        """The result that was logged last."""

    async def obstacle(self) -> str:
        """Return why a claim would be refused, by a write within about the last second.

        Empty if it would be accepted.
        """
        now = self._runtime.clock.now()
        probe = self._probe
        if probe is None or (probe.done() and now - self._begun >= FRESH_SECONDS):
            self._begun = now
            probe = self._probe = asyncio.get_running_loop().create_task(self._write())
        return await asyncio.shield(probe)

    def doubt(self) -> None:
        """A request was refused because of the store: a good result of before does not count any more."""
        if not self._obstacle:
            self._begun = -inf

    def found(self, obstacle: str) -> str:
        """Log a result if it is not the one before; return it. An empty text: this process is ready."""
        if obstacle != self._obstacle:
            self._obstacle = obstacle
            if obstacle:
                self._runtime.observer.note("process.not_ready", reason=obstacle)
            else:
                self._runtime.observer.note("process.ready")
        return obstacle

    async def _write(self) -> str:
        try:
            async with asyncio.timeout(PATIENCE):
                await self._runtime.store.prove()
        except StoreError as error:
            return self.found(str(error))
        except TimeoutError:
            return self.found(f"the store has not answered within {PATIENCE:g} seconds")
        return self.found("")
