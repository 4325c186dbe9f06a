"""Two replicas of one server as real processes, and sessions at them, for the acts.

The processes write to a pipe that this module reads. They end with the stage, and with the demo.
"""

import asyncio
import contextlib
import os
import re
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final

from msgspec import Struct

from limpet.checking.lane import Lane, initialize
from limpet.checking.peer import Peer
from limpet.errors import LimpetError

REPLICAS: Final = 2
START_SECONDS: Final = 60.0
PATIENCE: Final = 15.0
"""How long an answer may take, in seconds. The longest call of an act takes about a second; the rest is for a
machine under load."""
_ADDRESS: Final = re.compile(r"serving +(http://127\.0\.0\.1:\d+/mcp)")


Say = Callable[[str], None]
"""Shows how far an act is."""


class Failed(LimpetError):
    """The guarantee of an act did not hold."""


class NotStarted(LimpetError):
    """A server process did not start."""


class Side(Struct, frozen=True, kw_only=True):
    """One side of the comparison: a kind of server."""

    name: str
    version: str
    words: tuple[str, ...]
    """The arguments of `child.py`."""


class DemoReplica:
    """One server process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._lines: deque[str] = deque(maxlen=5)
        self._reading: asyncio.Task[None] | None = None
        self.url: str = ""

    async def ready(self) -> None:
        """Wait until it serves.

        Raises:
            NotStarted: it ended, or does not serve in time.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                while line := await self._line():
                    if found := _ADDRESS.search(line):
                        self.url = found[1]
                        self._reading = asyncio.create_task(self._read())
                        return
        raise NotStarted("the server did not start: " + (" ".join(self._lines) or "it printed nothing"))

    async def kill(self) -> None:
        """Kill the process (SIGKILL) and wait for its end."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        if self._reading is not None:
            await self._reading

    async def _line(self) -> str:
        assert self._process.stderr is not None  # noqa: S101 - for the type
        line = (await self._process.stderr.readline()).decode(errors="replace")
        self._lines.append(line.strip())
        return line

    async def _read(self) -> None:
        while await self._line():
            pass


class Stage:
    """The replicas of one side, and what an act does with them."""

    def __init__(self, replicas: list[DemoReplica]) -> None:
        self._replicas = replicas
        self._peers = [Peer(replica.url, {}, PATIENCE) for replica in replicas]
        self.say: Say = lambda _: None

    async def session(self) -> Lane:
        """Open a session at the first replica.

        Raises:
            Failed: it is refused.
        """
        outcome, lane = await initialize(self._peers[0])
        if lane is None:
            raise Failed(f"a new session was refused: {outcome}")
        return lane

    def elsewhere(self, lane: Lane) -> Lane:
        """Return the same session, used at the second replica."""
        return Lane(
            self._peers[1], version=lane.version, session=lane.session, capabilities=lane.capabilities
        )

    async def kill_first(self) -> None:
        """Kill the first replica."""
        await self._replicas[0].kill()

    async def aclose(self) -> None:
        """Close every connection."""
        for peer in self._peers:
            await peer.aclose()


@contextlib.asynccontextmanager
async def staged(side: Side) -> AsyncIterator[Stage]:
    """Start the replicas of a side; kill them at the end.

    Raises:
        NotStarted: one does not start.
    """
    async with contextlib.AsyncExitStack() as stack:
        replicas = [await _start_replica(side, stack) for _ in range(REPLICAS)]
        for replica in replicas:
            await replica.ready()
        stage = Stage(replicas)
        stack.push_async_callback(stage.aclose)
        yield stage


async def _start_replica(side: Side, stack: contextlib.AsyncExitStack) -> DemoReplica:
    # Settings of the user's own servers are not for these, and `ready` reads their output without colours.
    environment = {
        name: text for name, text in os.environ.items() if not name.startswith(("LIMPET_", "OTEL_"))
    } | {"NO_COLOR": "1"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "limpet.cli.demo.child", *side.words,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        env=environment,
    )  # fmt: skip
    replica = DemoReplica(process)
    stack.push_async_callback(replica.kill)
    return replica
