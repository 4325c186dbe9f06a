"""A server whose tool never ends, for tests of operators' views. It runs as a program, on stdio."""

import asyncio

from limpet import Context, Server

server = Server("behind")


@server.tool
async def hang() -> str:
    """Wait forever."""
    await asyncio.Event().wait()
    return ""


@server.tool
async def chatter(ctx: Context) -> str:
    """Report progress without an end."""
    for number in range(100_000):
        await ctx.progress(number + 1, message="x")
        await asyncio.sleep(0.005)  # The next message is another write.
    return ""


if __name__ == "__main__":
    server.run()
