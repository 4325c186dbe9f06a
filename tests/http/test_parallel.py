"""Any number of concurrent requests on one session, each answered on its own POST, and state that adds up."""

import asyncio
from collections import Counter

from tests.http.client import Client, Connection, call, http_test, text
from tests.http.serving import Process
from tests.messages import Json


@http_test
async def test_two_hundred_parallel_calls_are_each_answered_on_their_own_post(house: Process) -> None:
    """Trap 7: nothing lost, nothing doubled, nothing on another POST."""
    client = await Client.opened(house.port)

    async def one(number: int) -> Json:
        tool = {"tool": "slow", "seconds": 0.3 * (number % 3)} if number % 2 else {"tool": "echo"}
        response = await client.start(id=f"call {number}", text=f"answer {number}", **tool)
        return [message async for message in response.messages()]

    answers = await asyncio.gather(*(one(number) for number in range(200)))
    for number, messages in enumerate(answers):
        assert [message.get("id") for message in messages] == [f"call {number}"]
        assert text(messages[0]) == f"answer {number}"


@http_test
async def test_two_hundred_parallel_calls_over_shared_keep_alive_connections(house: Process) -> None:
    client = await Client.opened(house.port)
    seen: Counter[str] = Counter()

    async def line(name: int) -> None:
        connection = await Connection.open(house.port)
        for number in range(10):
            label = f"{name}-{number}"
            answer = await (await client.post(call(label, "echo", text=label), on=connection)).json()
            assert answer["id"] == text(answer) == label
            seen[label] += 1

    await asyncio.gather(*(line(name) for name in range(20)))
    assert len(seen) == 200
    assert set(seen.values()) == {1}


@http_test
async def test_a_thousand_concurrent_increments_give_a_thousand(house: Process) -> None:
    """Trap 7: no whole payload is read, changed and written."""
    client = await Client.opened(house.port)
    lines = [await Connection.open(house.port) for _ in range(50)]

    async def twenty(name: int, connection: Connection) -> list[int]:
        calls = [call(name * 20 + number, "bump", key="visits") for number in range(20)]
        return [int(text(await (await client.post(one, on=connection)).json())) for one in calls]

    values = await asyncio.gather(*(twenty(name, line) for name, line in enumerate(lines)))
    assert sorted(value for line in values for value in line) == list(range(1, 1_001))
    assert await client.call("bump", key="visits") == 1_001


@http_test
async def test_counters_of_two_sessions_are_two_counters(house: Process) -> None:
    """Trap 9: one server object, two sessions: neither sees the other."""
    first, second = await Client.opened(house.port), await Client.opened(house.port)
    assert [await first.call("bump", key="n"), await first.call("bump", key="n")] == [1, 2]
    assert await second.call("bump", key="n") == 1
