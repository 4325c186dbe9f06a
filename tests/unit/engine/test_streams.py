"""Streams and their readers: resumed, taken over, waited for, aged (laws 4 to 7)."""

import asyncio

import pytest

from limpet.config import Limits, Times
from limpet.core.stream import Position
from limpet.engine.delivery import Batch, deliver
from limpet.engine.exchange import Exchange
from limpet.engine.reader import End
from limpet.engine.session import event_id, parse_event_id
from limpet.errors import SessionGone, Unresumable
from limpet.protocol.subscriptions import Change
from limpet.testing import ScriptedBack
from tests.unit.engine.harness import CALL, PRINCIPAL, Json, engine_harness, engine_test, gate, settle_down

PROGRESS = "notifications/progress"


async def count_up(exchange: Exchange) -> object:
    """Send so many messages, then answer."""
    for number in range(exchange.request.params["count"]):
        await exchange.notify(PROGRESS, {"n": number})
    return {"id": exchange.request.id}


def numbers(messages: list[Json]) -> list[int]:
    return [message["params"]["n"] for message in messages if message.get("method") == PROGRESS]


@engine_test
async def test_messages_arrive_in_order_and_the_terminal_message_is_the_last() -> None:
    async with engine_harness(ScriptedBack({CALL: count_up})) as d:
        messages = await (await d.post(1, params={"count": 300})).whole()
        assert numbers(messages) == list(range(300))
        assert messages[-1]["result"] == {"id": 1}
        assert len(messages) == 301


@engine_test
async def test_a_hundred_thousand_messages_wait_for_their_own_slow_reader_and_delay_no_other_call() -> None:
    async with engine_harness(
        ScriptedBack({CALL: count_up, "ping": count_up}), limits=Limits(stream_events=1000)
    ) as d:
        post = await d.post(1, params={"count": 100_000})
        post.may_read.clear()
        await settle_down()
        position = post.exchange.writer.position
        assert position is not None
        assert position.seq < 1000, "the writer waits before anything is lost"
        began = asyncio.get_running_loop().time()
        assert "result" in await d.call(2, params={"count": 10})
        assert asyncio.get_running_loop().time() == began
        post.may_read.set()
        messages = await post.whole()
        assert numbers(messages) == list(range(100_000))


@engine_test
async def test_big_messages_wait_by_bytes() -> None:
    async def big(exchange: Exchange) -> object:
        for number in range(100):
            await exchange.notify(PROGRESS, {"n": number, "padding": "x" * 1000})
        return {}

    async with engine_harness(ScriptedBack({CALL: big}), limits=Limits(stream_bytes=10_000)) as d:
        post = await d.post(1)
        post.may_read.clear()
        await settle_down()
        position = post.exchange.writer.position
        assert position is not None
        assert position.seq < 10
        post.may_read.set()
        assert numbers(await post.whole()) == list(range(100))


@engine_test
async def test_a_handler_whose_reader_resumed_after_much_was_sent_goes_on() -> None:
    more = asyncio.Event()

    async def big(exchange: Exchange) -> object:
        for number in range(100):
            if number == 50:
                await more.wait()
            await exchange.notify(PROGRESS, {"n": number, "padding": "x" * 1000})
        return {}

    async with engine_harness(ScriptedBack({CALL: big}), limits=Limits(stream_bytes=10_000)) as d:
        post = await d.post(1)
        await settle_down(200)
        assert numbers(post.messages) == list(range(50))
        assert post.reader is not None
        cursor = post.reader.cursor
        await post.cut()
        get = await d.get(post.exchange.claim.stream, cursor)
        more.set()
        await get.task
        assert numbers(get.messages) == list(range(50, 100))
        assert "result" in get.messages[-1]


@engine_test
async def test_a_handler_without_a_reader_does_not_wait() -> None:
    more = asyncio.Event()

    async def work(exchange: Exchange) -> object:
        await more.wait()
        return await count_up(exchange)

    async with engine_harness(ScriptedBack({CALL: work}), limits=Limits(stream_events=100)) as d:
        post = await d.post(1, params={"count": 1000})
        await settle_down()
        await post.cut()
        more.set()
        await settle_down()
        assert post.exchange.has_ended


@engine_test
async def test_a_writer_that_waits_goes_on_when_its_reader_breaks() -> None:
    async with engine_harness(ScriptedBack({CALL: count_up}), limits=Limits(stream_events=100)) as d:
        post = await d.post(1, params={"count": 1000})
        post.may_read.clear()
        await settle_down()
        assert not post.exchange.has_ended
        await post.cut()
        await settle_down()
        assert post.exchange.has_ended


@engine_test
async def test_a_cut_stream_is_resumed_without_a_hole_or_a_repeat() -> None:
    async def slow(exchange: Exchange) -> object:
        for number in range(100):
            await exchange.notify(PROGRESS, {"n": number})
            await asyncio.sleep(0.1)
        return {}

    async with engine_harness(ScriptedBack({CALL: slow})) as d:
        post = await d.post(1)
        await asyncio.sleep(2.05)
        assert post.reader is not None
        seen, cursor = list(post.messages), post.reader.cursor
        await post.cut()
        while not seen or "result" not in seen[-1]:
            get = await d.get(post.exchange.claim.stream, cursor)
            await asyncio.sleep(0.73)
            cursor = get.reader.cursor
            seen += get.messages
            if not get.task.done():
                await get.cut()
        assert numbers(seen) == list(range(100))


@engine_test
async def test_a_resumed_stream_is_taken_from_its_former_reader() -> None:
    wait, event = gate()

    async def work(exchange: Exchange) -> object:
        await exchange.notify(PROGRESS, {"n": 0})
        return await wait(exchange)

    async with engine_harness(ScriptedBack({CALL: work})) as d:
        post = await d.post(1)
        await settle_down()
        get = await d.get(post.exchange.claim.stream)
        assert len(await post.whole()) == 1
        assert d.ended_readers[0].end is End.TAKEN_OVER
        event.set()
        await get.task
        assert [message.get("method", "result") for message in get.messages] == [PROGRESS, "result"]
        assert d.back.events == ["start", "opened"], "a takeover is no break"


@engine_test
async def test_a_finished_stream_can_be_fetched_again() -> None:
    async with engine_harness(ScriptedBack({CALL: count_up})) as d:
        post = await d.post(1, params={"count": 3})
        whole = await post.whole()
        get = await d.get(post.exchange.claim.stream)
        await get.task
        assert get.messages == whole


@engine_test
async def test_unknown_forged_and_foreign_positions_are_refused() -> None:
    async with engine_harness(ScriptedBack({CALL: count_up})) as d:
        post = await d.post(1, params={"count": 3})
        await post.whole()
        assert post.reader is not None
        stream, cursor = post.exchange.claim.stream, post.reader.cursor
        for bad in (
            Position(cursor.seq, cursor.tag ^ 1),
            Position(cursor.seq + 1, cursor.tag),
            Position(0, 0),
        ):
            with pytest.raises(Unresumable):
                await d.get(stream, bad)
        d.session = await d.open()
        with pytest.raises(Unresumable):
            await d.get(stream, cursor)
        with pytest.raises(SessionGone):
            await d.engine.readers.attach(d.key, "stranger")


# close_stream and age


@engine_test
async def test_a_handler_can_send_its_client_away_to_come_back_later() -> None:
    wait, event = gate()

    async def work(exchange: Exchange) -> object:
        await exchange.close_stream()
        return await wait(exchange)

    async with engine_harness(ScriptedBack({CALL: work})) as d:
        post = await d.post(1)
        assert await post.whole() == []
        assert d.ended_readers[0].end is End.AGED
        event.set()
        get = await d.get(post.exchange.claim.stream, d.ended_readers[0].cursor)
        await get.task
        assert "result" in get.messages[-1]
        assert "detached" not in d.back.events


@engine_test
async def test_older_revisions_are_never_sent_away() -> None:
    async def work(exchange: Exchange) -> object:
        await exchange.notify(PROGRESS, {"n": 0})
        await exchange.close_stream()
        await asyncio.sleep(5_000)
        return {}

    async with engine_harness(ScriptedBack({CALL: work}), version="2025-06-18") as d:
        assert "result" in (await (await d.post(1)).whole())[-1]


@engine_test
async def test_a_streams_connection_ends_at_its_age_and_is_no_break() -> None:
    async def work(exchange: Exchange) -> object:
        await exchange.notify(PROGRESS, {"n": 0})
        await asyncio.sleep(5_000)
        return {}

    async with engine_harness(ScriptedBack({CALL: work}), times=Times(stream_age=(300, 600))) as d:
        post, get = await d.post(1), await d.get()
        await asyncio.sleep(299)
        assert not post.task.done()
        assert not get.task.done()
        await asyncio.sleep(302)
        assert post.task.done()
        assert get.task.done()
        assert {reader.end for reader in d.ended_readers} == {End.AGED}
        assert "detached" not in d.back.events


@engine_test
async def test_a_silent_stream_is_given_a_keep_alive() -> None:
    async with engine_harness(times=Times(keep_alive=15)) as d:
        reader = await d.engine.readers.attach(d.key, PRINCIPAL)
        silences: list[float] = []

        class Silent:
            patience = None

            async def write(self, batch: Batch) -> None:
                raise AssertionError("nothing was sent")

            async def silence(self) -> None:
                silences.append(asyncio.get_running_loop().time())
                if len(silences) == 3:
                    reader.stop(End.BROKE)

        await deliver(reader, Silent())
        assert silences == pytest.approx([15, 30, 45])


# The standalone stream


@engine_test
async def test_messages_pushed_before_the_first_reader_are_delivered() -> None:
    async with engine_harness() as d:
        await d.engine.sessions.push(d.key, "a")
        get = await d.get()
        await d.engine.sessions.push(d.key, "b")
        await settle_down()
        assert get.methods == ["a", "b"]


@engine_test
async def test_the_second_get_wins_and_nothing_is_sent_twice() -> None:
    async with engine_harness() as d:
        first = await d.get()
        await d.engine.sessions.push(d.key, "a")
        await settle_down()
        second = await d.get()
        await d.engine.sessions.push(d.key, "b")
        await settle_down()
        assert (first.methods, second.methods) == (["a"], ["b"])
        assert not first.task.done()


@engine_test
async def test_the_newest_idle_get_takes_over_where_the_active_one_ended() -> None:
    async with engine_harness() as d:
        oldest, middle, active = [await d.get() for _ in range(3)]
        await d.engine.sessions.push(d.key, "a")
        await settle_down()
        await active.cut()
        await d.engine.sessions.push(d.key, "b")
        await settle_down()
        await middle.cut()
        await d.engine.sessions.push(d.key, "c")
        await settle_down()
        assert (active.methods, middle.methods, oldest.methods) == (["a"], ["b"], ["c"])
        assert "detached" not in d.back.events
        await oldest.cut()
        await settle_down()
        assert d.back.events[-1] == "detached"


@engine_test
async def test_gets_that_break_together_leave_the_surviving_one_active() -> None:
    async with engine_harness() as d:
        survivor, middle, active = [await d.get() for _ in range(3)]
        await d.engine.sessions.push(d.key, "a")
        await settle_down()
        for get in (middle, active):
            get.reader.stop(End.BROKE)
        await d.engine.readers.detach(active.reader)
        await d.engine.readers.detach(middle.reader)
        await d.engine.sessions.push(d.key, "b")
        await settle_down()
        assert (active.methods, survivor.methods) == (["a"], ["b"])
        assert "detached" not in d.back.events


@engine_test
async def test_an_idle_gets_end_changes_nothing() -> None:
    async with engine_harness() as d:
        idle, active = await d.get(), await d.get()
        await idle.cut()
        await d.engine.sessions.push(d.key, "a")
        await settle_down()
        assert active.methods == ["a"]
        assert "detached" not in d.back.events


@engine_test
async def test_at_most_four_superseded_gets_stay_open() -> None:
    async with engine_harness() as d:
        gets = [await d.get() for _ in range(9)]
        await settle_down()
        assert [get.task.done() for get in gets] == [True] * 4 + [False] * 5
        assert {reader.end for reader in d.ended_readers} == {End.TAKEN_OVER}


@engine_test
async def test_a_get_reads_nothing_of_any_exchange() -> None:
    async with engine_harness(ScriptedBack({CALL: count_up})) as d:
        get = await d.get()
        await d.call(1, params={"count": 5})
        await d.engine.sessions.push(d.key, "a")
        await settle_down()
        assert get.methods == ["a"]


@engine_test
async def test_a_broadcast_and_an_update_reach_those_they_are_for() -> None:
    async with engine_harness() as d:
        other = await d.open()
        mine = await d.get()
        await d.engine.runtime.store.subscribe(d.key, "file:///x")
        await d.engine.changed(Change("resource", "file:///x"))
        await d.engine.changed(Change("tools"))
        d.session = other
        theirs = await d.get()
        await settle_down()
        assert mine.methods == ["notifications/resources/updated", "notifications/tools/list_changed"]
        assert theirs.methods == ["notifications/tools/list_changed"]


# Event ids


@pytest.mark.parametrize("position", [Position(0, 0), Position(1, 2**64 - 1), Position(10**12, 255)])
def test_an_event_id_is_read_back_as_it_was_written(position: Position) -> None:
    text = event_id("a" * 24, position)
    assert len(text) <= 64
    assert parse_event_id(text) == ("a" * 24, position)


@pytest.mark.parametrize(
    "text", ["", ".", "..", "a.1", "a.1.", ".1.a", "a.x.1", "a.-1.1", "a.1.xyz", "a.1.1.1", "a.\u0661.1", "a" * 129 + ".1.1",
             "a.1.11111111111111111", "a b.1.1\n"],
)  # fmt: skip
def test_an_invalid_event_id_is_refused_or_names_no_stream(text: str) -> None:
    parsed = parse_event_id(text)
    assert parsed is None or parsed[0] == "a b"
