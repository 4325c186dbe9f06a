# mypy: disable-error-code="import-not-found"
# The client lives in .peers/mcp2, never in our environment.
"""Calls a tool that takes long with the client of `mcp` 2, which gives up after PATIENCE seconds, and collects the result.

python ten_minutes.py SECONDS PATIENCE TARGETS    as slow.py; prints one line of JSON for each target and mode
"""

import asyncio
import json
import sys
import time
from typing import Any

SECONDS, PATIENCE, TARGETS = float(sys.argv[1]), float(sys.argv[2]), json.loads(sys.argv[3])
sys.argv[1:] = ["mcp2", sys.argv[3]]


async def row(name: str, target: Any, mode: str) -> None:
    """Call the tool, and collect."""
    from slow import opened, structured  # noqa: PLC0415 - it reads the arguments

    waits: list[float] = []
    begun = time.monotonic()

    async def timed(tool: str, arguments: dict[str, Any]) -> Any:
        started = time.monotonic()
        try:
            return structured(await client.call_tool(tool, arguments))
        finally:
            waits.append(time.monotonic() - started)

    async with opened(target, mode, [], read_timeout_seconds=PATIENCE) as client:
        await client.list_tools()
        result = await timed("work", {"seconds": SECONDS})
        while "ticket" in result:
            result = await timed("collect", {"ticket": result["ticket"]})
    found = {"result": result["result"], "seconds": round(time.monotonic() - begun, 1)}
    print(json.dumps({f"{name} {mode}": found | {"calls": len(waits)}}), flush=True)


async def main() -> None:
    rows = [
        row(name, target, mode)
        for name, target in TARGETS.items()
        for mode in (["legacy", "auto", "tasks"] if isinstance(target, str) else ["legacy", "auto"])
    ]
    await asyncio.gather(*rows)


asyncio.run(main())
