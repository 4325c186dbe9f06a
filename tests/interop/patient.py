"""A server behind a balancer that cuts every response: it hands long calls over before that happens."""

import asyncio

from holdfast import Context, Server, Settings, Times

server = Server("patient", settings=Settings(times=Times(continue_after=1.0)))
runs = 0


@server.tool
async def toil(ctx: Context) -> str:
    """Work for ten seconds, and tell of each."""
    global runs  # noqa: PLW0603 - how often the body ran is what the test asks
    runs += 1
    for second in range(1, 11):
        await asyncio.sleep(1)
        await ctx.progress(second, total=10)
    return f"done in run {runs}"
