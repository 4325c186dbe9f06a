"""GET: the standalone stream, resuming, takeover, gaps, and positions that are not ours."""

import asyncio
from typing import Any

import pytest

from limpet.config import Limits, Settings, Times
from limpet.engine.sessions import session_key
from limpet.testing.store.limits import tight
from tests.asgi import Call, Peer
from tests.messages import LATEST, request
from tests.stores import ScriptedStore
from tests.support import LoopClock
from tests.unit.fronts.http.bench import MIDDLE, OLDEST, REVISIONS, Bench, bench, front_test


async def opened(b: Bench, version: str = LATEST) -> Peer:
    """Return a client with a session."""
    peer = b.peer()
    assert (await peer.initialize(version)).status == 200
    return peer


async def push(b: Bench, p: Peer, *numbers: int) -> None:
    """Send notifications that belong to no request."""
    for number in numbers:
        await b.engine.sessions.push(session_key(p.session), "notifications/message", {"number": number})


def numbers(call: Call) -> list[Any]:
    """Return the messages of `push`, in the order of arrival."""
    return [message["params"]["number"] for message in call.messages if "method" in message]


@pytest.mark.parametrize("version", REVISIONS)
@front_test
async def test_the_standalone_stream_carries_messages_outside_of_requests(version: str) -> None:
    async with bench() as b:
        p = await opened(b, version)
        standalone = await p.get().begun()
        assert standalone.is_stream
        assert standalone.headers["x-accel-buffering"] == "no"
        assert (standalone.events[0].data, bool(standalone.events[0].id)) == ("", version == LATEST)
        call = await p.call(1, "ticks").until(2)
        await push(b, p, 1, 2)
        await standalone.until(2)
        assert numbers(standalone) == [1, 2]
        assert [message["method"] for message in call.messages] == ["notifications/progress"] * 2


@front_test
async def test_messages_sent_without_a_reader_reach_the_next_reader() -> None:
    async with bench() as b:
        p = await opened(b)
        await push(b, p, 1, 2)
        first = await p.get().until(2)
        await first.cut()
        await push(b, p, 3)
        second = await p.get().until(1)
        assert numbers(second) == [3]


@front_test
async def test_the_standalone_stream_is_resumed_after_the_event_the_client_names() -> None:
    async with bench() as b:
        p = await opened(b)
        first = await p.get().begun()
        await push(b, p, 1, 2, 3)
        await first.until(3)
        await first.cut()
        await push(b, p, 4)
        resumed = await p.get(first.ids[2]).until(2)
        assert numbers(resumed) == [3, 4]
        assert resumed.ids[0] == first.ids[2]
        assert resumed.ids[1] == first.ids[3]


@front_test
async def test_a_priming_position_is_a_position_too() -> None:
    async with bench() as b:
        p = await opened(b)
        call = await p.call(1, "ticks").until(2)
        await call.cut()
        b.release.set()
        resumed = await p.get(call.ids[0]).done()
        assert [message.get("method", "result") for message in resumed.messages] == [
            "notifications/progress",
            "notifications/progress",
            "result",
        ]


@front_test
async def test_a_cut_call_goes_on_and_is_resumed_to_its_end() -> None:
    async with bench() as b:
        p = await opened(b)
        call = await p.call(1, "ticks").until(2)
        await call.cut()
        resumed = await p.get(call.ids[1]).until(1)
        b.release.set()
        await resumed.done()
        assert resumed.progress == [
            2,
            "end",
        ]
        assert b.runs == ["ticks"]


@front_test
async def test_a_finished_stream_is_replayed_and_then_ends() -> None:
    async with bench() as b:
        p = await opened(b)
        call = await p.call(1, "ticks").until(2)
        await call.cut()
        b.release.set()
        await asyncio.sleep(100)
        for _ in range(2):
            replayed = await p.get(call.ids[2]).done()
            assert replayed.complete
            assert [message["result"]["tool"] for message in replayed.messages] == ["ticks"]


@front_test
async def test_a_resume_at_the_end_of_a_stream_is_answered_204() -> None:
    async with bench() as b:
        p = await opened(b)
        b.release.set()
        call = await p.call(1, "ticks").done()
        again = await p.get(call.ids[-1]).done()
        assert (again.status, again.body) == (204, b"")


@front_test
async def test_events_that_were_trimmed_away_are_named_and_the_end_is_always_there() -> None:
    async with bench(Settings(limits=Limits(stream_events=10))) as b:
        p = await opened(b)
        call = await p.call(1, "ticks").until(2)
        await call.cut()
        flood = await p.call(2, "flood").until(1)
        await flood.cut()
        b.release.set()
        await asyncio.sleep(1)
        resumed = await p.get(flood.ids[0]).done()
        [gap] = [comment for comment in resumed.comments if comment.startswith("gap")]
        first, last = gap.removeprefix("gap ").split("-")
        assert int(first) == 2
        assert len(resumed.messages) == 10
        # One position before them, fifty events, one end; ten are kept.
        assert int(last) == 52 - 10
        assert resumed.messages[-1]["result"] == {"tool": "flood"}
        progress = [message["params"]["progress"] for message in resumed.messages[:-1]]
        assert progress == list(range(41, 50))


@pytest.mark.parametrize("version", REVISIONS)
@pytest.mark.parametrize("is_running", [False, True])
@front_test
async def test_a_repeat_of_a_post_whose_log_was_trimmed_names_the_missing_events(
    version: str, *, is_running: bool
) -> None:
    async with bench(Settings(limits=Limits(stream_events=10))) as b:
        p = await opened(b, version)
        # A batch of one request in the revision that has batches.
        post = request(2, "tools/call", {"name": "flood"})
        message = [post] if version == OLDEST else post
        first = p.post(message)
        await first.cut()
        if not is_running:
            b.release.set()
        await asyncio.sleep(1)
        repeat = p.post(message)
        await asyncio.sleep(1)
        b.release.set()
        await repeat.done()
        shown = [
            m["params"]["progress"] for m in repeat.messages if m.get("method") == "notifications/progress"
        ]
        [gap] = [comment for comment in repeat.comments if comment.startswith("gap")]
        # The events of a log are numbered from 2; the answer is the last one.
        assert gap == f"gap 2-{51 - len(shown)}"
        assert shown == list(range(50 - len(shown), 50))
        assert repeat.messages[-1]["result"] == {"tool": "flood"}
        assert b.runs == ["flood"]


# Positions that are not ours


@front_test
async def test_positions_that_are_not_of_this_session_get_400_with_a_reason() -> None:
    async with bench() as b:
        p, other = await opened(b), await opened(b)
        mine = await p.call(1, "ticks").until(2)
        theirs = await other.call(1, "ticks").until(2)
        stream, seq, tag = mine.ids[1].split(".")
        forged = [
            theirs.ids[1],
            f"{stream}.{seq}.{int(tag, 16) ^ 1:x}",
            f"{stream}.99.{tag}",
            f"{stream}.0.0",
            f"{stream}.-1.{tag}",
            f"{stream}.{seq}",
            f"nosuchstream.{seq}.{tag}",
            f"{stream}.{seq}.{tag}.x",
            f"{stream}.{seq}.zz",
            "x" * 10_000,
            "1",
            "..",
            "\x01\x02",
            "é.1.1",
            f"{stream}.²." + tag,
        ]
        for position in forged:
            refused = await p.get(position).done()
            assert refused.status == 400, position
            assert refused.json["error"]["data"] == {"reason": "event_id_unresumable"}
            assert "id" not in refused.json
        assert not mine.complete
        assert not theirs.complete
        assert (await p.get(mine.ids[1]).until(1)).status == 200


@front_test
async def test_streams_beyond_the_number_kept_are_unresumable() -> None:
    async with bench(Settings(limits=tight(finished_streams=2))) as b:
        p = await opened(b)
        b.release.set()
        calls = [await p.call(number, "ticks").done() for number in range(3)]
        assert [(await p.get(call.ids[0]).done()).status for call in calls] == [400, 200, 200]


# Several readers


@front_test
async def test_a_resume_takes_over_from_a_reader_that_is_still_there() -> None:
    async with bench() as b:
        p = await opened(b)
        call = await p.call(1, "ticks").until(2)
        resumed = await p.get(call.ids[2]).begun()
        await call.done()
        assert len(call.messages) == 2
        assert not resumed.complete
        b.release.set()
        await resumed.done()
        assert [message["id"] for message in resumed.messages] == [1]
        assert "detached" not in b.back.events


@front_test
async def test_the_newest_get_receives_and_the_older_ones_stay_open_and_idle() -> None:
    async with bench() as b:
        p = await opened(b)
        gets = [await p.get().begun() for _ in range(3)]
        await push(b, p, 1)
        await gets[2].until(1)
        assert [numbers(get) for get in gets] == [[], [], [1]]
        assert not any(get.complete for get in gets)
        await gets[2].cut()
        await push(b, p, 2)
        await gets[1].until(1)
        assert [numbers(get) for get in gets] == [[], [2], [1]]
        assert "detached" not in b.back.events


@front_test
async def test_at_most_four_listeners_stay_idle_behind_the_newest() -> None:
    async with bench() as b:
        p = await opened(b)
        gets = [await p.get().begun() for _ in range(7)]
        await asyncio.sleep(0.1)
        assert [get.complete for get in gets] == [True, True, False, False, False, False, False]


@front_test
async def test_idle_listeners_get_keep_alives() -> None:
    async with bench() as b:
        p = await opened(b)
        idle = await p.get().begun()
        await p.get().begun()
        await asyncio.sleep(31)
        assert idle.comments == ["keep-alive"] * 2


# The session's life around its streams


@front_test
async def test_a_cut_detaches_and_a_return_within_the_grace_reattaches() -> None:
    async with bench(Settings(times=Times(grace=60))) as b:
        p = await opened(b)
        await (await p.get().begun()).cut()
        await asyncio.sleep(59)
        assert (await p.call(1).done()).status == 200
        await asyncio.sleep(2)
        assert b.back.events[-2:] == ["detached", "reattached"]
        assert (await p.call(2).done()).status == 200


@front_test
async def test_after_the_grace_the_session_is_gone() -> None:
    async with bench(Settings(times=Times(grace=60))) as b:
        p = await opened(b)
        await (await p.get().begun()).cut()
        await asyncio.sleep(62)
        assert b.back.events[-2:] == ["detached", "closed: grace over"]
        assert (await p.call(1).done()).status == 404


@front_test
async def test_work_counts_as_life_and_the_grace_counts_from_its_end() -> None:
    async with bench(Settings(times=Times(grace=60))) as b:
        p = await opened(b)
        await (await p.call(1, "held").begun()).cut()
        await asyncio.sleep(1_000)
        assert len(await b.store.sessions()) == 1
        b.release.set()
        await asyncio.sleep(58)
        assert len(await b.store.sessions()) == 1
        await asyncio.sleep(4)
        assert await b.store.sessions() == []


@front_test
async def test_without_grace_a_break_ends_the_session_at_once_but_not_its_work() -> None:
    async with bench(Settings(times=Times(grace=0))) as b:
        p = await opened(b)
        call = await p.call(1, "held").begun()
        await call.cut()
        await asyncio.sleep(5)
        assert len(await b.store.sessions()) == 1
        b.release.set()
        await asyncio.sleep(2)
        assert await b.store.sessions() == []


# DELETE


@front_test
async def test_delete_answers_204_once_and_then_404() -> None:
    async with bench() as b:
        p = await opened(b)
        first = await p.delete()
        assert (first.status, first.body) == (204, b"")
        second = await p.delete()
        assert (second.status, second.json["error"]["code"]) == (404, -32001)
        assert (await p.call(1).done()).status == 404
        await asyncio.sleep(0)
        assert b.back.events == ["start", "opened", "closed: deleted"]


@pytest.mark.parametrize("response", ["adaptive", "json", "sse"])
@front_test
async def test_delete_settles_each_call_in_flight_with_one_terminal_message(response: str) -> None:
    async with bench(response=response) as b:
        p = await opened(b)
        waiting = p.call(1, "held")
        streaming = await p.call(2, "ticks").until(2) if response != "json" else p.call(2, "held")
        listening = await p.get().begun() if response != "json" else None
        assert (await p.delete()).status == 204
        await waiting.done()
        await streaming.done()
        for call, number in ((waiting, 1), (streaming, 2)):
            ends = [m for m in call.received if "error" in m]
            assert [(end["id"], end["error"]["code"]) for end in ends] == [(number, -32800)]
        if listening is not None:
            await listening.done()
            assert listening.complete
        await asyncio.sleep(1)
        assert b.noted("exchange.fenced") == 0
        assert b.noted("session.closed") == 1


@front_test
async def test_delete_waits_for_a_stalled_reader_no_longer_than_a_moment() -> None:
    async with bench() as b:
        p = await opened(b)
        call = await p.call(1, "ticks").until(2)
        call.stop_reading()
        before = LoopClock().now()
        assert (await p.delete()).status == 204
        assert LoopClock().now() - before <= 2.0


@front_test
async def test_delete_checks_principal_and_version() -> None:
    async with bench() as b:
        p = await opened(b, MIDDLE)
        assert (await p.delete(headers={"mcp-session-id": None})).status == 400
        assert (await p.delete(headers={"mcp-session-id": p.session[:-1]})).status == 404
        assert (await p.delete(headers={"mcp-protocol-version": "1"})).status == 400
        assert (await p.call(1).done()).status == 200


@pytest.mark.parametrize("is_shared", [False, True])
@front_test
async def test_an_id_whose_answer_was_taken_can_be_used_again_at_once_although_the_store_is_slow(
    *, is_shared: bool
) -> None:
    store = ScriptedStore(is_shared=is_shared)
    async with bench(store=store) as b:
        p = await opened(b)
        b.release.set()
        store.delay("detach", before=0.3)
        calls = [await p.call(1, "ticks").until(3) for _ in range(2)]
        for call in calls:
            assert (await call.done()).messages[-1]["result"]["tool"] == "ticks"
        assert b.runs == ["ticks", "ticks"]


@front_test
async def test_event_ids_of_all_streams_of_a_session_differ() -> None:
    async with bench() as b:
        p = await opened(b)
        standalone = await p.get().begun()
        calls = [await p.call(number, "ticks").until(2) for number in (1, 2, 3)]
        await push(b, p, 1)
        await standalone.until(1)
        for call in calls:
            await call.cut()
        b.release.set()
        # A resumed stream begins with the position that its client named.
        streams = [
            list(dict.fromkeys([*call.ids, *(await p.get(call.ids[-1]).done()).ids])) for call in calls
        ]
        ids = [*standalone.ids, *(one for stream in streams for one in stream)]
        assert len(set(ids)) == len(ids) >= 10
        again = await p.get(calls[1].ids[0]).done()
        assert again.ids == streams[1], "and a resume has the events of its own stream only"
