"""Calls per second of Holdfast's client and of the official one, 32 in flight, against the same server in one run.

    python -m bench.client

Each client runs in a process of its own, in turns; the server is Holdfast's echo server. The official client is
mcp 2.3 from .peers/mcp2 (`make peers`). Every answer is compared with what was sent.
"""

import asyncio
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
OFFICIAL: Final = ROOT / ".peers" / "mcp2" / "bin" / "python"
IN_FLIGHT: Final = 32
CALLS: Final = 3_200
ROUNDS: Final = 3
URL: Final = re.compile(r"http://127\.0\.0\.1:\d+/mcp")


async def holdfast_client(url: str, version: str) -> float:
    """Return Holdfast's calls per second."""
    from holdfast import Client  # noqa: PLC0415 - the other client's process has no holdfast

    async with Client(url, version=version) as client:

        async def worker(number: int) -> None:
            for turn in range(CALLS // IN_FLIGHT):
                text = f"{number}-{turn}"
                assert (await client.call_tool("echo", {"text": text})).text == text

        return await _timed(worker)


async def official_client(url: str, version: str) -> float:
    """Return the official client's calls per second."""
    from mcp import Client  # type: ignore[import-not-found]  # noqa: PLC0415 - only in its own process

    async with Client(url, mode="legacy" if version < "2026" else "auto") as client:

        async def worker(number: int) -> None:
            for turn in range(CALLS // IN_FLIGHT):
                text = f"{number}-{turn}"
                assert (await client.call_tool("echo", {"text": text})).content[0].text == text

        return await _timed(worker)


async def _timed(worker: object) -> float:
    assert callable(worker)
    await worker(-1)
    started = time.perf_counter()
    await asyncio.gather(*(worker(number) for number in range(IN_FLIGHT)))
    return CALLS / (time.perf_counter() - started)


def in_process(python: Path | str, who: str, url: str, version: str) -> float:
    """Run one client in a process of its own and return what it measured."""
    command = [str(python), str(Path(__file__)), who, url, version]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    return float(done.stdout)


def main() -> None:
    """Measure in turns and print both."""
    command = [
        sys.executable,
        "-m",
        "holdfast",
        "serve",
        "bench/servers/echo.py:server",
        "--http",
        "127.0.0.1:0",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as server:
        assert server.stderr is not None
        said = ""
        while "  clients" not in said:
            said += server.stderr.readline()
        url = URL.findall(said)[0]
        try:
            for version in ("2025-11-25", "2026-07-28"):
                ours, theirs = [], []
                for _ in range(ROUNDS):
                    ours.append(in_process(sys.executable, "holdfast", url, version))
                    theirs.append(in_process(OFFICIAL, "official", url, version))
                a, b = statistics.median(ours), statistics.median(theirs)
                print(f"{version}: holdfast {a:.0f} calls/s, mcp 2.3 {b:.0f} calls/s, {a / b:.1f} times")
        finally:
            server.terminate()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure = {"holdfast": holdfast_client, "official": official_client}[sys.argv[1]]
        print(asyncio.run(measure(sys.argv[2], sys.argv[3])))
    else:
        main()
