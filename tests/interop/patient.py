"""A server behind a balancer that cuts every response: it hands long calls over before that happens."""

import asyncio

from limpet import Context, Server, Settings, Times

server = Server("patient", settings=Settings(times=Times(continue_after=0.5)))
runs = 0


@server.tool
async def toil(ctx: Context) -> str:
    """Work for five seconds, and report ten steps."""
    global runs  # noqa: PLW0603 - the test asks how often the body ran
    runs += 1
    for step in range(1, 11):
        await asyncio.sleep(0.5)
        await ctx.progress(step, total=10)
    return f"done in run {runs}"
