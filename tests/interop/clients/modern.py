"""The conversation of every Python client without a session (2026-07-28)."""

import asyncio
from typing import Any, Final

from tests.interop.clients.conversation import (
    NOTE,
    PATIENCE,
    Heard,
    asks,
    calls,
    cancelled,
    lists,
    parallel,
    refused,
    say,
    told,
    wire,
)

LEVEL: Final = "io.modelcontextprotocol/logLevel"


async def converse_modern(client: Any, types: Any, heard: Heard) -> None:
    """Do everything once. `client` is `mcp.Client`, or has its methods."""
    await lists(client, types)
    await calls(client)
    say("progress", **await told(client, "ticks", {"n": 3}))
    await logs(client, heard)
    await asks(client, heard)
    await more_asks(client)
    if hasattr(client, "listen"):
        await listen(client)
    await refused(client)
    await cancelled(client, give_up)
    say("hung", text=wire(await client.call_tool("hung", {}))["content"][0]["text"])
    await parallel(client)


async def give_up() -> None:
    """Do nothing: the client cancels the call by giving it up."""


async def logs(client: Any, heard: Heard) -> None:
    """Call once without a level, once with one; messages come before their call's result, if at all."""
    await client.call_tool("chatter", {})
    say("no logs", logs=heard.logs)
    heard.logs.clear()
    await client.call_tool("chatter", {}, meta={LEVEL: "info"})
    await heard.until(lambda: len(heard.logs) >= 2)
    say("logs", logs=heard.logs)


async def more_asks(client: Any) -> None:
    say("roots", text=wire(await client.call_tool("places", {}))["content"][0]["text"])
    prompt = wire(await client.get_prompt("toast", {}))
    say("asking prompt", text=prompt["messages"][0]["content"]["text"])
    resource = wire(await client.read_resource("note://poem"))
    say("asking resource", text=resource["contents"][0]["text"])


async def listen(client: Any) -> None:
    """Receive a change of a resource, then of the tools."""
    events: list[str] = []
    async with (
        asyncio.timeout(PATIENCE),
        client.listen(tools_list_changed=True, resource_subscriptions=[NOTE]) as subscription,
    ):
        honoured = subscription.honored
        say("honoured", tools=honoured.tools_list_changed, uris=honoured.resource_subscriptions)
        for tool in ("touch", "learn"):
            await client.call_tool(tool, {})
            event = await anext(aiter(subscription))
            events.append(getattr(event, "uri", "tools"))
    say("heard", events=events)
