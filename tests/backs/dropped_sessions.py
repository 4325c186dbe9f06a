"""Sessions over stdio children that are opened and dropped without DELETE: the resources that they leave behind.

`python -m tests.backs.dropped_sessions 500` opens so many sessions and prints the processes, descriptors and memory of the
server before and after. `test_interop.py` runs a short version.
"""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from msgspec import Struct

from tests.http.client import Client
from tests.http.serving import wait_until_connected
from tests.support import until
from tools.ports import free_port

LITTLE: Final = ["/bin/sh", str(Path(__file__).parent / "little.sh")]
AT_ONCE: Final = 20
CHILDREN: Final = 40


class Left(Struct, frozen=True):
    """The resources of a server at one moment."""

    processes: int
    descriptors: int
    kilobytes: int

    def __str__(self) -> str:
        return f"{self.processes} processes, {self.descriptors} descriptors, {self.kilobytes:,} KiB resident"


def descendants(root: int) -> set[int]:
    """Return the processes that a process started, directly or through others, except those that have ended."""
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True
    )
    parents = {
        int(pid): int(parent)
        for pid, parent, state in map(str.split, listing.stdout.splitlines())
        if not state.startswith("Z")
    }
    found: set[int] = set()
    while more := {pid for pid, parent in parents.items() if parent in {root, *found}} - found:
        found |= more
    return found


def left(server: int) -> Left:
    """Return the present resources of a server."""
    status = Path(f"/proc/{server}/status").read_text(encoding="utf-8")
    [resident] = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")]
    return Left(len(descendants(server)), len(os.listdir(f"/proc/{server}/fd")), int(resident))  # noqa: PTH208


async def drop(port: int, sessions: int) -> None:
    """Open sessions with a standalone stream each, and cut their connections."""

    async def one() -> None:
        client = await Client.opened(port)
        stream = await client.get()
        stream.connection.cut()

    for start in range(0, sessions, AT_ONCE):
        await asyncio.gather(*(one() for _ in range(min(AT_ONCE, sessions - start))))


async def measured(sessions: int, warm_up: int) -> tuple[Left, Left]:
    """Return the resources of a server after a first round, and after the sessions."""
    port = free_port()
    options = ["--http", f"127.0.0.1:{port}", "--grace", "0.2", "--children", str(CHILDREN)]
    command = [sys.executable, "-m", "limpet", "serve", *options, "--", *LITTLE]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    async def settled() -> Left:
        await until(lambda: not descendants(server.pid))
        return left(server.pid)

    try:
        wait_until_connected(port, server)
        found: list[Left] = []
        for count in (warm_up, sessions):
            done = 0
            while done < count:
                # A full server refuses with 503: stay below its limit of children.
                step = min(AT_ONCE, count - done)
                await drop(port, step)
                done += step
                await until(lambda: len(descendants(server.pid)) < CHILDREN // 2)
            found.append(await settled())
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
    return found[0], found[1]


if __name__ == "__main__":
    before, after = asyncio.run(measured(int(sys.argv[1]), warm_up=60))
    print(f"before: {before}\nafter:  {after}")
