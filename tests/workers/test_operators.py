"""Two processes that share a Redis, seen by the operators of one of them; then the other one is killed."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.http.client import Client, http_test
from tests.messages import Json
from tests.redis_server import RedisServer, needs_redis, redis_server
from tests.support import until
from tests.workers.fleet import Fleet, fleet
from tests.workers.test_admin import ADMIN, ENV, ask, state

pytestmark = needs_redis


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


def replica_states(seen: Json) -> dict[str, str]:
    return {one["name"]: one["state"] for one in seen["replicas"]}


async def until_seen(running: Fleet, wanted: Any) -> Json:
    """Ask for the state until it is as wanted."""
    states: list[Json] = []

    async def is_as_wanted() -> bool:
        states[:] = [await state(running)]
        return bool(wanted(states[0]))

    await until(is_as_wanted, every=0.2)
    return states[0]


@http_test
async def test_operators_of_one_replica_see_and_cancel_the_work_of_another_until_it_is_killed(
    redis: RedisServer,
) -> None:
    with contextlib.ExitStack() as stack:
        env = {**ENV, "LIMPET_STORE": redis.url}
        here, there = (stack.enter_context(fleet(*ADMIN, env=env)) for _ in range(2))
        client = await Client.opened(there.port)
        calling = asyncio.create_task(client.start("steps", n=1, seconds=300))
        seen = await until_seen(here, lambda seen: seen["calls"])
        (call,) = seen["calls"]
        assert (call["name"], call["waits_for"]) == ("steps", "handler")
        names = replica_states(seen)
        assert sorted(names.values()) == ["live", "live"]
        (session,) = seen["sessions"]
        assert (session["state"], session["calls"], session["replica"]) == ("attached", 1, call["replica"])
        assert client.session_id not in json.dumps(seen)

        answer = await ask(here, f"/api/calls/{call['id']}/cancel", "POST")
        assert answer.status == 200, answer.body
        assert "by an operator" in json.dumps(await (await calling).answer())

        calling = asyncio.create_task(client.start("steps", n=1, seconds=300))
        await until_seen(here, lambda seen: [one["id"] for one in seen["calls"]] not in ([], [call["id"]]))
        os.kill(there.pid, signal.SIGKILL)
        seen = await until_seen(here, lambda seen: "silent" in replica_states(seen).values())
        assert replica_states(seen)[call["replica"]] == "silent"
        seen = await until_seen(here, lambda seen: "gone" in replica_states(seen).values())
        assert replica_states(seen)[call["replica"]] == "gone"
        seen = await until_seen(here, lambda seen: seen["counts"]["calls lost with a replica"])
        answer = await ask(here, f"/api/sessions/{session['id']}/close", "POST")
        assert answer.status == 200, answer.body
        await until(lambda: "by an operator" in here.output())
        calling.cancel()
