"""Three processes in front of a server that keeps something for each session: its home can be any of them, and can go.

The replica that opens a session is its home. So a test chooses the home by the port of `initialize`.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest
from redis.asyncio import Redis

from limpet.auth.forward_key import new_key
from limpet.errors import INVALID_REQUEST, OUTCOME_UNKNOWN, REQUEST_CANCELLED
from limpet.ports import SystemRandom
from limpet.protocol.idempotency import KEY
from tests.client.servers import listening
from tests.http.client import Client, Keeper, Response, call, http_test, sessionless, value
from tests.messages import Json, metadata
from tests.redis_server import RedisServer, needs_redis, redis_server
from tests.support import BOUND, until, wait_until
from tests.workers.fleet import Fleet, children, fleet, lives
from tools.ports import free_port

pytestmark = needs_redis

HERE: Final = Path(__file__).parent
APP: Final = str(HERE / "fleet_app.py")
KEEPER: Final = str(HERE / "keeper.py")
ELICITATION: Final[dict[str, Json]] = {"elicitation": {"form": {}}}
BACKS: Final = ("process", "remote", "hosted")


class Trio:
    """Three replicas over one store. One that a test has ended is replaced for the next test."""

    def __init__(self, env: dict[str, str], stack: contextlib.ExitStack) -> None:
        self._env = env
        self._stack = stack
        self.replicas: list[Fleet] = []

    def complete(self, count: int) -> "Trio":
        """Start the missing replicas, and put them last. A killed replica may have left children, which end soon."""
        self.replicas = [replica for replica in self.replicas if replica.popen.poll() is None]
        with ThreadPoolExecutor() as pool:
            missing = [fleet(env=self._env, target=APP) for _ in range(count - len(self.replicas))]
            self.replicas += pool.map(self._stack.enter_context, missing)
        return self

    @property
    def ports(self) -> list[int]:
        return [replica.port for replica in self.replicas]


@contextlib.contextmanager
def behind(back: str) -> Iterator[dict[str, str]]:
    """Run the server behind, if it is a process of its own; the environment of the replicas."""
    env = {"FLEET_BACK": back, "FLEET_KEY": new_key(SystemRandom())}
    if back != "remote":
        yield env
        return
    port = free_port()
    serve = [sys.executable, "-m", "limpet", "serve", KEEPER, "--http", f"127.0.0.1:{port}"]
    with listening(serve, port) as url:
        yield {**env, "FLEET_URL": url}


@pytest.fixture(scope="module", params=BACKS)
def fleet_of_three(request: pytest.FixtureRequest) -> Iterator[Trio]:
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(redis_server())
        env = stack.enter_context(behind(request.param))
        yield Trio({**env, "LIMPET_STORE": redis.url}, stack)


@pytest.fixture
def trio(fleet_of_three: Trio) -> Trio:
    return fleet_of_three.complete(3)


@pytest.fixture
def two_at_least(fleet_of_three: Trio) -> Trio:
    return fleet_of_three.complete(2)


def elsewhere(client: Client, port: int) -> Client:
    """Return a client of the same session at another replica."""
    other = Client(port)
    other.session_id, other.numbers = client.session_id, client.numbers
    return other


async def opened(trio: Trio) -> list[Client]:
    """Open a session; return its client at each replica. The first replica is the session's home."""
    client = await Client.opened(trio.ports[0], capabilities=ELICITATION)
    return [client, *(elsewhere(client, port) for port in trio.ports[1:])]


async def answered(response: Response, answering: Client, text: str) -> Json:
    """Answer the one question of a call at some replica; return the result."""
    last: Json = None
    async for last in response.messages():
        if last.get("method") == "elicitation/create":
            status = await answering.reply(last, {"action": "accept", "content": {"text": text}})
            assert status == 202
    return value(last)


async def arrived(response: Response, method: str) -> None:
    """Wait for a notification on a stream."""
    async for message in response.messages():
        if message.get("method") == method:
            return
    raise AssertionError(f"the stream has ended without {method}")


async def in_progress(response: Response) -> None:
    """Wait for the first progress of a call."""
    await arrived(response, "notifications/progress")


@http_test
async def test_requests_of_a_session_reach_what_the_home_keeps_from_every_replica(trio: Trio) -> None:
    clients = await opened(trio)
    assert [await client.call("bump") for client in clients * 2] == [1, 2, 3, 4, 5, 6]
    counted = await asyncio.gather(*(client.call("bump") for client in clients * 5))
    assert sorted(counted) == list(range(7, 22))
    other = await Client.opened(trio.ports[1])
    assert await other.call("bump") == 1, "another session has its own"


@http_test
async def test_a_question_is_asked_where_the_call_arrived_and_answered_anywhere(trio: Trio) -> None:
    clients = await opened(trio)
    for at, client in enumerate(clients):
        # One after another: with several calls in flight a program's question belongs to none of them.
        response = await client.start("ask")
        assert await answered(response, clients[(at + 1) % 3], f"from {at}") == f"from {at}"


@http_test
async def test_a_2026_client_is_asked_at_one_replica_and_answers_at_another(trio: Trio) -> None:
    params: dict[str, Json] = {"name": "ask", "arguments": {}}
    first = await (await sessionless(trio.ports[0], "tools/call", params, capabilities=ELICITATION)).answer()
    asked = first["result"]
    assert asked["resultType"] == "input_required"
    answers = {key: {"action": "accept", "content": {"text": "me"}} for key in asked["inputRequests"]}
    retry = {**params, "requestState": asked["requestState"], "inputResponses": answers}
    final = await (await sessionless(trio.ports[1], "tools/call", retry, capabilities=ELICITATION)).answer()
    assert value(final) == "me"


async def bumped(port: int, conversation: str) -> Json:
    """Count in a conversation of 2026-07-28."""
    meta = {**metadata(), "test/conversation": conversation}
    params: dict[str, Json] = {"name": "bump", "arguments": {}, "_meta": meta}
    return value(await (await sessionless(port, "tools/call", params)).answer())


@http_test
async def test_the_requests_of_a_conversation_reach_what_its_home_keeps_from_every_replica(
    trio: Trio,
) -> None:
    assert [await bumped(port, "a") for port in trio.ports * 2] == [1, 2, 3, 4, 5, 6]
    assert await bumped(trio.ports[1], "b") == 1, "another conversation has its own"
    assert [await bumped(port, "b") for port in trio.ports] == [2, 3, 4]


async def keyed(port: int, key: str, **arguments: Json) -> Response:
    """Begin a call of 2026-07-28 with an idempotency key."""
    params: dict[str, Json] = {"name": "steps", "arguments": arguments}
    meta = {**metadata(), KEY: key, "progressToken": key}
    return await sessionless(port, "tools/call", {**params, "_meta": meta})


@http_test
async def test_a_2026_call_with_a_key_is_repeated_at_another_replica_and_runs_once(trio: Trio) -> None:
    first = await keyed(trio.ports[0], "repeated", n=40, seconds=0.05)
    await in_progress(first)
    first.connection.cut()
    repeat = await keyed(trio.ports[1], "repeated", n=40, seconds=0.05)
    await in_progress(repeat)
    assert value(await repeat.answer()) == 40
    kept = await keyed(trio.ports[2], "repeated", n=40, seconds=0.05)
    assert kept.headers["content-type"] == "application/json", "at once, and without progress"
    assert value(await kept.answer()) == 40
    refused = await keyed(trio.ports[2], "repeated", n=41, seconds=0.05)
    assert (refused.status, (await refused.answer())["error"]["code"]) == (400, INVALID_REQUEST)


@http_test
async def test_a_notification_reaches_the_home_from_any_replica(trio: Trio) -> None:
    clients = await opened(trio)
    before = await clients[0].call("roots_changed")
    for number, client in enumerate(clients):
        assert await client.tell("notifications/roots/list_changed") == 202

        async def is_heard(count: int = before + number + 1) -> bool:
            return bool(await clients[0].call("roots_changed") == count)

        await until(is_heard)


@http_test
async def test_a_call_is_cancelled_from_any_replica(trio: Trio) -> None:
    clients = await opened(trio)
    for number, (runner, canceller) in enumerate([(1, 2), (2, 0), (0, 1)]):
        message = call(f"cancelled {number}", "steps", n=1_000, seconds=0.02)
        response = await clients[runner].post(message)
        await in_progress(response)
        await clients[canceller].tell("notifications/cancelled", {"requestId": message["id"]})
        assert (await response.answer())["error"]["code"] == REQUEST_CANCELLED

        async def is_cancelled(count: int = number + 1) -> bool:
            return bool(await clients[0].call("cancelled") == count)

        await until(is_cancelled)


@http_test
async def test_a_session_closed_at_another_replica_leaves_nothing_at_its_home(trio: Trio) -> None:
    clients = await opened(trio)
    await clients[1].call("bump")
    grown = {pid for child in children(trio.replicas[0].pid) for pid in (child, *children(child))}
    assert await clients[2].delete() == 204
    assert (await clients[0].start("bump")).status == 404
    if grown:
        wait_until(lambda: any(not lives(pid) for pid in grown))


@http_test
async def test_the_end_of_a_receiving_replica_loses_nothing(trio: Trio) -> None:
    clients = await opened(trio)
    await clients[0].call("bump")
    response = await clients[1].start("steps", n=20, seconds=0.05)
    seen: list[Json] = []
    with contextlib.suppress(Exception):
        async for message in response.messages():
            seen.append(message)
            if len(seen) == 3:
                os.kill(trio.replicas[1].pid, signal.SIGKILL)
    resumed = await clients[2].get(response.last_id)
    assert resumed.status == 200
    seen += [message async for message in resumed.messages()]
    progress = [message["params"]["progress"] for message in seen[:-1]]
    assert progress == list(range(1, 21))
    assert value(seen[-1]) == 20
    assert await clients[2].call("bump") == 2, "the data of the home is unchanged"


@http_test
async def test_a_home_that_stops_finishes_its_calls_and_the_next_request_gets_another_home(
    two_at_least: Trio,
) -> None:
    clients = await opened(two_at_least)
    assert await clients[1].call("bump") == 1
    response = await clients[1].start("steps", n=30, seconds=0.05)
    await in_progress(response)
    home = two_at_least.replicas[0]
    home.tell(signal.SIGTERM)

    async def is_counted_again() -> bool:
        """True if the answer is that of a new home. Until the old one has begun to stop, it answers."""
        return bool(await clients[-1].call("bump") == 1)

    await until(is_counted_again)
    assert value(await response.answer()) == 30
    assert await asyncio.to_thread(home.popen.wait, BOUND) == 0
    assert await clients[1].call("bump") == 2


@http_test
async def test_a_killed_home_costs_one_error_for_the_calls_in_flight_and_the_next_request_gets_another(
    trio: Trio,
) -> None:
    clients = await opened(trio)
    assert await clients[1].call("bump") == 1
    standalone = await clients[1].get()
    inflight = [await client.start("steps", n=1_000, seconds=0.05) for client in clients[1:]]
    assert [await bumped(port, "killed") for port in trio.ports] == [1, 2, 3]
    with_key = await keyed(trio.ports[0], "killed", n=1_000, seconds=0.05)
    for response in (*inflight, with_key):
        await in_progress(response)
    os.kill(trio.replicas[0].pid, signal.SIGKILL)
    repeat = asyncio.ensure_future(keyed(trio.ports[1], "killed", n=1_000, seconds=0.05))
    # Sent before the others can know of the death, and taken by no home.
    next_one = asyncio.ensure_future(clients[2].call("bump"))
    for response in inflight:
        rest = [message async for message in response.messages()]
        errors = [message for message in rest if "error" in message]
        assert [error["error"]["code"] for error in errors] == [OUTCOME_UNKNOWN]
        assert rest[-1] == errors[0]
    assert await next_one == 1, "a new home, which keeps nothing yet"
    assert await clients[1].call("bump") == 2, "the same one for all"
    await arrived(standalone, "notifications/tools/list_changed")
    assert [await bumped(port, "killed") for port in trio.ports[1:]] == [1, 2], "a new home keeps nothing yet"
    assert (await (await repeat).answer())["error"]["code"] == OUTCOME_UNKNOWN, "it does not run again"


@http_test
async def test_a_client_that_only_listens_gets_a_new_home_after_a_kill(two_at_least: Trio) -> None:
    _, other, *_ = await opened(two_at_least)
    standalone = await other.get()
    os.kill(two_at_least.replicas[0].pid, signal.SIGKILL)
    await arrived(standalone, "notifications/tools/list_changed")


def homes(running: Fleet) -> list[int]:
    """Return the workers that have a child of the server behind."""
    return [
        worker
        for worker in running.workers()
        if any(KEEPER in command(pid) for child in children(worker) for pid in (child, *children(child)))
    ]


def command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


@http_test
async def test_workers_over_one_file_share_the_sessions_and_replace_a_killed_home() -> None:
    with fleet("--workers", "3", env={"FLEET_BACK": "process"}, target=APP) as running:
        client = await Client.opened(running.port)
        counted = await asyncio.gather(*(client.call("bump") for _ in range(12)))
        assert sorted(counted) == list(range(1, 13)), "each on a connection of its own, at any worker"
        journey = Keeper(client, call("long", "steps", n=1_000, seconds=0.05))
        running_call = asyncio.ensure_future(journey.run(delay=lambda: 0.05))
        await until(lambda: len(journey.messages) > 1)
        [home] = homes(running)
        os.kill(home, signal.SIGKILL)
        assert (await running_call)["error"]["code"] == OUTCOME_UNKNOWN
        assert await client.call("bump") == 1
        assert await client.delete() == 204
        await until(lambda: not homes(running))


@http_test
async def test_workers_of_a_hosted_object_need_no_key_and_pass_credentials_on() -> None:
    with fleet("--workers", "3", env={"FLEET_BACK": "hosted"}, target=APP) as running:
        client = await Client.opened(running.port)
        client.token = "of-this-client"
        calls = [client.call("authorization") for _ in range(12)]
        assert await asyncio.gather(*calls) == ["Bearer of-this-client"[::-1]] * 12
        response = await client.start("ask")
        assert await answered(response, client, "me") == "me"


@pytest.fixture(scope="module")
def strict_pair() -> Iterator[tuple[Trio, RedisServer, str]]:
    """Two strict replicas of a hosted object, their store and their key."""
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(redis_server())
        env = stack.enter_context(behind("hosted"))
        two = Trio({**env, "LIMPET_STORE": redis.url, "FLEET_STRICT": "1"}, stack).complete(2)
        yield two, redis, env["FLEET_KEY"]


@http_test
async def test_credentials_reach_the_home_and_are_not_in_the_store(
    strict_pair: tuple[Trio, RedisServer, str],
) -> None:
    two, redis, key = strict_pair
    connection = Redis.from_url(redis.url)
    async with connection.monitor() as monitor:
        clients = await opened(two)
        clients[1].token = "secret-of-this-client"
        assert await clients[1].call("authorization") == "Bearer secret-of-this-client"[::-1]
        redis.tell("ECHO", "the end")
        written: list[str] = []
        while "the end" not in "".join(written[-1:]):
            written.append((await monitor.next_command())["command"])
    await connection.aclose()
    said = "\n".join(written)
    assert "sealed " in said, "the request was forwarded with its credentials"
    assert "secret-of-this-client" not in said
    assert key not in said


@http_test
async def test_a_strict_server_closes_the_session_when_its_home_is_gone(
    strict_pair: tuple[Trio, RedisServer, str],
) -> None:
    two, _, _ = strict_pair
    clients = await opened(two)
    assert await clients[1].call("bump") == 1
    os.kill(two.replicas[0].pid, signal.SIGKILL)
    response = await clients[1].start("bump")
    assert response.status == 404, await response.body()
    fresh = await Client.opened(two.ports[1])
    assert await fresh.call("bump") == 1
