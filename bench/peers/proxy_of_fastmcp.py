"""fastmcp's proxy in front of the URL in $UPSTREAM, served by its own HTTP server on $PORT.

It gets a client that is connected already, and uses the session of that client for all calls. With a URL instead of a
client it opens a session at the URL for each call, and is about ten times slower.
"""

import asyncio
import os

from fastmcp import Client
from fastmcp.server import create_proxy


async def main() -> None:
    """Serve until the process is stopped."""
    async with Client(os.environ["UPSTREAM"]) as client:
        await create_proxy(client).run_async(
            transport="http",
            port=int(os.environ["PORT"]),
            log_level="ERROR",
            show_banner=False,
            json_response=True,
        )


asyncio.run(main())
