"""Replayable events have bounds, and the most important are removed last (law 9)."""

from limpet.core.stream import Continuity, Position
from limpet.stores.base import STANDALONE_FENCE, Attached, Duplicate
from limpet.testing.store.bench import (
    KEY,
    OTHER,
    PRINCIPAL,
    Bench,
    Contract,
    data_of,
    record,
    scenario,
    tag_of,
)


async def _finished(bench: Bench, number: int, data: bytes = b"last") -> str:
    """Run an exchange whose client never came back for its answer; return its stream."""
    stream = f"s{number}"
    fence = await bench.streaming(f"id{number}", stream)
    await bench.store.detach(KEY, stream, 0, None, broke=False)
    await bench.store.settle(KEY, stream, fence, data, tag=tag_of(stream, 1))
    return stream


async def _retained(bench: Bench, streams: list[str]) -> list[str]:
    kept = []
    for stream in streams:
        attached = await bench.store.attach(KEY, PRINCIPAL, stream, None)
        if isinstance(attached, Attached):
            kept.append(stream)
            await bench.store.detach(KEY, stream, attached.generation, None, broke=False)
    return kept


async def _size(bench: Bench, stream: str) -> int:
    page = await bench.read(stream, await bench.start_of(stream))
    return sum(map(len, data_of(page)))


class BoundRules(Contract):
    """stream_events, stream_bytes, session_bytes, streams_bytes, finished_streams."""

    @scenario(stream_bytes=100)
    async def test_a_stream_is_bounded_in_bytes(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        for number in range(1, 50):
            await bench.append("a", fence, number, b"x" * 30)
            assert await _size(bench, "a") <= 100

    @scenario(stream_events=10)
    async def test_the_standalone_stream_of_a_client_that_never_reads_is_bounded(self, bench: Bench) -> None:
        await bench.open()
        for number in range(1, 100):
            await bench.store.append(KEY, "", -1, [(number, b"%d" % number)])
        page = await bench.read(record().standalone, Position(0, 0))
        assert page.continuity is Continuity.GAP
        assert page.missed == (1, 89)
        assert data_of(page) == [b"%d" % number for number in range(90, 100)]

    @scenario(stream_bytes=100)
    async def test_an_answer_over_the_budget_is_delivered(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        start = await bench.start_of("a")
        await bench.append("a", fence, 1, b"small")
        await bench.store.settle(KEY, "a", fence, b"x" * 5000, tag=tag_of("a", 2))
        page = await bench.read("a", start)
        assert (page.continuity, data_of(page), page.finished) == (Continuity.GAP, [b"x" * 5000], True)

    @scenario(finished_streams=3)
    async def test_the_oldest_finished_stream_goes_first(self, bench: Bench) -> None:
        await bench.open()
        streams = [await _finished(bench, number) for number in range(5)]
        assert await _retained(bench, streams) == streams[2:]

    @scenario(finished_streams=2)
    async def test_a_delivered_stream_goes_before_one_that_was_not(self, bench: Bench) -> None:
        await bench.open()
        streams = [await _finished(bench, number) for number in range(2)]
        reader = await bench.attach(streams[1])
        page = await bench.read(streams[1], reader.cursor)
        await bench.store.detach(KEY, streams[1], reader.generation, page.events[-1].position, broke=False)
        streams.append(await _finished(bench, 2))
        assert await _retained(bench, streams) == [streams[0], streams[2]]

    @scenario(finished_streams=1)
    async def test_a_stream_that_is_being_read_is_not_taken_from_its_reader(self, bench: Bench) -> None:
        await bench.open()
        read = await _finished(bench, 0)
        reader = await bench.attach(read)
        for number in range(1, 4):
            await _finished(bench, number)
        assert data_of(await bench.read(read, reader.cursor)) == [b"last"]

    @scenario(finished_streams=1)
    async def test_forgetting_an_old_stream_leaves_its_id_to_the_exchange_that_has_it_now(
        self, bench: Bench
    ) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        await bench.store.detach(KEY, "a", 0, None, broke=False)
        await bench.store.settle(KEY, "a", fence, b"last", tag=tag_of("a", 1))
        await bench.begin(1, "b")
        for number in range(3):
            await _finished(bench, number)
        duplicate = await bench.claim(1, "c")
        assert isinstance(duplicate, Duplicate)
        assert duplicate.stream == "b"

    @scenario(session_bytes=1000, stream_bytes=900)
    async def test_a_session_over_its_bytes_forgets_finished_streams_first(self, bench: Bench) -> None:
        await bench.open()
        streams = [await _finished(bench, number, b"x" * 300) for number in range(3)]
        fence = await bench.streaming("live", "live")
        for number in range(1, 4):
            await bench.append("live", fence, number, b"y" * 200)
        assert await _retained(bench, streams) == streams[2:]
        assert await _size(bench, "live") == 600

    @scenario(session_bytes=1000, stream_bytes=1000)
    async def test_a_session_over_its_bytes_takes_nothing_from_other_sessions(self, bench: Bench) -> None:
        await bench.open()
        await bench.open(OTHER)
        kept = await _finished(bench, 1, b"x" * 300)
        for number in range(1, 20):
            await bench.store.append(OTHER, "", STANDALONE_FENCE, [(number, b"y" * 300)])
        assert await _retained(bench, [kept]) == [kept]

    @scenario(session_bytes=1000, stream_bytes=2000)
    async def test_the_largest_log_of_a_session_is_cut_by_at_least_an_eighth(self, bench: Bench) -> None:
        await bench.open()
        large, small = await bench.streaming(1, "large"), await bench.streaming(2, "small")
        for number in range(1, 10):
            await bench.append("large", large, number, b"x" * 100)
        await bench.append("small", small, 1, b"y" * 100)
        await bench.append("small", small, 2, b"y" * 50)
        assert (await _size(bench, "large"), await _size(bench, "small")) == (700, 150)

    @scenario(session_bytes=1000, stream_bytes=1000)
    async def test_running_streams_together_stay_within_the_sessions_bytes(self, bench: Bench) -> None:
        await bench.open()
        fences = {f"s{n}": await bench.streaming(n, f"s{n}") for n in range(4)}
        for number in range(1, 20):
            for stream, fence in fences.items():
                await bench.append(stream, fence, number, b"x" * 50)
        sizes = [await _size(bench, stream) for stream in fences]
        assert sum(sizes) <= 1000
        assert min(sizes) >= 50

    @scenario(streams_bytes=1000, stream_bytes=1000)
    async def test_sessions_together_stay_within_the_stores_bytes(self, bench: Bench) -> None:
        for number in range(5):
            await bench.open(f"k{number}")
        for number in range(1, 20):
            for session in range(5):
                await bench.store.append(f"k{session}", "", -1, [(number, b"x" * 50)])
        total = 0
        for session in range(5):
            page = await bench.read(f"k{session}-standalone", Position(0, 0), f"k{session}")
            assert page.events, "the newest event is always there"
            total += sum(map(len, data_of(page)))
        assert total <= 1000

    @scenario(streams_bytes=1000)
    async def test_a_full_store_makes_a_session_forget_its_own_finished_streams(self, bench: Bench) -> None:
        await bench.open()
        streams = [await _finished(bench, number, b"x" * 100) for number in range(30)]
        assert len(await _retained(bench, streams)) <= 11

    @scenario(streams_bytes=1000)
    async def test_a_full_store_forgets_the_oldest_finished_stream_of_any_session(self, bench: Bench) -> None:
        await bench.open()
        await bench.open(OTHER)
        [old] = [await _finished(bench, 1, b"x" * 600)]
        for number in range(1, 9):
            await bench.store.append(OTHER, "", -1, [(number, b"y" * 100)])
        assert await _retained(bench, [old]) == []
        page = await bench.read(f"{OTHER}-standalone", Position(0, 0), OTHER)
        assert len(page.events) == 8
