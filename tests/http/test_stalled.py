"""A reader that stops delays only its own exchange, its producer is bounded, and it loses nothing it can still ask for."""

import asyncio
import itertools
import statistics
import time

import pytest

from limpet.config import Limits, Settings, Times
from limpet.fronts.http.http1.start_and_stop import Service
from limpet.testing.store.limits import tight
from tests.http.back import Config, build
from tests.http.client import Client, Connection, call, http_test, text
from tests.http.serving import Process, in_loop, listening, process
from tests.support import until

MIB = 1024 * 1024


async def latency(client: Client, number: int) -> float:
    """Return the median time of so many calls, one after another on four connections.

    The machine is shared: other processes cause the worst moments, and they do not change the median.
    """
    lines = [await Connection.open(client.port) for _ in range(4)]

    async def line(connection: Connection, name: int) -> list[float]:
        taken = []
        for count in range(number // 4):
            before = time.perf_counter()
            response = await client.post(call(f"{name}/{count}", "echo", text="quick"), on=connection)
            assert text(await response.json()) == "quick"
            taken.append(time.perf_counter() - before)
        return taken

    taken = await asyncio.gather(*(line(connection, name) for name, connection in enumerate(lines)))
    return statistics.median(itertools.chain(*taken))


async def stopped_reader(client: Client, key: str, **args: int) -> Connection:
    """Start a call that writes without end and read only its first bytes."""
    connection = await Connection.open(client.port, receive_buffer=4_096)
    response = await client.post(call(key, "flood", key=key, **args), on=connection)
    assert response.is_stream
    connection.stop_reading()
    return connection


@http_test
async def test_trap_26_stopped_readers_do_not_delay_other_calls(trial: Process) -> None:
    """The producers wait, memory stays where it was, the same session's other calls do not notice."""
    client = await Client.opened(trial.port)
    alone = await latency(client, 800)
    before = await client.call("stats")
    stopped = [await stopped_reader(client, f"flood {n}", n=1_000_000, size=1_000) for n in range(10)]
    assert await latency(client, 400) < max(5 * alone, 0.25)
    at_rest = await client.call("stats", key="flood 0")
    await asyncio.sleep(0.5)  # real time is the subject: the processor time of waiting
    second = await client.call("stats", key="flood 0")
    assert second["cpu"] - at_rest["cpu"] < 0.1, "waiting costs nothing"
    assert at_rest["written"] == second["written"], "the producer waits"
    assert at_rest["written"] * 1_000 < 8 * MIB
    assert second["rss"] - before["rss"] < 60 * MIB
    for number, connection in enumerate(stopped):
        assert await client.tell("notifications/cancelled", {"requestId": f"flood {number}"}) == 202
        connection.cut()


@http_test
async def test_answers_that_clients_do_not_take_are_bounded_in_all() -> None:
    # The process of the tests is large, so half of the figure is for clients: too little for all answers.
    most, size, number = 80 * MIB, 3_500_000, 10
    back, _, front = build(Config(settings=Settings(limits=Limits(memory=2 * most))))
    service = Service(front)
    with listening() as sock:
        async with service.running([sock]):
            port = sock.getsockname()[1]
            clients = [await Client.opened(port) for _ in range(number)]
            calls = [call(1, "echo", text=f"{n}" * size) for n in range(number)]
            statuses = []
            for client, message in zip(clients, calls, strict=True):
                connection = await Connection.open(port, receive_buffer=4_096)
                statuses.append((await client.post(message, on=connection)).status)
                connection.stop_reading()
            assert statuses[0] == 200
            assert statuses[-1] == 429, (
                "a call does not start while the unsent answers of its address take its share"
            )
            connections = service.members.connections
            assert sum(connection.unsent for connection in connections) <= most
            await Connection.cut_all()
            await until(lambda: not connections)
            assert await clients[-1].call("echo", text="quick") == "quick"
            again = await clients[0].post(calls[0])
            assert text(await again.answer()) == "0" * size, "the answer was kept for its client"
            assert back.runs["0" * size] == 1
            await Connection.cut_all()


@http_test
async def test_trap_23_logs_of_stopped_readers_cost_a_healthy_reader_of_the_session_no_event() -> None:
    async with in_loop() as served:
        client = await Client.opened(served.port)
        for number in range(12):
            await stopped_reader(client, f"flood {number}", n=100_000, size=1_000)
        response = await client.start("flood", key="healthy", n=5_000, size=1_000)
        events = [event async for event in response.events(comments=True)]
        assert not [event.comment for event in events if event.comment]
        steps = [event.message["params"]["progress"] for event in events[1:-1]]
        assert steps == list(range(5_000))


@http_test
async def test_a_flood_without_a_reader_does_not_starve_other_calls(trial: Process) -> None:
    """A handler that never waits for anything does not hold the loop."""
    client = await Client.opened(trial.port)
    response = await client.start("flood", key="unread", n=1_000_000)
    response.connection.cut()
    assert await latency(client, 200) < 2.0
    assert (await client.call("stats", key="unread"))["written"] < 1_000_000
    assert await client.tell("notifications/cancelled", {"requestId": 1}) == 202


@http_test
async def test_a_stalled_reader_is_detached_and_resumes_with_the_retained_events() -> None:
    """Traps 14, 21: the stall costs the connection; the gap is said, and the answer is always kept."""
    settings = Settings(limits=Limits(stream_events=200), times=Times(write_stall=0.5))
    with process(Config(settings=settings)) as running:
        client = await Client.opened(running.port)
        connection = await Connection.open(running.port, receive_buffer=4_096)
        response = await client.post(call("stall", "flood", key="stall", n=20_000, size=1_000), on=connection)
        seen = response.events()
        first = [await anext(seen), await anext(seen)]
        connection.stop_reading()

        async def is_written() -> bool:
            return bool((await client.call("stats", key="stall"))["written"] == 20_000)

        await until(is_written, every=0.1)
        resumed = await client.get(first[-1].id)
        events = [event async for event in resumed.events(comments=True)]
        assert [event.comment.split()[0] for event in events if event.comment] == ["gap"]
        data = [event.message for event in events if event.data]
        assert text(data[-1]) == "20000 sent"
        steps = [message["params"]["progress"] for message in data[:-1]]
        assert steps == list(range(steps[0], 20_000)), "the retained events have no hole"
        assert 100 <= len(steps) <= 200
        assert (await client.call("told")) in (["opened"], ["opened", "detached", "reattached"])


@http_test
async def test_trap_25_a_slow_replay_delays_neither_the_session_nor_the_stream_it_catches_up_with() -> None:
    async with in_loop() as served:
        client = await Client.opened(served.port)
        response = await client.start("gated", key="g", before=400, after=50)
        first = await anext(event async for event in response.events() if event.data)
        response.connection.cut()
        slow = await Connection.open(served.port, receive_buffer=4_096)
        replay = await client.get(first.id, on=slow)
        slow.stop_reading()
        assert await client.call("echo", text="not delayed") == "not delayed"
        await client.call("open", key="g")
        slow.go_on_reading()
        messages = [message async for message in replay.messages()]
        progress = [message["params"]["progress"] for message in messages[:-1]]
        assert progress == [0] * 399 + list(range(50))
        assert text(messages[-1]) == "g through"


@http_test
async def test_a_million_notifications_end_in_the_answer() -> None:
    """The producer waits for its own reader, nothing is dropped for a reader that reads."""
    async with in_loop(Config(settings=Settings(limits=Limits(stream_events=100)))) as served:
        client = await Client.opened(served.port)
        response = await client.start("flood", key="many", n=20_000)
        expected = 0
        async for message in response.messages():
            if "id" in message:
                assert text(message) == "20000 sent"
            else:
                assert message["params"]["progress"] == expected
                expected += 1
        assert expected == 20_000


@http_test
async def test_trap_24_logs_are_bounded_by_count_and_by_bytes_per_stream_and_session() -> None:
    limits = tight(stream_events=50, stream_bytes=20_000, session_bytes=60_000)
    async with in_loop(Config(settings=Settings(limits=limits))) as served:
        client = await Client.opened(served.port)
        for number in range(20):
            response = await client.start("gated", id=f"g{number}", key=f"k{number}", before=1)
            response.connection.cut()
        await client.call("push", start=0, n=500)
        await until(lambda: not any(s.readers for s in served.engine.runtime.sessions.values()))
        for number in range(20):
            await client.call("open", key=f"k{number}")
        await asyncio.gather(*(flooded(client, f"f{number}") for number in range(20)))
        assert repr(served.engine.runtime.store).endswith("log bytes>")
        kept = int(repr(served.engine.runtime.store).split()[-3])
        assert kept <= limits.session_bytes + limits.stream_bytes


async def flooded(client: Client, key: str) -> None:
    response = await client.start("flood", key=key, n=200, size=200)
    assert text(await response.answer()) == "200 sent"


@http_test
async def test_trap_23_trimming_costs_replay_and_never_an_unrelated_call() -> None:
    limits = tight(
        stream_events=20, stream_bytes=5_000, session_bytes=10_000, streams_bytes=20_000, finished_streams=3
    )
    async with in_loop(Config(settings=Settings(limits=limits))) as served:
        clients = [await Client.opened(served.port) for _ in range(4)]
        jobs = [flooded(client, f"{n} {number}") for n, client in enumerate(clients) for number in range(10)]
        await asyncio.gather(*jobs)


@pytest.mark.parametrize("size", [200_000, 3_000_000])
@http_test
async def test_an_answer_larger_than_every_budget_is_still_delivered(size: int) -> None:
    limits = tight(stream_bytes=10_000, session_bytes=20_000)
    async with in_loop(Config(settings=Settings(limits=limits))) as served:
        client = await Client.opened(served.port)
        response = await client.start("slow", seconds=0.3, text="x" * size)
        assert response.is_stream
        assert len(text(await response.answer())) == size
