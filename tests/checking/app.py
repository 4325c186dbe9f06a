"""A server with one read-only tool that reports progress, and a count of its open sessions."""

import asyncio
from collections import Counter
from typing import Final

from limpet import Context, Server, SessionView
from limpet.types import ToolAnnotations

STEPS: Final = 3
STEP_SECONDS: Final = 0.03


def build() -> Server:
    """Return a new server."""
    made = Server("kitchen", version="2")
    counts = Counter[str]()
    calls: list[str] = []

    @made.on_opened
    async def on_opened(session: SessionView) -> None:
        counts["open"] += 1

    @made.on_closed
    async def on_closed(session: SessionView, reason: str) -> None:
        counts["open"] -= 1

    @made.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def look(ctx: Context) -> str:
        """Look around."""
        calls.append("look")
        for step in range(STEPS):
            await ctx.progress(step + 1, STEPS, f"step {step + 1}")
            await asyncio.sleep(STEP_SECONDS)
        return "seen"

    @made.tool
    async def cook() -> str:
        """Change something."""
        calls.append("cook")
        return "cooked"

    @made.tool
    async def status() -> str:
        """Return how many sessions are open, and the tools that were called."""
        return f"{counts['open']} open, called {' '.join(sorted(set(calls))) or 'nothing'}"

    return made


server = build()
