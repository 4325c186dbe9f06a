# ruff: noqa: PLC0415 - each environment has only one of these packages
# mypy: disable-error-code="import-not-found, misc"
# The clients live in .peers, never in our environment.
"""Calls slow tools with a Python client, and collects their results, as a model does. Prints one line of JSON for each target and mode.

python slow.py mcp1|mcp2|fastmcp TARGETS

TARGETS: a JSON object, by name a URL or a command. A mode is a revision (legacy, auto), or `tasks`: 2026-07-28 with the extension
for tasks, written with the means that these packages have for extensions.
"""

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from typing import Any

KIND, TARGETS = sys.argv[1], json.loads(sys.argv[2])
MODES = ["legacy"] if KIND == "mcp1" else ["legacy", "auto", "tasks"]


def tasks_extension(resolved: list[str]) -> Any:
    """Return the extension for tasks: it polls the task of a call, and returns the result."""
    from typing import Literal

    import mcp_types as types
    from mcp.client.extension import ClientExtension, ResultClaim

    class TaskHandle(types.Result):
        result_type: Literal["task"] = "task"
        task_id: str
        poll_interval_ms: int | None = None

    class GetTask(types.Request[dict[str, Any], Literal["tasks/get"]]):
        name_param = "taskId"
        method: Literal["tasks/get"] = "tasks/get"
        params: dict[str, Any]

    class Detail(types.Result):
        status: str
        result: dict[str, Any] | None = None

    async def resolve(handle: Any, context: Any) -> Any:
        resolved.append(context.tool_name)
        while True:
            request = GetTask(params={"taskId": handle.task_id})
            detail = await context.session.send_request(request, Detail)
            if detail.status != "working":
                return types.CallToolResult.model_validate(detail.result)
            await asyncio.sleep((handle.poll_interval_ms or 200) / 1000)

    class Tasks(ClientExtension):
        identifier = "io.modelcontextprotocol/tasks"

        def claims(self) -> Any:
            return [ResultClaim(result_type="task", model=TaskHandle, resolve=resolve)]

    return Tasks()


@asynccontextmanager
async def opened(target: Any, mode: str, resolved: list[str], **more: Any) -> Any:
    """Connect a client of this kind. `more` are arguments of its class."""
    if KIND == "mcp1":
        from mcp import ClientSession, StdioServerParameters
        from mcp.client.stdio import stdio_client
        from mcp.client.streamable_http import streamable_http_client

        transport = (
            streamable_http_client(target)
            if isinstance(target, str)
            else stdio_client(StdioServerParameters(command=target[0], args=target[1:]))
        )
        async with transport as (read, write, *_), ClientSession(read, write) as session:
            await session.initialize()
            yield session
        return
    more |= {"extensions": [tasks_extension(resolved)], "mode": "auto"} if mode == "tasks" else {"mode": mode}
    if KIND == "mcp2":
        from mcp import Client, StdioServerParameters

        place = (
            target if isinstance(target, str) else StdioServerParameters(command=target[0], args=target[1:])
        )
        async with Client(place, **more) as client:
            yield client
    else:
        from fastmcp import Client
        from fastmcp.client.transports import StdioTransport

        place = target if isinstance(target, str) else StdioTransport(command=target[0], args=target[1:])
        async with Client(place, **more) as client:
            yield client


def structured(result: Any) -> Any:
    """Return the structured content, by the name of this generation."""
    found = getattr(result, "structured_content", None)
    return found if found is not None else result.structuredContent


async def conversation(client: Any, label: str) -> dict[str, Any]:
    """Collect the results of slow calls. Keys and names of conversations contain the label."""
    found: dict[str, Any] = {}
    listed = await client.list_tools()
    names = [tool.name for tool in getattr(listed, "tools", listed)]
    for tool in ("tree", "word"):
        result = await client.call_tool(tool, {})
        found[f"{tool} first"] = sorted(structured(result))
        while "ticket" in structured(result):
            result = await client.call_tool("collect", {"ticket": structured(result)["ticket"]})
        found[tool] = structured(result)
    keyed = [
        structured(
            await client.call_tool("order", {"dish": dish}, meta={"limpet/idempotency-key": f"{label}-{key}"})
        )
        for dish, key in (("soup", "one"), ("soup", "one"), ("fish", "two"))
    ]
    found["orders"] = [one["result"].split()[0] for one in keyed]
    found["runs once"] = keyed[0] == keyed[1] != keyed[2]
    if "bump" in names:
        found["conversations"] = [
            structured(await client.call_tool("bump", {}, meta={"test/conversation": f"{label}-{name}"}))[
                "result"
            ]
            for name in ("a", "a", "b")
        ]
    return found


async def main() -> None:
    for name, target in TARGETS.items():
        for mode in MODES if isinstance(target, str) else MODES[:2]:
            resolved: list[str] = []
            async with opened(target, mode, resolved) as client:
                found = await conversation(client, f"{KIND}-{name}-{mode}")
            if mode == "tasks":
                found["tasks"] = resolved
            print(json.dumps({f"{name} {mode}": found}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
