"""Requests at another process than the one that runs the call, over each store that processes share."""

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from tests.http.client import Client, Json, http_test_within
from tests.redis_server import needs_redis, redis_server
from tests.workers.fleet import Fleet, fleet

TRIALS = 5


@pytest.fixture(scope="module", params=["sqlite", pytest.param("redis", marks=needs_redis)])
def two(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Fleet]]:
    """Two processes over one store."""
    with contextlib.ExitStack() as stack:
        url = f"sqlite:///{tmp_path_factory.mktemp('elsewhere') / 'store.db'}"
        if request.param == "redis":
            url = stack.enter_context(redis_server()).url
        yield [stack.enter_context(fleet(env={"HOLDFAST_STORE": url})) for _ in range(2)]


async def last_when_deleted(client: Client, port: int, tool: str, **args: Json) -> Json:
    """Call a tool, DELETE the session at another port once the call has sent something; return its last message."""
    response = await client.start(tool, **args)
    last: Json = None
    async for message in response.messages():
        if last is None:
            client.port = port
            assert await client.delete() == 204
        last = message
    return last


@http_test_within(40)
async def test_calls_end_as_cancelled_when_their_session_is_deleted_at_another_process(
    two: list[Fleet],
) -> None:
    runner, other = two
    for _ in range(TRIALS):
        for tool, args in (("steps", {"n": 500, "seconds": 0.02}), ("ask", {})):
            client = await Client.opened(runner.port, capabilities={"sampling": {}})
            last = await asyncio.wait_for(last_when_deleted(client, other.port, tool, **args), 10)
            assert last.get("error", {}).get("code") == -32800, (tool, last)
            assert await client.delete() == 404
    assert "SessionGone" not in runner.output() + other.output()
