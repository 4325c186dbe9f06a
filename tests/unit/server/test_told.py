"""What failures say to the client, alone and out of task groups."""

import asyncio

import pytest

from holdfast import CapabilityMissing, Context, McpError, Server, ToolError
from holdfast.server.told import words_of
from tests.support import async_test
from tests.unit.server.peer import connected


def test_a_group_tells_what_its_members_tell_each_thing_once() -> None:
    inner = ExceptionGroup("", [ToolError("b"), CapabilityMissing("c")])
    assert words_of(ExceptionGroup("", [ToolError("a"), ToolError("a"), inner])) == "a\nb\nc"


def test_a_fault_tells_nothing_and_silences_its_group() -> None:
    assert words_of(ValueError("secret")) is None
    assert words_of(ExceptionGroup("", [ToolError("a"), ValueError("secret")])) is None


@async_test
async def test_asks_that_fail_together_in_a_task_group_are_a_failed_result_and_not_an_internal_error() -> (
    None
):
    server = Server("s")

    @server.tool
    async def parallel(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ctx.sample("?")) for _ in range(3)]
        return ",".join(task.result().text for task in asked)

    @server.prompt
    async def prompted(ctx: Context) -> str:
        return await parallel(ctx)

    async with connected(server) as peer:
        text = await peer.failure("parallel")
        assert text.count("did not declare the capability `sampling`") == 1
        with pytest.raises(McpError, match="did not declare the capability `sampling`"):
            await peer.request("prompts/get", {"name": "prompted"})
