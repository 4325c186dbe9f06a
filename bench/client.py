"""One client of the workload `client`: it makes calls, compares every answer, and prints its figures as JSON.

    python bench/client.py limpet|official URL VERSION IN_FLIGHT CALLS

It runs in the environment of its client: Limpet's, or that of mcp 2.3 (.peers/mcp2), which has no Limpet.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

Call = Callable[[str], Awaitable[str]]


async def limpet_client(url: str, version: str, in_flight: int, calls: int) -> dict[str, float]:
    """Measure Limpet's client."""
    from limpet import Client  # noqa: PLC0415 - the other client's environment has no limpet

    async with Client(url, protocol_version=version) as client:

        async def call(text: str) -> str:
            return (await client.call_tool("echo", {"text": text})).text

        return await measure(call, in_flight, calls)


async def official_client(url: str, version: str, in_flight: int, calls: int) -> dict[str, float]:
    """Measure the official client."""
    from mcp import Client  # type: ignore[import-not-found]  # noqa: PLC0415 - only in its own environment

    async with Client(url, mode="legacy" if version < "2026" else "auto") as client:

        async def call(text: str) -> str:
            result: Any = await client.call_tool("echo", {"text": text})
            return str(result.content[0].text)

        return await measure(call, in_flight, calls)


async def measure(call: Call, in_flight: int, calls: int) -> dict[str, float]:
    """Make the calls, each worker one after another, and return the figures."""

    async def worker(number: int, turns: int) -> None:
        for turn in range(turns):
            text = f"{number}-{turn}"
            if (answer := await call(text)) != text:
                sys.exit(f"sent {text}, received {answer}")

    await worker(-1, 20)
    began, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*(worker(number, calls // in_flight) for number in range(in_flight)))
    took, made = time.perf_counter() - began, calls // in_flight * in_flight
    return {"per_second": made / took, "cpu_us": (time.process_time() - used) / made * 1e6}


if __name__ == "__main__":
    who, address, revision, flight, number = sys.argv[1:6]
    run = {"limpet": limpet_client, "official": official_client}[who]
    print(json.dumps(asyncio.run(run(address, revision, int(flight), int(number)))))
