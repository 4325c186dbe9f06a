# mypy: disable-error-code="import-not-found"
# `mcp` lives in .peers/mcp2, never in our environment: two generations of it cannot share one.
"""The client of `mcp` 2.x: `Client`, told to shake hands (`legacy`) or left to find out (`auto`)."""

import asyncio

import mcp_types as types
from mcp import Client, StdioServerParameters

from tests.interop.clients.conversation import Heard, config, converse, say


async def main() -> None:
    asked = config()
    heard = Heard(types)
    if "url" in asked:
        target = asked["url"]
    else:
        command, *args = asked["command"]
        target = StdioServerParameters(command=command, args=args, env=asked["env"])
    async with Client(
        target,
        mode=asked["mode"],
        sampling_callback=heard.sample,
        elicitation_callback=heard.elicit,
        logging_callback=heard.log,
        message_handler=heard.message,
        client_info=types.Implementation(name="mcp2", version="1"),
    ) as client:
        found = client.server_info
        say("connected", version=client.protocol_version, server=found.name if found else None)

        async def cancel() -> None:
            # A caller that gives up makes this generation send the notification itself.
            return

        await converse(client, types, heard, cancel)
    say("closed")


asyncio.run(main())
