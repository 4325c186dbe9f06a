"""Requests at another process than the one that runs the call, over each store that processes share."""

import asyncio
import contextlib
import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http.client import Client, Connection, Cut, Response, call, http_test, value
from tests.messages import Json
from tests.redis_server import needs_redis, redis_server
from tests.support import BOUND, until
from tests.workers.fleet import Fleet, fleet
from tests.workers.shop import LEASE

TRIALS = 5


@pytest.fixture(scope="module", params=["sqlite", pytest.param("redis", marks=needs_redis)])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A store that processes share."""
    if request.param == "redis":
        with redis_server() as redis:
            yield redis.url
    else:
        yield f"sqlite:///{tmp_path_factory.mktemp('elsewhere') / 'store.db'}"


@pytest.fixture(scope="module")
def two(store: str) -> Iterator[list[Fleet]]:
    """Two processes over one store."""
    with contextlib.ExitStack() as stack:
        env = {"LIMPET_STORE": store, "SHOP_KEEP_ALIVE": "1"}
        yield [stack.enter_context(fleet(env=env)) for _ in range(2)]


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


@http_test
async def test_calls_end_as_cancelled_when_their_session_is_deleted_at_another_process(
    two: list[Fleet],
) -> None:
    runner, other = two
    for _ in range(TRIALS):
        for tool, args in (("steps", {"n": 500, "seconds": 0.02}), ("ask", {})):
            client = await Client.opened(runner.port, capabilities={"sampling": {}})
            last = await asyncio.wait_for(last_when_deleted(client, other.port, tool, **args), BOUND)
            assert last.get("error", {}).get("code") == -32800, (tool, last)
            assert await client.delete() == 404
    assert "SessionGone" not in runner.output() + other.output()


async def cut_and_repeated(client: Client, port: int, file: Path, seconds: float) -> Response:
    """Cut a call at one process, so many seconds after its start, and send it again at another; return the response."""
    body = call(next(client.numbers), "steps_until", file=str(file))
    first = await Connection.open(client.port)
    sending = asyncio.ensure_future(client.post(body, on=first))
    await until(Path(f"{file}.begun").exists)
    await asyncio.sleep(seconds)  # real time is the subject: the cut comes at any moment of the call
    first.cut()
    with contextlib.suppress(Cut, OSError):
        await sending
    return await client.post(body, on=await Connection.open(port))


@http_test
async def test_cut_calls_repeated_at_another_process_get_the_answer_of_the_one_execution(
    two: list[Fleet], tmp_path: Path
) -> None:
    runner, other = two
    client = await Client.opened(runner.port)
    files = [tmp_path / str(number) for number in range(16)]
    cuts = [cut_and_repeated(client, other.port, file, 0.05 * (n % 8)) for n, file in enumerate(files)]
    responses = await asyncio.gather(*cuts)
    assert [response.status for response in responses] == [200] * 16
    for file in files:
        file.touch()
    answers = [value(await response.answer()) for response in responses]
    assert answers == [runner.pid] * 16, "each ran once, where it came first"


@http_test
async def test_a_call_whose_first_connection_is_half_open_is_repeated_at_another_process(
    two: list[Fleet], tmp_path: Path
) -> None:
    runner, other = two
    client = await Client.opened(runner.port)
    body = call(1, "held", file=str(tmp_path / "enough"))
    # It is neither read nor closed, as behind a balancer that died.
    half_open, began = await client.post(body), time.monotonic()
    client.port = other.port
    response = await client.post(body)
    if time.monotonic() - began < 1:  # A loaded machine may be slower.
        assert response.status == 400, "the first connection was written to a moment ago"
    if response.status == 400:
        # Real time is the subject: the first connection is silent for one keep-alive.
        await asyncio.sleep(1.2)
        response = await client.post(body)
    (tmp_path / "enough").touch()
    assert (response.status, value(await response.answer())) == (200, runner.pid)
    half_open.connection.cut()


@http_test
async def test_a_call_of_a_killed_process_repeated_at_another_waits_for_its_outcome(store: str) -> None:
    env = {"LIMPET_STORE": store}
    with fleet(env=env) as runner, fleet(env=env) as other:
        client = await Client.opened(runner.port)
        # The one that is left must have seen the store for one lease before it may declare the other dead.
        await asyncio.sleep(LEASE)
        body = call(1, "steps", n=100, seconds=0.1)
        await client.post(body)
        os.kill(runner.pid, signal.SIGKILL)
        client.port = other.port
        response = await client.post(body)
        assert response.status == 200
        assert (await response.answer())["error"]["code"] == -31002
        client.numbers = itertools.count(2)
        assert await client.call("who") == other.pid
