"""Processes that share a Redis, as on several hosts: any request at any of them, and each may go at any time."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http.client import Connection, http_test
from tests.messages import Json
from tests.redis_server import RedisServer, needs_redis, redis_server
from tests.support import until, wait_until
from tests.workers.fleet import Anywhere, Fleet, Journey, at_every, fleet, increments
from tests.workers.shop import LEASE
from tests.workers.tasks import begun, ended
from tools.ports import free_port

pytestmark = needs_redis


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@contextlib.contextmanager
def replicas(redis: RedisServer, count: int, *options: str) -> Iterator[list[Fleet]]:
    """Run processes that share a Redis; its URL is in no argument list."""
    with contextlib.ExitStack() as stack:
        env = {"LIMPET_STORE": redis.url}
        yield [stack.enter_context(fleet(*options, env=env)) for _ in range(count)]


@http_test
async def test_twenty_clients_count_to_a_thousand_over_three_processes(redis: RedisServer) -> None:
    with replicas(redis, 3) as running:
        ports = tuple(replica.port for replica in running)
        client = await at_every(ports)
        clients = [client, *(Anywhere(port) for _ in range(7) for port in ports)][:20]
        for other in clients[1:]:
            other.session_id, other.numbers, other.ports = client.session_id, client.numbers, ports
        await asyncio.gather(*(increments(each, 50) for each in clients))
        assert await client.call("counted") == 1_000


@http_test
async def test_calls_of_a_killed_process_end_with_one_error_in_time(
    redis: RedisServer, tmp_path: Path
) -> None:
    enough = tmp_path / "enough"
    with replicas(redis, 3) as running:
        ports = tuple(replica.port for replica in running)
        client = await at_every(ports)
        journeys = [Journey(client, "steps_until", file=str(enough)) for _ in range(12)]
        tasks = [asyncio.create_task(journey.run()) for journey in journeys]
        await until(lambda: all(len(journey.messages) > 2 for journey in journeys))
        victim = running[0]
        os.kill(victim.pid, signal.SIGKILL)
        killed_at = time.monotonic()
        client.ports = tuple(port for port in client.ports if port != victim.port)
        lost: list[Json] = []
        for task in asyncio.as_completed(tasks):
            if not isinstance(answer := await task, int):
                lost.append(answer)
            if len(lost) == 4:
                break
        # The lease and two seconds, and a busy machine.
        assert time.monotonic() - killed_at < LEASE + 2 + 20
        assert {answer["code"] for answer in lost} == {-31002}
        enough.touch()
        answers = await asyncio.gather(*tasks)
        assert sum(isinstance(answer, int) for answer in answers) == 8, "those it ran end, and no other"
        assert all(journey.progress == list(range(1, len(journey.progress) + 1)) for journey in journeys)


@http_test
async def test_tasks_of_killed_and_frozen_processes_end_and_those_of_living_ones_continue(
    redis: RedisServer,
) -> None:
    with replicas(redis, 3) as (killed, frozen, living):
        lost, alive = await begun(killed, seconds=600), await begun(living, seconds=3.5)
        os.kill(killed.pid, signal.SIGKILL)
        stale, returns_at = await begun(frozen, seconds=2 * LEASE), time.monotonic() + 2 * LEASE
        os.kill(frozen.pid, signal.SIGSTOP)
        try:
            for task_id in (lost, stale):
                task = await ended(living, task_id)
                assert (task["status"], task["error"]["code"]) == ("failed", -31002)
        finally:
            os.kill(frozen.pid, signal.SIGCONT)
        assert (await ended(living, alive))["result"]["structuredContent"]["result"] == living.pid
        # Awake again, its handler returns, and its result has lost. The time of the handler is the subject.
        await asyncio.sleep(returns_at - time.monotonic())
        assert await ended(frozen, stale) == await ended(living, stale)
        assert (await ended(frozen, stale))["error"]["code"] == -31002
        again = await begun(frozen, seconds=0.1)
        assert (await ended(living, again))["result"]["structuredContent"]["result"] == frozen.pid


@http_test
async def test_restarting_one_process_after_another_loses_no_running_call(
    redis: RedisServer, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        env = {"LIMPET_STORE": redis.url}
        ports = (free_port(), free_port())
        old = [stack.enter_context(fleet(env=env, http=f"127.0.0.1:{port}")) for port in ports]
        client = await at_every(ports)
        for replica in old:
            enough = tmp_path / str(replica.pid)
            journeys = [Journey(client, "steps_until", file=str(enough)) for _ in range(6)]
            tasks = [asyncio.create_task(journey.run()) for journey in journeys]
            await until(lambda journeys=journeys: all(journey.messages for journey in journeys))
            replica.tell(signal.SIGTERM)
            await until(lambda journeys=journeys: sum(bool(journey.resumed) for journey in journeys) == 3)
            enough.touch()
            answers = await asyncio.gather(*tasks)
            assert answers.count(replica.pid) == 3, "it finished its running calls"
            assert all(journey.progress == list(range(1, len(journey.messages))) for journey in journeys)
            assert sum(bool(journey.resumed) for journey in journeys) == 3, "its streams were handed over"
            await until(lambda replica=replica: replica.popen.poll() is not None)
            assert replica.popen.returncode == 0, replica.output()
            await asyncio.to_thread(stack.enter_context, fleet(env=env, http=f"127.0.0.1:{replica.port}"))
        assert await Journey(client, "bump").run() == 1, "the session has outlived both"


@http_test
async def test_servers_of_two_namespaces_on_one_redis_never_see_each_other(redis: RedisServer) -> None:
    with (
        replicas(redis, 1, "--namespace", "one") as (one,),
        replicas(redis, 1, "--namespace", "two") as (two,),
    ):
        client = await at_every((one.port,))
        assert await client.call("bump") == 1
        client.port = two.port
        for response in (await client.start("bump"), await client.get()):
            assert response.status == 404
        assert await client.delete() == 404
        client.port = one.port
        assert await client.call("bump") == 2


def test_a_redis_that_throws_keys_away_is_warned_of() -> None:
    with redis_server("--maxmemory-policy", "allkeys-lru") as careless, replicas(careless, 1) as (running,):
        assert running.output().count("store.evicts") <= 1
        running.end()
        assert "set maxmemory-policy noeviction" in running.output()


def test_a_password_is_neither_needed_in_the_arguments_nor_shown() -> None:
    with redis_server() as guarded:
        assert guarded.tell("CONFIG", "SET", "requirepass", "sEcret") == "OK"
        url = f"redis://:sEcret@127.0.0.1:{guarded.port}/0"
        with fleet("--workers", "2", env={"LIMPET_STORE": url}) as running:
            lines = [_arguments(pid) for pid in (running.pid, *running.workers())]
            assert len(lines) == 3
            assert "sEcret" not in "".join(lines)
            wait_until(lambda: f"redis://***@127.0.0.1:{guarded.port}/0" in running.output())
            assert "sEcret" not in running.output()


def _arguments(pid: int) -> str:
    with open(f"/proc/{pid}/cmdline") as file:  # noqa: PTH123 - not a path of files
        return file.read()


@http_test
async def test_a_stopping_process_is_first_not_ready_then_refuses_new_calls_then_ends(
    redis: RedisServer,
) -> None:
    env = {"LIMPET_STORE": redis.url, "SHOP_NOTICE": "3"}
    with fleet(env=env) as running:
        client = await Anywhere.opened(running.port, version="2025-06-18")
        journey = Journey(client, "steps", n=50, seconds=0.1)
        task = asyncio.create_task(journey.run())
        assert await _status(running.port, "/readyz") == 200
        await until(lambda: bool(journey.messages))
        running.tell(signal.SIGTERM)

        async def is_not_ready() -> bool:
            return await _status(running.port, "/readyz") != 200

        await until(is_not_ready)
        assert await client.call("who") == running.pid, "it continues serving while the balancer notices"
        assert await _status(running.port, "/healthz") == 200
        while (response := await client.start("who")).status == 200:
            await response.body()
        assert (response.status, response.headers["retry-after"]) == (503, "1")
        assert await task == running.pid
        assert journey.progress == list(range(1, 51))
        await until(lambda: running.popen.poll() is not None)
        assert running.popen.returncode == 0


async def _status(port: int, path: str) -> int:
    connection = await Connection.open(port)
    response = await connection.request("GET", {"Host": "10.0.0.7"}, path=path)
    connection.cut()
    return response.status
