"""Slow calls on two replicas: the result is collected at the other one, and after the death of the owner the outcome is unknown.

Each row of docs/how-to/slow-calls.md, on both shared stores; of functions, of a program, of a URL and of an object in the process.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from limpet.auth.forward_key import new_key
from limpet.errors import OUTCOME_UNKNOWN
from limpet.ports import SystemRandom
from tests.client.servers import listening
from tests.http.client import Client, http_test, sessionless
from tests.interop.test_slow import FRONT, PEER
from tests.messages import Json
from tests.redis_server import needs_redis, redis_server
from tests.workers.fleet import Fleet, fleet
from tools.ports import free_port

pytestmark = needs_redis

WITH_TASKS: Final[Json] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
RUNNING: Final = {"input_required", "task"}


@pytest.fixture(params=["native-redis", "native-sqlite", "child-sqlite", "url-redis", "hosted-redis"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Fleet]]:
    """Run two replicas."""
    back, _, store = request.param.partition("-")
    with contextlib.ExitStack() as stack:
        env = {"SLOW_FOLDER": str(tmp_path)}
        if store == "redis":
            env["LIMPET_STORE"] = stack.enter_context(redis_server()).url
        else:
            env["LIMPET_STORE"] = f"sqlite:///{tmp_path / 'store.db'}"
        if back == "hosted":
            env["SLOW_KEY"] = new_key(SystemRandom())
        if back == "url":
            port = free_port()
            env["SLOW_URL"] = stack.enter_context(listening([*PEER, str(tmp_path), str(port)], port))
        yield [stack.enter_context(fleet(env=env, target=f"{FRONT}:{back}")) for _ in range(2)]


async def ticket(port: int, tool: str) -> Json:
    """Call a tool as a client with a session; return the arguments for `collect`."""
    client = await Client.opened(port)
    answer = await (await client.start(tool)).answer()
    assert not answer["result"].get("isError")
    return {"ticket": answer["result"]["structuredContent"]["ticket"]}


async def collect(port: int, given: Json) -> Json:
    """Collect a result with another session, as after a restart of the client."""
    client = await Client.opened(port)
    return await (await client.start("collect", **given)).answer()


async def state(port: int, tool: str) -> Json:
    """Call a tool as a client without a session; return the params of its next request."""
    params: Json = {"name": tool, "arguments": {}}
    result = (await (await sessionless(port, "tools/call", params)).answer())["result"]
    assert (result["resultType"], "inputRequests" in result) == ("input_required", False)
    return {**params, "requestState": result["requestState"]}


async def ask_again(port: int, params: Json) -> Json:
    answer = await (await sessionless(port, "tools/call", params)).answer()
    if answer.get("result", {}).get("resultType") == "input_required":
        params["requestState"] = answer["result"]["requestState"]
    return answer


async def task(port: int, tool: str) -> Json:
    """Call a tool as a client with tasks; return the params of `tasks/get`."""
    params: Json = {"name": tool, "arguments": {}}
    call = await sessionless(port, "tools/call", params, capabilities=WITH_TASKS)
    result = (await call.answer())["result"]
    assert result["resultType"] == "task"
    return {"taskId": result["taskId"]}


async def poll(port: int, params: Json) -> Json:
    """Return the answer of the call, from the state of its task."""
    got = await sessionless(port, "tasks/get", params, capabilities=WITH_TASKS)
    found = (await got.answer())["result"]
    if found["status"] == "working":
        return {"result": {"resultType": "task"}}
    return {"error": found["error"]} if found["status"] == "failed" else {"result": found["result"]}


ROWS: Final = ((ticket, collect), (state, ask_again), (task, poll))


def still_runs(answer: Json) -> bool:
    result = answer.get("result", {})
    return result.get("resultType") in RUNNING or "ticket" in result.get("structuredContent", {})


@http_test
async def test_a_slow_call_is_collected_at_the_other_replica_and_ends_as_unknown_if_its_owner_dies(
    pair: list[Fleet],
) -> None:
    here, there = pair
    for begin, follow in ROWS:
        handle = await begin(here.port, "word")
        while still_runs(answer := await follow(there.port, handle)):
            pass
        assert answer["result"]["structuredContent"] == {"result": "done"}, follow.__name__

    lost = [(follow, await begin(here.port, "hang")) for begin, follow in ROWS]
    for follow, handle in lost:
        assert still_runs(await follow(there.port, handle)), follow.__name__
    os.kill(here.pid, signal.SIGKILL)
    for follow, handle in lost:
        while still_runs(answer := await follow(there.port, handle)):
            # Until the lease of the owner has ended: a task is polled, the others wait by themselves.
            await asyncio.sleep(0.05)
        assert answer["error"]["code"] == OUTCOME_UNKNOWN, follow.__name__
        assert "unknown" in answer["error"]["message"]
    output = there.output() + here.output()
    for _, handle in lost:
        assert not any(str(secret) in output for secret in handle.values() if len(str(secret)) > 20)
