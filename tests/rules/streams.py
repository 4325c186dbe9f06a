"""A stream is appended, read from any position that was ever given out, and names missing events."""

from limpet.core.lifecycle import SessionInput
from limpet.core.stream import Continuity, Position
from limpet.errors import Fenced, StreamClosed
from limpet.stores.base import STANDALONE_FENCE, Attached, Refusal, WakeUp
from limpet.testing.store.bench import (
    KEY,
    OTHER,
    PRINCIPAL,
    Bench,
    Contract,
    data_of,
    record,
    refused,
    scenario,
    tag_of,
)


class StreamRules(Contract):
    """open_stream, append, read, attach, detach."""

    @scenario()
    async def test_every_position_resumes_with_exactly_what_follows_it(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        positions = [await bench.start_of("a")]
        positions += [await bench.append("a", fence, n, b"%d" % n) for n in range(1, 6)]
        for number, position in enumerate(positions):
            page = await bench.read("a", position)
            assert page.continuity is Continuity.OK
            assert data_of(page) == [b"%d" % n for n in range(number + 1, 6)]
            assert [event.position for event in page.events] == positions[number + 1 :]
            assert not page.finished

    @scenario()
    async def test_opening_a_stream_twice_is_the_same_stream(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.begin(1, "a")
        first = await bench.store.open_stream(KEY, "a", fence, 5)
        await bench.append("a", fence, 1, b"one")
        await bench.store.open_stream(KEY, "a", fence, 6)
        assert data_of(await bench.read("a", first)) == [b"one"]

    @scenario(stream_events=2)
    async def test_a_stream_opened_again_begins_where_its_retained_events_do(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.begin(1, "a")
        assert await bench.store.open_stream(KEY, "a", fence, 5) == Position(1, 5)
        positions = [await bench.append("a", fence, number) for number in range(1, 5)]
        assert await bench.store.open_stream(KEY, "a", fence, 6) == positions[1]

    @scenario()
    async def test_an_exchange_whose_stream_was_not_opened_cannot_be_written(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.begin(1, "a")
        await refused(bench.append("a", fence, 1), (StreamClosed,))
        await refused(bench.append("never claimed", fence, 1), (Fenced,))
        assert await bench.store.attach(KEY, PRINCIPAL, "a", None) is Refusal.UNBEGUN

    @scenario()
    async def test_the_fence_of_the_standalone_stream_writes_it_under_every_name_of_a_stream(
        self, bench: Bench
    ) -> None:
        opened = await bench.open()
        await bench.streaming(1, "a")
        for number, stream in enumerate(("", "a", "unknown", opened.standalone), 1):
            position = await bench.store.append(KEY, stream, STANDALONE_FENCE, [(number, b"%d" % number)])
            assert position == Position(number, number)
        assert data_of(await bench.read(opened.standalone, Position(0, 0))) == [b"1", b"2", b"3", b"4"]
        assert data_of(await bench.read("a", await bench.start_of("a"))) == []

    @scenario()
    async def test_an_event_sent_again_is_there_once(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        start = await bench.start_of("a")
        assert await bench.append("a", fence, 1, b"one") == await bench.append("a", fence, 1, b"one")
        assert data_of(await bench.read("a", start)) == [b"one"]

    @scenario()
    async def test_events_of_one_append_are_added_in_order_and_wake_their_reader_once(
        self, bench: Bench
    ) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        positions = [await bench.start_of("a"), await bench.append("a", fence, 1, b"1")]
        bench.wakeups.clear()
        events = [(tag_of("a", n), b"%d" % n) for n in range(2, 6)]
        last = await bench.store.append(KEY, "a", fence, events)
        positions += [Position(positions[1].seq + n, tag) for n, (tag, _) in enumerate(events, 1)]
        assert last == positions[-1]
        assert bench.wakeups == [(WakeUp.STREAM, KEY, "a")]
        for number, position in enumerate(positions):
            page = await bench.read("a", position)
            assert data_of(page) == [b"%d" % n for n in range(number + 1, 6)]
            assert [event.position for event in page.events] == positions[number + 1 :]

    @scenario()
    async def test_events_of_one_append_that_is_sent_again_are_there_once(self, bench: Bench) -> None:
        opened = await bench.open()
        fence = await bench.streaming(1, "a")
        start = await bench.start_of("a")
        events = [(tag_of("a", n), b"%d" % n) for n in range(1, 4)]
        standalone = (opened.standalone, STANDALONE_FENCE, Position(0, 0))
        for stream, by, cursor in (("a", fence, start), standalone):
            last = await bench.store.append(KEY, stream, by, events)
            assert await bench.store.append(KEY, stream, by, events) == last
            assert data_of(await bench.read(stream, cursor)) == [b"1", b"2", b"3"]

    @scenario()
    async def test_of_a_refused_append_no_event_is_written(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        start = await bench.start_of("a")
        events = [(tag_of("a", n), b"%d" % n) for n in range(1, 4)]
        await refused(bench.store.append(KEY, "a", fence + 1, events), (Fenced,))
        await bench.store.settle(KEY, "a", fence, b"last", tag=tag_of("a", 9))
        await refused(bench.store.append(KEY, "a", fence, events), (StreamClosed,))
        assert data_of(await bench.read("a", start)) == [b"last"]

    @scenario(stream_events=3)
    async def test_of_more_events_than_a_stream_keeps_the_newest_stay(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        start = await bench.start_of("a")
        await bench.append("a", fence, 1, b"1")
        await bench.store.append(KEY, "a", fence, [(tag_of("a", n), b"%d" % n) for n in range(2, 8)])
        page = await bench.read("a", start)
        assert (page.continuity, page.missed) == (Continuity.GAP, (start.seq + 1, start.seq + 4))
        assert data_of(page) == [b"5", b"6", b"7"]
        await bench.store.append(KEY, "a", fence, [(tag_of("a", 8), b"8"), (tag_of("a", 9), b"9")])
        assert data_of(await bench.read("a", page.events[0].position)) == [b"7", b"8", b"9"]

    @scenario()
    async def test_an_append_wakes_its_stream(self, bench: Bench) -> None:
        opened = await bench.open()
        fence = await bench.streaming(1, "a")
        await bench.append("a", fence, 1)
        await bench.store.append(KEY, "", -1, [(9, b"{}")])
        await bench.store.settle(KEY, "a", fence, b"last", tag=tag_of("a", 2))
        expected = [
            (WakeUp.STREAM, KEY, "a"),
            (WakeUp.STREAM, KEY, opened.standalone),
            (WakeUp.STREAM, KEY, "a"),
        ]
        assert bench.wakeups == expected

    @scenario()
    async def test_a_page_has_its_bounds_and_at_least_one_event(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        start = await bench.start_of("a")
        for number in range(1, 6):
            await bench.append("a", fence, number, b"x" * 10)
        for max_events, max_bytes, expected in ((2, 1000, 2), (9, 25, 2), (9, 30, 3), (9, 1, 1)):
            page = await bench.store.read(KEY, "a", start, max_events, max_bytes)
            assert page is not None
            assert len(page.events) == expected

    @scenario()
    async def test_only_the_page_with_the_last_event_is_the_end(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        start = await bench.start_of("a")
        await bench.append("a", fence, 1, b"one")
        await bench.store.settle(KEY, "a", fence, b"last", tag=tag_of("a", 2))
        first = await bench.store.read(KEY, "a", start, 1, 1000)
        assert first is not None
        assert not first.finished
        after = await bench.read("a", first.events[-1].position)
        assert (data_of(after), after.finished) == ([b"last"], True)
        assert (await bench.read("a", after.events[-1].position)).finished

    @scenario()
    async def test_attach_says_whether_the_cursor_is_the_end_of_a_complete_stream(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        one = await bench.append("a", fence, 1, b"one")
        assert not (await bench.attach("a", one)).finished
        await bench.store.settle(KEY, "a", fence, b"last", tag=tag_of("a", 2))
        reader = await bench.attach("a", one)
        assert not reader.finished
        last = (await bench.read("a", one)).events[-1].position
        assert (await bench.attach("a", last)).finished
        assert not (await bench.attach("a")).finished

    @scenario()
    async def test_a_superseded_reader_learns_that_the_last_reader_reached_the_end(
        self, bench: Bench
    ) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        superseded = await bench.attach("a")
        await bench.store.settle(KEY, "a", fence, b"last", tag=tag_of("a", 1))
        last = (await bench.read("a", superseded.cursor)).events[-1].position
        newest = await bench.attach("a")
        await bench.store.detach(KEY, "a", newest.generation, last, broke=False)
        again = await bench.store.attach(KEY, PRINCIPAL, "a", superseded.cursor, since=superseded.generation)
        assert isinstance(again, Attached)
        assert (again.cursor, again.finished) == (last, True)
        same = await bench.store.attach(KEY, PRINCIPAL, "a", last, since=again.generation)
        assert isinstance(same, Attached)
        assert (same.generation, same.finished) == (again.generation, True)

    @scenario()
    async def test_the_standalone_stream_is_never_at_its_end(self, bench: Bench) -> None:
        await bench.open()
        assert not (await bench.attach()).finished

    @scenario(stream_events=3)
    async def test_a_trimmed_position_says_what_is_missing(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        positions = [await bench.start_of("a")]
        positions += [await bench.append("a", fence, n, b"%d" % n) for n in range(1, 7)]
        page = await bench.read("a", positions[1])
        assert page.continuity is Continuity.GAP
        assert page.missed == (positions[2].seq, positions[3].seq)
        assert data_of(page) == [b"4", b"5", b"6"]
        edge = await bench.read("a", positions[3])
        assert (edge.continuity, data_of(edge)) == (Continuity.OK, [b"4", b"5", b"6"])

    @scenario(stream_events=2)
    async def test_a_trimmed_position_is_attached_as_it_is(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        first = await bench.append("a", fence, 1)
        for number in range(2, 6):
            await bench.append("a", fence, number)
        assert (await bench.attach("a", first)).cursor == first

    @scenario(stream_events=2)
    async def test_a_reader_from_the_start_of_a_trimmed_stream_learns_what_is_missing(
        self, bench: Bench
    ) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        start = await bench.start_of("a")
        for number in range(1, 6):
            await bench.append("a", fence, number, b"%d" % number)
        attached = await bench.attach("a")
        assert attached.cursor.seq == start.seq
        page = await bench.read("a", attached.cursor)
        assert (page.missed, data_of(page)) == ((start.seq + 1, start.seq + 3), [b"4", b"5"])
        assert isinstance(await bench.store.attach(KEY, PRINCIPAL, "a", attached.cursor), Attached)

    @scenario(stream_events=2)
    async def test_a_trimmed_stream_still_ends_with_its_terminal_message(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        start = await bench.start_of("a")
        for number in range(1, 9):
            await bench.append("a", fence, number)
        await bench.store.settle(KEY, "a", fence, b"last", tag=tag_of("a", 9))
        page = await bench.read("a", start)
        assert (page.continuity, data_of(page)[-1], page.finished) == (Continuity.GAP, b"last", True)

    @scenario(stream_events=2)
    async def test_a_position_that_never_was_is_refused_and_reads_nothing(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        start = await bench.start_of("a")
        last = start
        for number in range(1, 5):
            last = await bench.append("a", fence, number)
        forged = [
            Position(last.seq, last.tag ^ 1),
            Position(last.seq + 1, last.tag),
            Position(last.seq - 2, 0),
            Position(start.seq - 1, start.tag),
            Position(-1, 0),
        ]
        for cursor in forged:
            assert await bench.store.attach(KEY, PRINCIPAL, "a", cursor) is Refusal.UNRESUMABLE
            page = await bench.read("a", cursor)
            assert (page.continuity, page.events, page.finished) == (Continuity.FORK, [], False)

    @scenario()
    async def test_another_sessions_position_is_unresumable(self, bench: Bench) -> None:
        await bench.open()
        await bench.open(OTHER)
        await bench.streaming(1, "a")
        start = await bench.start_of("a")
        assert await bench.store.attach(OTHER, PRINCIPAL, "a", start) is Refusal.UNRESUMABLE
        assert await bench.store.attach(KEY, PRINCIPAL, "nowhere", None) is Refusal.UNRESUMABLE
        assert await bench.store.read(OTHER, "a", start, 9, 9) is None

    @scenario()
    async def test_an_exchange_without_a_stream_cannot_be_resumed_and_says_whether_one_may_come(
        self, bench: Bench
    ) -> None:
        await bench.open()
        fence = await bench.begin(1, "a")
        assert await bench.store.attach(KEY, PRINCIPAL, "a", None) is Refusal.UNBEGUN
        assert await bench.store.attach(KEY, PRINCIPAL, "a", Position(1, 1)) is Refusal.UNBEGUN
        await bench.store.settle(KEY, "a", fence, None)
        assert await bench.store.attach(KEY, PRINCIPAL, "a", None) is Refusal.UNRESUMABLE

    @scenario()
    async def test_the_standalone_stream_keeps_what_was_sent_before_the_first_reader(
        self, bench: Bench
    ) -> None:
        await bench.open()
        await bench.store.append(KEY, "", -1, [(1, b"early")])
        attached = await bench.attach()
        assert data_of(await bench.read(record().standalone, attached.cursor)) == [b"early"]

    @scenario()
    async def test_a_reader_without_a_position_goes_on_where_readers_were(self, bench: Bench) -> None:
        opened = await bench.open()
        one = await bench.store.append(KEY, "", -1, [(1, b"one")])
        first = await bench.attach()
        await bench.store.append(KEY, "", -1, [(2, b"two")])
        await bench.store.detach(KEY, opened.standalone, first.generation, one, broke=True)
        second = await bench.attach()
        assert second.cursor == one
        by_name = await bench.attach(opened.standalone)
        assert by_name.cursor == one
        assert data_of(await bench.read(opened.standalone, one)) == [b"two"]

    @scenario()
    async def test_a_stream_is_gone_with_its_session(self, bench: Bench) -> None:
        opened = await bench.open()
        await bench.streaming(1, "a")
        start = await bench.start_of("a")
        await bench.store.close(KEY, SessionInput.DELETED)
        assert await bench.store.read(KEY, "a", start, 9, 9) is None
        assert await bench.store.read(KEY, opened.standalone, start, 9, 9) is None
