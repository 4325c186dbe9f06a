# mypy: disable-error-code="import-not-found"
# `mcp` lives in .peers/mcp2, never in our environment: two generations of it cannot share one.
"""The client of `mcp` 2.x: `Client`, with `legacy` (initialize) or `auto` (probe first)."""

import asyncio
from typing import Any

import mcp_types as types
from mcp import Client, StdioServerParameters

from tests.interop.clients.conversation import Heard, config, converse, say, told, wire
from tests.interop.clients.modern import converse_modern


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
        list_roots_callback=heard.roots,
        logging_callback=heard.log,
        message_handler=heard.message,
        client_info=types.Implementation(name="mcp2", version="1"),
    ) as client:
        found = client.server_info
        say("connected", version=client.protocol_version, server=found.name if found else None)
        await talk(client, heard, asked)
    say("closed")


async def talk(client: Any, heard: Heard, asked: dict[str, Any]) -> None:
    """Run the part that the test asked for."""
    match asked["talk"]:
        case "converse":
            await converse(client, types, heard, give_up)
        case "modern":
            await converse_modern(client, types, heard)
        case "toil":
            say("toil", **await told(client, "toil", {}, acknowledges=False))
        case "ask":
            first = await client.session.call_tool("book", {}, allow_input_required=True)
            say("asked", **wire(first))
            await asyncio.Event().wait()
        case "answer":
            await answer(client, heard, asked)
        case unknown:
            raise ValueError(unknown)


async def answer(client: Any, heard: Heard, asked: dict[str, Any]) -> None:
    """Continue a call that another process made, given its answer."""
    answers = {
        key: await heard.elicit(None, types.ElicitRequestFormParams(**request["params"]))
        for key, request in asked["inputRequests"].items()
    }
    state = asked["requestState"]
    result = wire(await client.call_tool("book", {}, input_responses=answers, request_state=state))
    say("answered", text=result["content"][0]["text"])


async def give_up() -> None:
    """Do nothing: a caller that gives up makes this generation tell the server."""


asyncio.run(main())
