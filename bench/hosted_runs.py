"""What opening a session costs in front of a hosted object, and how much of it is the start of the object's run.

    python -m bench.hosted_runs

Median processor time of 300 openings, in the environment of each framework (`make peers`).
"""

import asyncio
import os
import statistics
import subprocess
import sys
import time
from importlib import import_module
from typing import Any, Self

from bench.contest import ROOT

FRAMEWORKS = ("mcp1", "mcp2", "fastmcp")
TIMES = 300


class Silent:
    """A stream on which nothing comes."""

    def __init__(self) -> None:
        self.is_read = asyncio.Event()
        self.last_context = None

    async def receive(self) -> Any:
        """Take note that the run has started, and wait for ever."""
        self.is_read.set()
        await asyncio.Event().wait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        await self.receive()

    async def aclose(self) -> None:
        """Do nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        return


async def start_of_a_run(server: Any) -> float:
    """Return the processor time from the start of a run until it waits for its first message."""
    stream, began = Silent(), time.process_time()
    run = asyncio.ensure_future(server.run(stream, Silent(), server.create_initialization_options()))
    await stream.is_read.wait()
    used = time.process_time() - began
    run.cancel()
    await asyncio.wait({run})
    return used


async def measure(framework: str) -> None:
    """Measure in the environment of the framework, and print."""
    from holdfast import Client, Hosted  # noqa: PLC0415 - not where the frameworks are started
    from holdfast.backs.hosted.frameworks import core_of  # noqa: PLC0415

    mcp = import_module(f"bench.peers.echo_of_{framework}").mcp
    starts = [await start_of_a_run(core_of(mcp)) for _ in range(TIMES)]
    hosted, sessions = Hosted(mcp), []
    async with Client(hosted, version="legacy"):
        for _ in range(TIMES):
            began = time.process_time()
            async with Client(hosted, version="legacy"):
                sessions.append(time.process_time() - began)
    run, session = (statistics.median(each) * 1e3 for each in (starts, sessions))
    print(
        f"  {framework:8s} a session {session:5.2f} ms of processor time, the start of its run {run:5.2f} ms"
    )


def main() -> None:
    """Measure each framework in a process of its own."""
    print(f"opening a session in front of a hosted object, median of {TIMES}")
    for framework in FRAMEWORKS:
        python = ROOT.parent / ".peers" / framework / "bin" / "python"
        path = os.pathsep.join((str(ROOT.parent / "src"), str(ROOT.parent)))
        subprocess.run(
            [str(python), "-W", "ignore", "-m", "bench.hosted_runs", framework],
            env={**os.environ, "PYTHONPATH": path, "PORT": "1"},
            check=True,
        )


if __name__ == "__main__":
    asyncio.run(measure(sys.argv[1])) if len(sys.argv) > 1 else main()
