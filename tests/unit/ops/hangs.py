"""A server whose tool never ends, for tests of operators' views. It runs as a program, on stdio."""

import asyncio

from holdfast import Server

server = Server("behind")


@server.tool
async def hang() -> str:
    """Wait forever."""
    await asyncio.Event().wait()
    return ""


if __name__ == "__main__":
    server.run()
