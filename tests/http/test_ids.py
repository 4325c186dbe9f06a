"""An id in flight is refused or isolated, never misrouted; and a repeat is not a duplicate."""

import asyncio
import json

import pytest

from limpet.config import Settings
from limpet.testing.store.limits import tight
from tests.http.back import Config
from tests.http.client import Client, Connection, call, http_test, text, value
from tests.http.serving import Process, in_loop, process
from tests.messages import Json
from tests.support import until


async def has_run(client: Client, key: str) -> None:
    """Return when a tool was run under this key."""

    async def is_counted() -> bool:
        return bool(await client.call("count", key=key))

    await until(is_counted)


@http_test
async def test_a_second_request_with_an_id_in_flight_is_refused_and_the_first_completes(
    trial: Process,
) -> None:
    """Trap 1: no cross-wire, the first unaffected, the second never run."""
    client = await Client.opened(trial.port)
    first = await client.start("gated", id=0, key="first")
    second = await client.start("echo", id=0, text="never run")
    assert second.status == 400
    refusal = await second.json()
    assert (refusal["id"], refusal["error"]["code"]) == (0, -32600)
    await client.call("open", key="first")
    assert text(await first.answer()) == "first through"
    assert await client.call("count", key="never run") == 0


@http_test
async def test_of_fifty_simultaneous_requests_with_one_id_exactly_one_runs(trial: Process) -> None:
    """Trap 2: check and register are one step; the same body does not make a duplicate a repeat."""
    client = await Client.opened(trial.port)
    lines = [await Connection.open(trial.port) for _ in range(50)]
    bodies = [call("x", "gated", key="racer", entry=entry) for entry in range(50)]
    posts = (client.post(body, on=line) for body, line in zip(bodies, lines, strict=True))
    responses = await asyncio.gather(*posts)
    assert sorted(response.status for response in responses) == [200] + [400] * 49
    winner = next(response for response in responses if response.status == 200)
    await client.call("open", key="racer")
    assert text(await winner.answer()) == "racer through"
    assert await client.call("count", key="racer") == 1


@http_test
async def test_the_same_request_twice_at_once_is_a_duplicate_while_its_first_reader_is_there(
    trial: Process,
) -> None:
    client = await Client.opened(trial.port)
    body = call(7, "gated", key="twin")
    first = asyncio.create_task(client.post(body))
    await has_run(client, "twin")
    second = await client.post(body)
    assert second.status == 400
    await client.call("open", key="twin")
    assert text(await (await first).answer()) == "twin through"
    assert await client.call("count", key="twin") == 1


@http_test
async def test_one_and_the_text_one_are_two_ids(house: Process) -> None:
    """Trap 6: `1` beside `"1"`."""
    client = await Client.opened(house.port)
    number, word = await asyncio.gather(
        client.start("slow", id=1, seconds=0.4, text="number"),
        client.start("slow", id="1", seconds=0.4, text="word"),
    )
    answers = [await number.answer(), await word.answer()]
    assert [(answer["id"], text(answer)) for answer in answers] == [(1, "number"), ("1", "word")]


@http_test
async def test_five_hundred_quick_calls_with_one_id_are_all_served(house: Process) -> None:
    """Trap 3: sequential reuse is legal."""
    client = await Client.opened(house.port)
    connection = await Connection.open(house.port)
    for number in range(500):
        response = await client.post(call(1, "echo", text=str(number)), on=connection)
        assert (response.status, text(await response.json())) == (200, str(number))


@http_test
async def test_an_id_is_free_again_after_a_streamed_answer(house: Process) -> None:
    """Trap 3, for answers that were streams."""
    client = await Client.opened(house.port)
    for number in range(5):
        response = await client.start("ticks", id=1, n=2, interval=0.01)
        assert response.is_stream, number
        assert text(await response.answer()) == "2 ticks"


@http_test
async def test_two_sessions_use_one_id_at_once(house: Process) -> None:
    """Trap 13: the connection that holds an id is found within its session."""
    clients = [await Client.opened(house.port) for _ in range(2)]
    responses = [
        await client.start("slow", id=1, seconds=0.4, text=f"of {number}")
        for number, client in enumerate(clients)
    ]
    assert [text(await response.answer()) for response in responses] == ["of 0", "of 1"]


@http_test
async def test_trap_4_a_cancelled_id_is_free_again_and_its_stream_ends(house: Process) -> None:
    client = await Client.opened(house.port)
    first = await client.start("slow", id="job", seconds=60, text="cancelled")
    assert (
        await client.tell("notifications/cancelled", {"requestId": "job", "reason": "changed my mind"}) == 202
    )
    assert (await first.answer())["error"]["code"] == -32800
    assert await client.call("echo", id="job", text="reused") == "reused"


@http_test
async def test_trap_5_a_late_end_of_a_cancelled_call_does_not_touch_its_successor() -> None:
    async with in_loop() as served:
        client = await Client.opened(served.port)
        first = await client.start("gated", id="job", key="old", stubborn=True)
        await client.tell("notifications/cancelled", {"requestId": "job"})
        assert (await first.answer())["error"]["code"] == -32800
        successor = await client.start("gated", id="job", key="new")
        await client.call("open", key="old")
        await until(lambda: served.back.runs["old ended"] == 1)
        duplicate = await client.start("echo", id="job", text="x")
        assert duplicate.status == 400, "the successor still holds its id"
        await client.call("open", key="new")
        assert text(await successor.answer()) == "new through"


@http_test
async def test_trap_5_forgetting_an_old_stream_does_not_free_the_id_of_its_successor() -> None:
    async with in_loop(Config(settings=Settings(limits=tight(finished_streams=1)))) as served:
        client = await Client.opened(served.port)
        assert await client.call("flood", id="job", key="f", n=3) == "3 sent"
        successor = await client.start("gated", id="job", key="new", before=1)
        for number in range(3):
            assert await client.call("flood", id=f"other {number}", key="f", n=3) == "3 sent"
        assert (await client.start("echo", id="job", text="x")).status == 400
        await client.call("open", key="new")
        assert text(await successor.answer()) == "new through"


@http_test
async def test_trap_11_a_cancellation_reaches_only_its_own_session(house: Process) -> None:
    mine, other = await Client.opened(house.port), await Client.opened(house.port)
    response = await mine.start("slow", id=1, seconds=0.5, text="untouched")
    assert await other.tell("notifications/cancelled", {"requestId": 1}) == 202
    assert await mine.tell("notifications/cancelled", {"requestId": "1"}) == 202
    assert text(await response.answer()) == "untouched"


# Repeats


@pytest.mark.parametrize("pooled", [False, True], ids=["on a new connection", "on a pooled connection"])
@pytest.mark.parametrize("streams", [False, True], ids=["before the stream exists", "out of its stream"])
@http_test
async def test_a_repeated_post_gets_the_one_result_of_the_one_execution(
    trial: Process, streams: bool, pooled: bool
) -> None:
    """Cut while the handler runs and sent again, word for word: with a resumable stream and before there is one."""
    client = await Client.opened(trial.port)

    async def one(number: int) -> None:
        name = f"repeat {number} {streams} {pooled}"
        body = json.dumps(call(name, "gated", key=name)).encode()
        second = await Connection.open(trial.port) if pooled else None
        first = await Connection.open(trial.port)
        sending = asyncio.create_task(client.post(body, on=first))
        await has_run(client, name)
        if streams:
            assert (await sending).is_stream
        first.cut(reset=bool(number % 2))
        sending.cancel()
        response = await client.post(body, on=second)
        assert response.status == 200, await response.body()
        await client.call("open", key=name)
        assert text(await response.answer()) == f"{name} through"
        assert await client.call("count", key=name) == 1

    await asyncio.gather(*(one(number) for number in range(10)))


@http_test
async def test_a_repeat_with_another_body_is_refused(trial: Process) -> None:
    client = await Client.opened(trial.port)
    first = await client.start("gated", id=5, key="the first")
    first.connection.cut()
    other = await client.start("gated", id=5, key="another")
    assert other.status == 400
    assert (await other.json())["error"]["code"] == -32600
    assert await client.call("count", key="another") == 0
    await client.call("open", key="the first")


@http_test
async def test_an_answer_that_no_connection_took_is_kept_for_the_repeat(trial: Process) -> None:
    client = await Client.opened(trial.port)
    body = call(9, "gated", key="kept")
    sending = asyncio.create_task(client.post(body, on=(first := await Connection.open(trial.port))))
    await has_run(client, "kept")
    first.cut()
    sending.cancel()
    await client.call("open", key="kept")
    await has_run(client, "kept ended")
    assert text(await (await client.post(body)).answer()) == "kept through"
    assert await client.call("count", key="kept") == 1
    assert text(await (await client.post(body)).answer()) == "kept through"
    assert await client.call("count", key="kept") == 2, "an id that was answered is free"


# Isolate


@http_test
async def test_isolated_duplicates_both_run_and_each_is_answered_on_its_own_post() -> None:
    with process(Config(settings=Settings(duplicates="isolate"))) as running:
        client = await Client.opened(running.port)
        names = [f"apart {number}" for number in range(20)]
        responses = await asyncio.gather(
            *(client.start("slow", id=1, seconds=0.4, text=name) for name in names)
        )
        answers = [await response.answer() for response in responses]
        assert [(answer["id"], text(answer)) for answer in answers] == [(1, name) for name in names]
        twice = [call(1, "slow", seconds=0.3, text="same body")] * 2
        bodies = [await (await client.post(body)).answer() for body in twice]
        assert [value(answer) for answer in bodies] == ["same body"] * 2
        assert await client.call("count", key="same body") == 2


@http_test
async def test_isolated_duplicates_are_not_cancelled_by_an_id_that_fits_several() -> None:
    async with in_loop(Config(settings=Settings(duplicates="isolate"))) as served:
        client = await Client.opened(served.port)

        async def gated(key: str) -> Json:
            return await client.call("gated", id=1, key=key)

        both = [asyncio.create_task(gated(key)) for key in ("a", "b")]
        await until(lambda: served.back.runs.total() == 2)
        await client.tell("notifications/cancelled", {"requestId": 1})
        for key in ("a", "b"):
            await client.call("open", id=1, key=key)
        assert [await task for task in both] == ["a through", "b through"]
