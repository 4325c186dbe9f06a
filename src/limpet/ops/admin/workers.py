"""The state of several worker processes, for the admin surface of their parent.

Workers are replicas of one store, and each of them can answer for all. So a question about the state goes to one
worker, and to a second one if the first does not answer soon. The same worker is asked each time, because each worker
numbers its own events.

Metrics are the sum of all workers. A counter must never go back: Prometheus would treat it as a restart and count
everything again. So the parent keeps the last counters of each worker, and when a worker has ended, adds them to
those of all that ended before.
"""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any, Final

from limpet.errors import LimpetError
from limpet.ops.admin.lines import Line, WorkerFailed, opened_line
from limpet.ops.metrics.families import FAMILIES
from limpet.ops.metrics.samples import Sample, merged
from limpet.ops.ring import Happened
from limpet.ops.views import FleetState, ShownSession

HEDGE: Final = 2.0
"""Seconds after which another worker is asked too."""
LIMIT: Final = 8.0
"""Seconds until an operator gets an error. A worker may itself wait for the store and for other replicas, two
seconds for each."""
PATIENCE: Final = 3.0
"""Seconds for a worker to send its metrics."""
_ACTS: Final = frozenset({"close_session", "cancel_call"})
"""Only one worker is asked for an act, while it is alive: a second one would find it done, and report that nothing
was found."""

MOST_KEPT: Final = 20_000
"""Samples of workers that have ended. Names of clients and tools are labels, and each worker may have seen different
ones."""


class Workers:
    """All workers of a parent, as one source."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        """The worker that answers questions about the state first."""
        self._ended: list[Sample] = []
        """The counters of all workers that have ended."""
        self._scraping = asyncio.Lock()

    async def add(self, end: socket.socket) -> Line:
        """Take a new worker by the parent's socket of its pair. Set `is_ready` on the line when it serves."""
        line = await opened_line(end)
        self._lines.append(line)
        return line

    async def remove(self, line: Line) -> None:
        """Remove a worker that has ended; keep its counters."""
        await asyncio.wait({line.ended}, timeout=PATIENCE)
        self._lines.remove(line)
        self._ended = merged([self._ended, _counters(line.samples)])[:MOST_KEPT]

    # Questions about the state

    async def state(self, page: str, after: int) -> FleetState:
        state: FleetState = await self._ask("state", page, after)
        return state

    async def session(self, name: str) -> tuple[ShownSession | None, list[Happened]]:
        found: tuple[ShownSession | None, list[Happened]] = await self._ask("session", name)
        return found

    async def find(self, correlation: str) -> list[Happened]:
        events: list[Happened] = await self._ask("find", correlation)
        return events

    async def close_session(self, name: str) -> bool:
        return bool(await self._ask("close_session", name))

    async def cancel_call(self, name: str) -> bool:
        return bool(await self._ask("cancel_call", name))

    async def _ask(self, method: str, *arguments: str | int) -> Any:
        """Ask one worker, and another one each time that `hedge` seconds have passed; the first answer counts.

        Raises:
            LimpetError: no worker has answered in time.
        """
        loop = asyncio.get_running_loop()
        deadline, hedge = loop.time() + LIMIT, LIMIT if method in _ACTS else HEDGE
        asked: dict[Line, asyncio.Future[Any]] = {}
        failed = "no worker serves yet"
        try:
            while True:
                line = next((one for one in self._lines if one.is_ready and one not in asked), None)
                if line is not None:
                    asked[line] = asyncio.ensure_future(line.ask(method, *arguments))
                waiting = {task for task in asked.values() if not task.done()}
                left = deadline - loop.time()
                if not waiting or left <= 0:
                    break
                done, _ = await asyncio.wait(
                    waiting, timeout=min(hedge, left), return_when=asyncio.FIRST_COMPLETED
                )
                for one, task in asked.items():
                    if task in done and not task.exception():
                        self._prefer(one)
                        return task.result()
                failed = next((str(task.exception()) for task in done), "no worker answers in time")
        finally:
            for task in asked.values():
                task.cancel()
        raise LimpetError(f"the state cannot be read: {failed}")

    def _prefer(self, line: Line) -> None:
        if line in self._lines:
            self._lines.remove(line)
            self._lines.insert(0, line)

    # Metrics

    async def metrics(self) -> list[Sample]:
        """Return the sum of all workers, with those that have ended."""
        # One after another: so the later of two answers of a worker is the newer one.
        async with self._scraping:
            asked = {
                line: asyncio.ensure_future(self._refresh(line)) for line in self._lines if line.is_ready
            }
            if asked:
                await asyncio.wait(asked.values())
            fresh = {line for line, answer in asked.items() if answer.result()}
        parts = [line.samples if line in fresh else _counters(line.samples) for line in self._lines]
        return merged([self._ended, *parts])

    @staticmethod
    async def _refresh(line: Line) -> bool:
        """Ask a worker for its metrics, which the line keeps; False: it has not answered."""
        try:
            async with asyncio.timeout(PATIENCE):
                await line.ask("metrics")
        except (WorkerFailed, TimeoutError):
            return False
        return True


def _counters(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples that never go back. The gauges of a process that does not answer are not valid."""
    return [one for one in samples if (family := FAMILIES.get(one.family)) and family.kind != "gauge"]
