# mypy: disable-error-code="import-not-found"
# `mcp` lives in .peers/mcp1, never in our environment: two generations of it cannot share one.
"""The client of `mcp` 1.x: `ClientSession` over its HTTP and stdio transports."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.interop.clients.conversation import Heard, config, converse, say


async def main() -> None:
    asked = config()
    heard = Heard(types, one_by_one=True)
    async with AsyncExitStack() as stack:
        if "url" in asked:
            transport = streamable_http_client(asked["url"])
        else:
            command, *args = asked["command"]
            transport = stdio_client(StdioServerParameters(command=command, args=args, env=asked["env"]))
        read, write, *_ = await stack.enter_async_context(transport)
        session = await stack.enter_async_context(
            ClientSession(
                read,
                write,
                sampling_callback=heard.sample,
                elicitation_callback=heard.elicit,
                logging_callback=heard.log,
                message_handler=heard.message,
                client_info=types.Implementation(name="mcp1", version="1"),
            )
        )
        result = await session.initialize()
        say("connected", version=result.protocolVersion, server=result.serverInfo.name)

        async def cancel() -> None:
            # This generation tells the server nothing by itself when a caller gives up.
            params = types.CancelledNotificationParams(requestId=last_request(session), reason="test")
            await session.send_notification(
                types.ClientNotification(types.CancelledNotification(params=params))
            )

        await converse(session, types, heard, cancel)
    say("closed")


def last_request(session: Any) -> int:
    """Return the id of the request sent last; there is no public way to learn it."""
    latest: int = session._request_id - 1
    return latest


asyncio.run(main())
