"""An exchange ends once; an answer that the client missed is kept for one repeat."""

import asyncio

from limpet.errors import Fenced, StreamClosed
from limpet.stores.base import KEPT_SECONDS, Claim, Duplicate, Refusal
from limpet.testing.store.bench import (
    GRACE,
    KEY,
    PRINCIPAL,
    Bench,
    Contract,
    data_of,
    refused,
    scenario,
    tag_of,
)


class SettleRules(Contract):
    """settle and keep (law 3)."""

    @scenario()
    async def test_the_terminal_message_is_the_last_of_its_stream(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        await bench.append("a", fence, 1, b"one")
        await bench.store.settle(KEY, "a", fence, b"last", tag=tag_of("a", 2))
        page = await bench.read("a", await bench.start_of("a"))
        assert (data_of(page), page.finished) == ([b"one", b"last"], True)
        await refused(bench.append("a", fence, 3, b"late"))
        assert data_of(await bench.read("a", await bench.start_of("a"))) == [b"one", b"last"]

    @scenario()
    async def test_of_two_ends_the_first_one_stands(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        ends = await asyncio.gather(
            *(bench.store.settle(KEY, "a", fence, b"%d" % n, tag=tag_of("a", n)) for n in range(9)),
            return_exceptions=True,
        )
        assert ends.count(None) == 1
        assert all(end is None or isinstance(end, Fenced | StreamClosed) for end in ends)
        assert len(data_of(await bench.read("a", await bench.start_of("a")))) == 1

    @scenario()
    async def test_an_end_sent_again_counts_once(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        busy = await bench.begin(2, "b")
        for _ in range(2):
            await bench.store.settle(KEY, "a", fence, b"last", tag=tag_of("a", 1))
        assert data_of(await bench.read("a", await bench.start_of("a"))) == [b"last"]
        # Counted twice, the other exchange would no longer be seen as work.
        bench.clock.advance(500)
        assert await bench.sweep() == []
        await bench.store.settle(KEY, "b", busy, None)

    @scenario()
    async def test_an_end_without_a_message_sent_again_counts_once(self, bench: Bench) -> None:
        await bench.open()
        plain, streamed = await bench.begin(1, "a"), await bench.streaming(2, "b")
        busy = await bench.begin(3, "c")
        for _ in range(2):
            await bench.store.settle(KEY, "a", plain, None)
            await bench.store.settle(KEY, "b", streamed, None)
        # Counted twice, the exchange that still runs would no longer count as work, nor its POST as a reader.
        bench.clock.advance(500)
        assert await bench.sweep() == []
        await bench.store.settle(KEY, "c", busy, None)
        bench.clock.advance(101)
        assert [key for key, _ in await bench.sweep()] == [KEY]

    @scenario()
    async def test_an_end_without_a_message_is_refused_where_another_end_stands(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        await bench.store.settle(KEY, "a", fence, b"last", tag=tag_of("a", 1))
        for wrong in (
            bench.store.settle(KEY, "a", fence, None),
            bench.store.settle(KEY, "never claimed", fence + 1, None),
        ):
            await refused(wrong)
        assert data_of(await bench.read("a", await bench.start_of("a"))) == [b"last"]

    @scenario()
    async def test_a_wrong_fence_changes_nothing(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        for wrong in (fence + 1, fence - 1):
            for attempt in (
                bench.store.settle(KEY, "a", wrong, b"x", tag=1),
                bench.append("a", wrong, 1) if wrong >= 0 else bench.store.open_stream(KEY, "a", wrong, 1),
                bench.store.open_stream(KEY, "a", wrong, 1),
            ):
                await refused(attempt, Fenced)
        assert data_of(await bench.read("a", await bench.start_of("a"))) == []

    @scenario()
    async def test_settled_without_a_message_there_never_was_a_stream(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.begin(1, "a")
        await bench.store.settle(KEY, "a", fence, None)
        assert await bench.store.attach(KEY, PRINCIPAL, "a", None) is Refusal.UNRESUMABLE
        fence = await bench.streaming(1, "b")
        await bench.append("b", fence, 1)
        await bench.store.settle(KEY, "b", fence, None)
        assert await bench.store.attach(KEY, PRINCIPAL, "b", None) is Refusal.UNRESUMABLE
        bench.clock.advance(101)
        assert [key for key, _ in await bench.sweep()] == [KEY]

    @scenario()
    async def test_a_kept_answer_is_there_for_the_same_request_only(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.begin(1, "a", digest=b"one")
        await bench.store.detach(KEY, "a", 0, None, broke=True)
        await bench.store.settle(KEY, "a", fence, b"last", tag=7, keep=True)
        repeat = await bench.claim(1, "b", digest=b"one")
        assert isinstance(repeat, Duplicate)
        assert (repeat.stream, repeat.same, repeat.finished, repeat.has_reader) == ("a", True, True, False)
        await bench.begin(1, "c", digest=b"two")

    @scenario()
    async def test_a_kept_answer_is_kept_for_a_limited_time(self, bench: Bench) -> None:
        for grace in (GRACE, 2 * KEPT_SECONDS):
            await bench.open(f"s{grace}", idle=1e5, lifetime=1e5, grace=grace)
            key, until = f"s{grace}", max(grace, KEPT_SECONDS)
            # Kept with its end, and after it.
            for number, is_late in ((1, False), (2, True)):
                fence = await bench.begin(number, f"a{number}", key=key, digest=b"one")
                if is_late:
                    await bench.store.settle(key, "a2", fence, None)
                    await bench.store.keep(key, "a2", Claim(2, "a2", b"one"), b"last", tag=7)
                else:
                    await bench.store.settle(key, "a1", fence, b"last", tag=7, keep=True)
                    await bench.store.detach(key, "a1", 0, None, broke=False)
            bench.clock.advance(until - 2)
            for number in (1, 2):
                assert isinstance(await bench.claim(number, f"b{number}", key=key, digest=b"one"), Duplicate)
            bench.clock.advance(5)
            for number in (1, 2):
                await bench.begin(number, f"c{number}", key=key, digest=b"one")

    @scenario()
    async def test_a_kept_answer_goes_in_its_time_although_its_session_is_always_in_use(
        self, bench: Bench
    ) -> None:
        await bench.open(idle=KEPT_SECONDS, grace=KEPT_SECONDS, lifetime=1e9)
        fence = await bench.begin(1, "a")
        await bench.store.settle(KEY, "a", fence, b"last", tag=7, keep=True)
        await bench.store.detach(KEY, "a", 0, None, broke=False)
        for number in range(2, 6):
            bench.clock.advance(KEPT_SECONDS / 2)
            assert await bench.sweep() == []
            status = await bench.store.look(KEY)
            assert status is not None
            assert (status.log_bytes > 0) == (number < 4), number
            await bench.store.settle(KEY, f"s{number}", await bench.begin(number, f"s{number}"), None)

    @scenario()
    async def test_a_kept_answer_is_kept_until_it_was_taken_whole(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.begin(1, "a")
        await bench.store.detach(KEY, "a", 0, None, broke=True)
        await bench.store.settle(KEY, "a", fence, b"last", tag=7, keep=True)
        cut = await bench.attach("a")
        await bench.store.detach(KEY, "a", cut.generation, cut.cursor, broke=True)
        assert isinstance(await bench.claim(1, "b"), Duplicate)
        whole = await bench.attach("a")
        page = await bench.read("a", whole.cursor)
        assert (data_of(page), page.finished) == ([b"last"], True)
        await bench.store.detach(KEY, "a", whole.generation, page.events[-1].position, broke=False)
        await bench.begin(1, "c")

    @scenario()
    async def test_an_answer_whose_write_failed_can_be_kept_afterwards(self, bench: Bench) -> None:
        await bench.open()
        claim = Claim(1, "a", b"body")
        fence = await bench.begin(1, "a")
        await bench.store.settle(KEY, "a", fence, None)
        for _ in range(2):
            await bench.store.keep(KEY, "a", claim, b"last", tag=7)
        repeat = await bench.claim(1, "b")
        assert isinstance(repeat, Duplicate)
        assert repeat.finished
        assert data_of(await bench.read("a", (await bench.attach("a")).cursor)) == [b"last"]

    @scenario()
    async def test_an_id_in_use_again_is_not_taken_back_by_an_old_answer(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.begin(1, "a")
        await bench.store.settle(KEY, "a", fence, None)
        second = await bench.begin(1, "b")
        await bench.store.keep(KEY, "a", Claim(1, "a", b"body"), b"last", tag=7)
        duplicate = await bench.claim(1, "c")
        assert isinstance(duplicate, Duplicate)
        assert duplicate.stream == "b"
        await bench.store.settle(KEY, "b", second, None)
        await bench.begin(1, "d")

    @scenario()
    async def test_an_answer_in_a_stream_is_kept_until_it_was_taken_whole(self, bench: Bench) -> None:
        await bench.open()
        claim = Claim(1, "a", b"body")
        fence = await bench.streaming(1, "a")
        await bench.store.settle(KEY, "a", fence, b"last", tag=7)
        await bench.store.keep(KEY, "a", claim, None, tag=8)
        repeat = await bench.claim(1, "b")
        assert isinstance(repeat, Duplicate)
        assert repeat.finished
        whole = await bench.attach("a")
        page = await bench.read("a", whole.cursor)
        assert data_of(page) == [b"last"]
        await bench.store.detach(KEY, "a", whole.generation, page.events[-1].position, broke=False)
        await bench.begin(1, "c")

    @scenario()
    async def test_an_answer_that_a_reader_has_received_is_not_kept_any_more(self, bench: Bench) -> None:
        await bench.open()
        claim = Claim(1, "a", b"body")
        fence = await bench.streaming(1, "a")
        await bench.store.settle(KEY, "a", fence, b"last", tag=7)
        whole = await bench.attach("a")
        last = (await bench.read("a", whole.cursor)).events[-1].position
        await bench.store.detach(KEY, "a", whole.generation, last, broke=False)
        # The connection that read before it reports its break late.
        await bench.store.keep(KEY, "a", claim, None, tag=8)
        await bench.begin(1, "b")

    @scenario()
    async def test_an_answer_whose_stream_is_gone_is_not_kept(self, bench: Bench) -> None:
        await bench.open()
        await bench.store.keep(KEY, "a", Claim(1, "a", b"body"), None, tag=8)
        await bench.begin(1, "b")

    @scenario()
    async def test_positions_of_a_kept_answer_fit_an_event_id(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.begin(1, "a")
        await bench.store.settle(KEY, "a", fence, b"last", tag=2**64 - 1, keep=True)
        start = (await bench.attach("a")).cursor
        assert 0 <= start.tag < 2**64
        await bench.attach("a", start)
