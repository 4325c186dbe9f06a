# mypy: disable-error-code="import-not-found,misc"
# `fastmcp` lives in .peers/fastmcp, never in our environment.
"""The client of fastmcp, with the methods of `mcp.Client` where it names them otherwise."""

import asyncio
from typing import Any

import mcp_types as types
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from tests.interop.clients.conversation import HOME, Heard, config, say
from tests.interop.clients.modern import converse_modern


class Unwrapped:
    """fastmcp's client returns the contents of a result; this returns the result."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.list_tools = client.list_tools_mcp
        self.list_resources = client.list_resources_mcp
        self.list_resource_templates = client.list_resource_templates_mcp
        self.list_prompts = client.list_prompts_mcp
        self.read_resource = client.read_resource_mcp
        self.get_prompt = client.get_prompt_mcp
        self.complete = client.complete_mcp

    async def call_tool(
        self, name: str, arguments: dict[str, Any], progress_callback: Any = None, meta: Any = None
    ) -> Any:
        """Call a tool; an error of the tool's is a result."""
        return await self._client.call_tool_mcp(
            name, arguments, progress_handler=progress_callback, meta=meta
        )


async def main() -> None:
    asked = config()
    heard = Heard(types)

    async def sample(_messages: Any, params: Any, context: Any) -> Any:
        return await heard.sample(context, params)

    async def elicit(_message: str, _kind: Any, params: Any, context: Any) -> Any:
        return await heard.elicit(context, params)

    async with Client(
        target(asked),
        mode=asked["mode"],
        roots=[HOME],
        sampling_handler=sample,
        elicitation_handler=elicit,
        log_handler=heard.log,
        client_info=types.Implementation(name="fastmcp", version="1"),
    ) as client:
        say("connected", version=client.protocol_version, server=client.server_info.name)
        await converse_modern(Unwrapped(client), types, heard)
    say("closed")


def target(asked: dict[str, Any]) -> Any:
    if "url" in asked:
        return asked["url"]
    command, *args = asked["command"]
    return StdioTransport(command=command, args=args, env=asked["env"])


asyncio.run(main())
