"""Requests that arrive at one replica and concern another reach the right one, on real processes."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace
from typing_extensions import override

from limpet.config import Times
from limpet.errors import REQUEST_CANCELLED
from tests.chaos.databases import Redis
from tests.chaos.fleet import Fleet
from tests.chaos.notes import CREDIT, FANOUT
from tests.chaos.players import key_of
from tests.chaos.trial import SMALL
from tests.http.client import (
    Client,
    Connection,
    Keeper,
    call,
    http_test,
    sessionless,
    text,
)
from tests.http.test_listen import CHANGED
from tests.messages import request
from tests.postgres_server import needs_postgres
from tests.redis_server import needs_redis
from tests.support import BOUND, until

pytestmark = [needs_redis, needs_postgres, pytest.mark.slow]
TIMES: Final = Times(lease=4.0, lease_renewal=0.5, sweep=0.5, drain=10.0, stream_after=0.1)
ASKING: Final[dict[str, Any]] = {"elicitation": {"form": {}}}


@pytest.fixture(scope="module", params=["redis", "postgres"])
def three(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three replicas behind a balancer, open to anonymous clients of this machine."""
    settings = replace(SMALL.settings(), times=TIMES)
    fleet = Fleet(Path(tmp_path_factory.mktemp("fleet")), settings, anonymous=True, store=request.param)
    try:
        asyncio.run(_start(fleet))
        yield fleet
    finally:
        fleet.end()


async def _start(fleet: Fleet) -> None:
    await fleet.start(3)
    await fleet.balanced()


async def opened(three: Fleet) -> list[Client]:
    """Return one session's client, once per replica."""
    first = await Client.opened(three.slots[0].port)
    clients = [first]
    for slot in three.slots[1:]:
        client = Client(slot.port)
        client.session_id, client.numbers = first.session_id, first.numbers
        clients.append(client)
    return clients


@http_test
async def test_a_running_call_is_read_live_from_another_replica(three: Fleet) -> None:
    one, two, _ = await opened(three)
    response = await one.post(call(1, "ticks", nonce="live", n=40, interval=0.1))
    seen = []
    async for event in response.events():
        if event.data:
            seen.append(event.message["params"]["progress"])
        if len(seen) == 3:
            break
    response.connection.cut()
    arrived = []
    resumed = await two.get(response.last_id)
    messages = []
    async for message in resumed.messages():
        arrived.append(time.monotonic())
        messages.append(message)
    assert seen + [m["params"]["progress"] for m in messages[:-1]] == list(range(1, 41))
    assert text(messages[-1]).endswith("/live")
    assert arrived[-1] - arrived[0] > 0.5, "as it is written, not all at its end"


@http_test
async def test_a_repeated_post_finds_its_call_at_another_replica(three: Fleet) -> None:
    one, two, three_ = await opened(three)
    body = json.dumps(call(1, "ticks", nonce="again", n=8, interval=0.2)).encode()
    connection = await Connection.open(one.port)
    sending = asyncio.create_task(one.post(body, on=connection))
    await until(lambda: "again" in {entry.nonce for entry in three.journal() if entry.what == "start"})
    connection.cut()
    await asyncio.gather(sending, return_exceptions=True)
    response = await two.post(body)
    assert response.status == 200, await response.body()
    assert text(await response.answer()).endswith("/again")
    assert [
        entry.replica[0] for entry in three.journal() if entry.what == "start" and entry.nonce == "again"
    ] == ["a"]
    assert (await three_.get(response.last_id)).status == 204


@http_test
async def test_answers_reach_the_replica_that_asked_and_credit_is_the_sessions(three: Fleet) -> None:
    one, two, three_ = await opened(three)
    outstanding: set[str] = set()
    most = 0
    all_asked = asyncio.Event()

    async def ask(client: Client, other: Client, nonce: str) -> str:
        nonlocal most
        response = await client.post(call(nonce, "fanout", nonce=nonce, n=FANOUT))

        async def reply(message: Any) -> None:
            await all_asked.wait()
            await asyncio.sleep(0.05)  # an ask beyond the credit would arrive
            outstanding.discard(message["id"])
            question = message["params"]["messages"][0]["content"]["text"]
            content = {"type": "text", "text": f"answer to {question}"}
            assert (
                await other.reply(message, {"role": "assistant", "content": content, "model": "none"}) == 202
            )

        async with asyncio.TaskGroup() as replies:
            async for message in response.messages():
                if "method" not in message:
                    return text(message)
                outstanding.add(message["id"])
                most = max(most, len(outstanding))
                if most >= CREDIT:
                    all_asked.set()
                replies.create_task(reply(message))
        raise AssertionError("the stream ended without an answer")

    for round_ in range(3):
        # Redis forgets its scripts when it restarts.
        if isinstance(three.database, Redis):
            three.database.server.tell("SCRIPT", "FLUSH")
        said = await asyncio.gather(ask(one, two, f"x{round_}"), ask(three_, one, f"y{round_}"))
        for nonce, lines in zip((f"x{round_}", f"y{round_}"), said, strict=True):
            mark = f"anonymous/{key_of(one.session_id)}/{nonce}"
            assert lines.split("\n") == [mark, *(f"answer to {mark}/{number}" for number in range(FANOUT))]
    assert most == CREDIT


@http_test
async def test_a_cancellation_reaches_the_replica_that_runs_the_call(three: Fleet) -> None:
    one, two, _ = await opened(three)
    response = await one.post(call(1, "ticks", nonce="cancelled", n=100, interval=0.1))
    await anext(response.events())
    assert await two.tell("notifications/cancelled", {"requestId": 1}) == 202
    answer = await response.answer()
    assert answer["error"]["code"] == REQUEST_CANCELLED
    assert not any(entry.nonce == "cancelled" and entry.what == "end" for entry in three.journal())


@http_test
async def test_a_session_deleted_at_one_replica_ends_at_all(three: Fleet) -> None:
    one, two, three_ = await opened(three)
    response = await one.post(call(1, "ticks", nonce="deleted", n=100, interval=0.1))
    await anext(response.events())
    standing = await three_.get()
    assert await two.delete() == 204
    await asyncio.wait_for(response.answer(), BOUND)
    await asyncio.wait_for(standing.answer(), BOUND)
    for client in (one, two, three_):
        assert (await client.post(call(2, "quick", nonce="deleted"))).status == 404
    key = key_of(one.session_id)
    closed = [entry.note for entry in three.journal() if entry.session == key and entry.what == "closed"]
    assert closed == ["deleted"]


@http_test
async def test_a_change_at_one_replica_reaches_sessions_and_subscriptions_at_others(three: Fleet) -> None:
    one, two, three_ = await opened(three)
    standing = (await one.get()).messages()
    listening = await sessionless(
        three.slots[2].port,
        "subscriptions/listen",
        {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["data://clock"]}},
    )
    heard = listening.messages()
    assert (await anext(heard))["method"] == "notifications/subscriptions/acknowledged"
    await two.call("offer", name=f"offered{time.monotonic_ns()}")
    assert (await anext(standing))["method"] == CHANGED
    assert (await anext(heard))["method"] == CHANGED
    subscribed = await three_.post(request(8, "resources/subscribe", {"uri": "data://clock"}))
    assert subscribed.status == 200
    await two.call("touch", uri="data://clock")
    assert (await anext(standing))["params"] == {"uri": "data://clock"}
    assert (await anext(heard))["params"]["uri"] == "data://clock"


@http_test
async def test_a_parked_call_continues_at_its_replica_when_the_retry_arrives_at_another(three: Fleet) -> None:
    params = {"name": "name_of_user", "arguments": {}}
    pids = [slot.pid for slot in three.slots]
    first = await sessionless(three.slots[0].port, "tools/call", params, capabilities=ASKING)
    wanted = (await first.answer())["result"]
    assert wanted["resultType"] == "input_required"
    responses = {key: {"action": "accept", "content": {"name": "Ada"}} for key in wanted["inputRequests"]}
    retry = {**params, "requestState": wanted["requestState"], "inputResponses": responses}
    second = await sessionless(three.slots[1].port, "tools/call", retry, capabilities=ASKING)
    result = (await second.answer())["result"]
    assert result["structuredContent"]["result"] == f"Ada told {pids[0]}"


@http_test
async def test_counters_are_exact_over_three_replicas(three: Fleet) -> None:
    owner = await Client.opened(three.port)

    async def count(number: int) -> None:
        connection = await Connection.open(three.port)
        for step in range(100):
            body = call(f"{number}.{step}", "bump", nonce="counted")
            response = await owner.post(body, on=connection)
            assert response.status == 200, await response.body()
            await response.answer()
        connection.cut()

    await asyncio.gather(*(count(number) for number in range(20)))
    total = await owner.call("counter", nonce="counted")
    assert total.endswith("/2000")


@http_test
async def test_a_rolling_restart_loses_no_running_call(three: Fleet) -> None:
    client = await Client.opened(three.port)
    over = asyncio.Event()
    ended: list[Any] = []

    async def work(number: int) -> None:
        step = 0
        while not over.is_set():
            step += 1
            nonce = f"rolling-{number}-{step}"
            keeper = Patient(client, call(nonce, "ticks", nonce=nonce, n=10, interval=0.1))
            answer = await keeper.run(delay=lambda: 0.05)
            ended.append(answer)
            assert text(answer).endswith(nonce), answer
            assert [m["params"]["progress"] for m in keeper.messages[:-1]] == list(range(1, 11))

    async with asyncio.TaskGroup() as tasks:
        for number in range(12):
            tasks.create_task(work(number))
        for slot in three.slots:
            before = len(ended)
            await until(lambda before=before: len(ended) >= before + 12)
            assert await slot.terminate() == 0
            slot.start()
            await slot.ready()
            await three.balanced()
        over.set()
    assert len(ended) > 36


class Patient(Keeper):
    """A keeper that comes again where a replica says that it is stopping."""

    @override
    async def _connection(self, cut_at: int | None) -> None:
        try:
            await super()._connection(cut_at)
        except AssertionError as refused:
            status = refused.args[0][0]
            if status != 503:
                raise
