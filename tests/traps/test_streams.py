"""Traps of streams and resume (docs/traps.md, 14 to 30) that the tests of tests/http do not cover."""

import asyncio

import pytest

from limpet.config import HttpSettings, Limits, ResponseMode, Settings, Times
from tests.http.back import Config
from tests.http.client import Client, Connection, Cut, Response, http_test, text
from tests.http.serving import Served, in_loop
from tests.messages import Json
from tests.support import until


def readers(served: Served) -> int:
    """Return how many readers the server holds."""
    sessions = served.engine.runtime.sessions.values()
    return sum(len(readers) for session in sessions for readers in session.readers.values())


def life(served: Served, number: int = 0) -> list[str]:
    return list(served.back.life.values())[number]


async def take(response: Response, number: int) -> list[Json]:
    """Return the next messages of a stream."""
    taken: list[Json] = []
    async for message in response.messages():
        taken.append(message)
        if len(taken) == number:
            break
    return taken


def numbers(messages: list[Json]) -> list[int]:
    return [message["params"]["data"] for message in messages]


@http_test
async def test_trap_14_one_failed_write_costs_a_stream_not_the_session() -> None:
    async with in_loop() as served:
        client = await Client.opened(served.port)
        standalone = await client.get()
        await client.call("push", start=0, n=2)
        assert numbers(await take(standalone, 2)) == [0, 1]
        standalone.connection.cut(reset=True)
        await until(lambda: life(served) == ["opened", "detached"])
        assert await client.call("bump", key="still") == 1
        await until(lambda: life(served) == ["opened", "detached", "reattached"])
        await client.call("push", start=2, n=2)
        resumed = await client.get(standalone.last_id)
        assert numbers(await take(resumed, 2)) == [2, 3]
        assert life(served) == ["opened", "detached", "reattached"]


@http_test
async def test_trap_14_with_no_grace_a_break_removes_the_session_and_with_work_in_flight_it_waits() -> None:
    async with in_loop(Config(settings=Settings(times=Times(grace=0, sweep=0.05)))) as served:
        client = await Client.opened(served.port)
        working = await client.start("gated", key="w", before=1)
        working.connection.cut()
        await until(lambda: life(served) == ["opened", "detached"])
        await asyncio.sleep(0.2)  # real time is the subject: several sweeps pass
        assert life(served) == ["opened", "detached"], "work counts as life"
        served.back.gates["w"].set()
        await until(lambda: life(served) == ["opened", "detached", "closed: grace over"])
        assert (await client.start("echo", text="x")).status == 404


@http_test
async def test_trap_14_the_end_of_a_reader_that_was_taken_over_is_not_its_successors_end() -> None:
    async with in_loop() as served:
        client = await Client.opened(served.port)
        first = await client.start("gated", key="g", before=1, after=1)
        await take(first, 1)
        second = await client.get(first.last_id)
        await first.body()
        assert life(served) == ["opened"]
        second.connection.cut(reset=True)
        await until(lambda: life(served) == ["opened", "detached"])
        served.back.gates["g"].set()
        assert text(await (await client.get(first.last_id)).answer()) == "g through"


@http_test
async def test_trap_15_every_kind_of_connection_is_released_when_its_client_is_gone() -> None:
    """GET, replay, streamed POST and a POST that waits: no reader and no task stays behind."""
    async with in_loop() as served:
        client = await Client.opened(served.port)
        before = len(asyncio.all_tasks())
        post = await client.start("gated", key="p", before=2)
        await take(post, 1)
        get = await client.get()
        await until(lambda: readers(served) == 2)
        post.connection.cut(reset=True)
        replay = await client.get(post.last_id)
        await take(replay, 1)
        plain = await Connection.open(served.port)
        waiting = asyncio.create_task(client.start("gated", key="q", on=plain))
        await until(lambda: served.back.runs["q"] == 1)
        for connection in (get.connection, replay.connection, plain):
            connection.cut()
        waiting.cancel()
        await until(lambda: readers(served) == 0)
        served.back.gates["p"].set()
        served.back.gates["q"].set()
        await until(lambda: len(asyncio.all_tasks()) <= before)


@http_test
async def test_trap_16_a_second_get_is_served_although_the_first_seems_alive() -> None:
    async with in_loop() as served:
        client = await Client.opened(served.port)
        await client.get()
        second = await client.get()
        assert second.status == 200
        await client.call("push", start=0, n=3)
        assert numbers(await take(second, 3)) == [0, 1, 2]


@http_test
async def test_trap_17_superseded_gets_stay_open_and_idle_but_not_many_of_them() -> None:
    async with in_loop() as served:
        client = await Client.opened(served.port)
        streams = [await client.get() for _ in range(8)]
        await until(lambda: readers(served) == 5)
        ends = [asyncio.create_task(stream.body()) for stream in streams[:3]]
        await asyncio.wait(ends)
        await client.call("push", start=0, n=1)
        assert numbers(await take(streams[-1], 1)) == [0]
        streams[-1].connection.cut()
        await until(lambda: readers(served) == 4)
        await client.call("push", start=1, n=1)
        assert numbers(await take(streams[-2], 1)) == [1], "the newest idle one takes over"


@http_test
async def test_trap_18_the_standalone_stream_can_be_reopened_any_number_of_times() -> None:
    async with in_loop() as served:
        client = await Client.opened(served.port)
        for number in range(10):
            stream = await client.get()
            assert stream.status == 200
            await client.call("push", start=number, n=1)
            assert numbers(await take(stream, 1)) == [number]
            stream.connection.cut()
            await until(lambda: readers(served) == 0)


@http_test
async def test_trap_19_events_written_without_a_reader_reach_the_reader_that_resumes() -> None:
    async with in_loop() as served:
        client = await Client.opened(served.port)
        post = await client.start("gated", key="g", before=1, after=100)
        post.connection.cut_at = None
        await take(post, 1)
        post.connection.cut()
        await until(lambda: readers(served) == 0)
        await client.call("open", key="g")
        await until(lambda: served.back.runs["g ended"] == 1)
        await client.call("push", start=0, n=5)
        messages = [message async for message in (await client.get(post.last_id)).messages()]
        assert [message["params"]["progress"] for message in messages[:-1]] == list(range(100))
        assert text(messages[-1]) == "g through"
        assert numbers(await take(await client.get(), 5)) == [0, 1, 2, 3, 4]


@http_test
async def test_trap_20_an_event_id_gives_no_access_to_another_session_or_owner() -> None:
    config = Config(tokens={"a": "alice", "b": "bob"})
    async with in_loop(config) as served:
        alice = await Client.opened(served.port, token="a")
        again = await Client.opened(served.port, token="a")
        bob = await Client.opened(served.port, token="b")
        call = await alice.start("gated", key="secret", before=1)
        await take(call, 1)
        standalone = await alice.get()
        await alice.call("push", start=0, n=1)
        await take(standalone, 1)
        for event_id in (call.last_id, standalone.last_id):
            assert (await again.get(event_id)).status == 400
            assert (await bob.get(event_id)).status == 400
        bob.session_id = alice.session_id
        assert (await bob.get(call.last_id)).status == 404
        await alice.call("open", key="secret")
        assert text(await call.answer()) == "secret through", "the owner's stream was not touched"


@http_test
async def test_trap_21_a_resume_repeats_no_event_names_the_gap_and_works_after_the_answer() -> None:
    async with in_loop(Config(settings=Settings(limits=Limits(stream_events=10)))) as served:
        client = await Client.opened(served.port)
        post = await client.start("gated", key="g", before=1, after=30)
        await take(post, 1)
        post.connection.cut()
        await until(lambda: readers(served) == 0)
        await client.call("open", key="g")
        await until(lambda: served.back.runs["g ended"] == 1)
        for _ in range(2):
            events = [event async for event in (await client.get(post.last_id)).events(comments=True)]
            assert [event.comment for event in events if event.comment] == ["gap 3-23"]
            messages = [event.message for event in events if event.data]
            assert [message["params"]["progress"] for message in messages[:-1]] == list(range(21, 30))
            assert text(messages[-1]) == "g through"


@http_test
async def test_trap_22_a_position_beyond_the_end_is_refused_and_moves_no_reader() -> None:
    async with in_loop() as served:
        client = await Client.opened(served.port)
        post = await client.start("gated", key="g", before=3, after=3)
        await take(post, 3)
        stream, seq, tag = post.last_id.split(".")
        other_tag = f"{stream}.{seq}.{int(tag, 16) ^ 1:x}"
        for forged in (f"{stream}.{int(seq) + 50}.{tag}", f"{stream}.{2**70}.{tag}", other_tag):
            refused = await client.get(forged)
            assert (refused.status, (await refused.json())["error"]["data"]["reason"]) == (
                400,
                "event_id_unresumable",
            )
        await client.call("open", key="g")
        assert [message.get("params", {}).get("progress") async for message in post.messages()] == [
            0,
            1,
            2,
            None,
        ]


@http_test
async def test_trap_27_early_messages_of_a_handler_are_on_its_stream_and_pushes_on_the_get() -> None:
    async with in_loop() as served:
        client = await Client.opened(served.port)
        for number in range(20):
            response = await client.start("flood", key="k", n=3)
            assert len([message async for message in response.messages()]) == 4
            standalone = await client.get()
            await client.call("push", start=number, n=1)
            assert numbers(await take(standalone, 1)) == [number]


@http_test
async def test_trap_28_a_stream_begins_with_a_byte_of_body() -> None:
    async with in_loop() as served:
        for version in ("2025-03-26", "2025-06-18", "2025-11-25"):
            client = await Client.opened(served.port, version=version)
            for response in (await client.get(), await client.start("slow", seconds=0.5, text="x")):
                first = await anext(response.events(comments=True))
                assert (first.comment, first.id, first.data) != ("", "", "")
                assert version == "2025-11-25" or first.data or not first.id, (
                    "older clients fail on an empty event"
                )
                assert response.headers["x-accel-buffering"] == "no"
                assert "no-cache" in response.headers["cache-control"]


@http_test
async def test_trap_29_a_client_cut_before_any_new_event_may_use_its_old_position_again() -> None:
    async with in_loop() as served:
        client = await Client.opened(served.port)
        post = await client.start("gated", key="g", before=2, after=2)
        await take(post, 1)
        post.connection.cut()
        for size in (1, 100, 260):
            connection = await Connection.open(served.port)
            connection.cut_at = size
            with pytest.raises(Cut):
                await (await client.get(post.last_id, on=connection)).body()
        await client.call("open", key="g")
        messages = [message async for message in (await client.get(post.last_id)).messages()]
        assert [message["params"]["progress"] for message in messages[:-1]] == [0, 0, 1]


@pytest.mark.parametrize("mode", ["json", "adaptive", "sse"])
@http_test
async def test_trap_30_a_delete_settles_posts_that_wait_in_every_mode(mode: ResponseMode) -> None:
    async with in_loop(Config(http=HttpSettings(response=mode))) as served:
        client = await Client.opened(served.port)
        waiting = asyncio.create_task(client.start("gated", key="g"))
        await until(lambda: served.back.runs["g"] == 1)
        assert await client.delete() == 204
        answer = await (await waiting).answer()
        assert answer["error"]["code"] == -32800
        assert await client.delete() == 404
        await until(lambda: life(served) == ["opened", "closed: deleted"])
