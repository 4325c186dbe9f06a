"""Readers come and go, sessions live by the store's clock and end once."""

import asyncio
import functools

from limpet.core.lifecycle import SessionInput
from limpet.stores.base import Attached, Claimed, Refusal
from limpet.testing.store.bench import (
    GRACE,
    IDLE,
    KEY,
    LIFETIME,
    PRINCIPAL,
    STRANGER,
    Bench,
    Contract,
    scenario,
    tag_of,
)


class LifeRules(Contract):
    """attach, detach and sweep (laws 6 and 8)."""

    @scenario()
    async def test_the_break_of_the_last_reader_detaches_and_coming_back_is_reported(
        self, bench: Bench
    ) -> None:
        opened = await bench.open()
        reader = await bench.attach()
        assert not reader.returned
        assert await bench.store.detach(KEY, opened.standalone, reader.generation, None, broke=True)
        back = await bench.attach()
        assert back.returned
        assert not (await bench.attach()).returned

    @scenario()
    async def test_every_way_of_coming_back_is_reported_once(self, bench: Bench) -> None:
        opened = await bench.open()
        fence = 0
        for way in ("claim", "attach", "find"):
            reader = await bench.attach()
            assert await bench.store.detach(KEY, opened.standalone, reader.generation, None, broke=True)
            if way == "claim":
                claimed = await bench.claim(1, "a")
                assert isinstance(claimed, Claimed)
                assert claimed.returned
                fence = claimed.fence
                await bench.store.settle(KEY, "a", fence, None)
            elif way == "find":
                found = await bench.store.find(KEY, PRINCIPAL)
                assert found is not None
                assert found.returned
            again = await bench.store.find(KEY, PRINCIPAL)
            assert again is not None
            assert again.returned is (way == "attach")

    @scenario()
    async def test_a_break_with_another_reader_left_detaches_nothing(self, bench: Bench) -> None:
        opened = await bench.open()
        reader = await bench.attach()
        await bench.begin(1, "a")
        assert not await bench.store.detach(KEY, opened.standalone, reader.generation, None, broke=True)
        assert await bench.store.detach(KEY, "a", 0, None, broke=True)

    @scenario()
    async def test_an_end_by_our_own_design_is_no_break(self, bench: Bench) -> None:
        opened = await bench.open()
        reader = await bench.attach()
        assert not await bench.store.detach(KEY, opened.standalone, reader.generation, None, broke=False)
        assert not (await bench.attach()).returned

    @scenario()
    async def test_a_reader_that_was_taken_over_changes_nothing_by_leaving(self, bench: Bench) -> None:
        opened = await bench.open()
        old, new = await bench.attach(), await bench.attach()
        assert new.generation != old.generation
        ahead = await bench.store.append(KEY, "", -1, [(1, b"one")])
        assert not await bench.store.detach(KEY, opened.standalone, old.generation, ahead, broke=True)
        assert not (await bench.attach()).returned
        bench.clock.advance(IDLE + 1)
        assert await bench.sweep() == [], "the newer reader still counts as life"
        assert (await bench.attach()).cursor < ahead

    @scenario()
    async def test_a_superseded_reader_takes_the_place_only_when_it_is_free(self, bench: Bench) -> None:
        opened = await bench.open()
        one = await bench.store.append(KEY, "", -1, [(1, b"one")])
        old, new = await bench.attach(), await bench.attach()
        again = functools.partial(bench.store.attach, KEY, PRINCIPAL, opened.standalone)
        assert await again(old.cursor, since=old.generation) is Refusal.BUSY
        assert await again(new.cursor, since=new.generation) == new, "its place is its own"
        await bench.store.detach(KEY, opened.standalone, new.generation, one, broke=True)
        back = await again(old.cursor, since=old.generation)
        assert isinstance(back, Attached)
        assert back.generation > new.generation
        assert back.returned, "it had been left without a reader"
        assert back.cursor == one, "not back to the events of the newer reader"
        assert await again(one, since=new.generation) is Refusal.BUSY
        assert await bench.store.detach(KEY, opened.standalone, back.generation, None, broke=True)

    @scenario()
    async def test_a_successor_that_was_ahead_does_not_go_back(self, bench: Bench) -> None:
        opened = await bench.open()
        await bench.store.append(KEY, "", -1, [(1, b"one")])
        two = await bench.store.append(KEY, "", -1, [(2, b"two")])
        old, new = await bench.attach(), await bench.attach()
        await bench.store.detach(KEY, opened.standalone, new.generation, None, broke=False)
        back = await bench.store.attach(KEY, PRINCIPAL, opened.standalone, two, since=old.generation)
        assert isinstance(back, Attached)
        assert (back.cursor, back.returned) == (two, False)
        assert await bench.store.attach(KEY, STRANGER, None, two, since=back.generation) is Refusal.NO_SESSION

    @scenario()
    async def test_leaving_twice_is_leaving_once(self, bench: Bench) -> None:
        opened = await bench.open()
        reader = await bench.attach()
        await bench.begin(1, "a")
        for _ in range(3):
            await bench.store.detach(KEY, opened.standalone, reader.generation, None, broke=True)
        # If the repeats counted, the session would have no reader now, and the break of the POST would detach nothing.
        assert await bench.store.detach(KEY, "a", 0, None, broke=True)
        assert not await bench.store.detach(KEY, "a", 0, None, broke=True)

    @scenario()
    async def test_a_resumed_stream_has_a_new_reader_and_not_the_post(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        reader = await bench.attach("a")
        assert not await bench.store.detach(KEY, "a", 0, None, broke=True)
        await bench.store.settle(KEY, "a", fence, b"last", tag=tag_of("a", 1))
        assert await bench.store.detach(KEY, "a", reader.generation, None, broke=True)

    @scenario()
    async def test_a_quiet_session_idles_out_exactly_at_its_time(self, bench: Bench) -> None:
        await bench.open()
        await bench.ends(IDLE, SessionInput.IDLE)
        assert await bench.sweep() == []
        assert not await bench.lives()

    @scenario()
    async def test_every_sign_of_the_client_starts_the_idle_clock_again(self, bench: Bench) -> None:
        await bench.open()
        bench.clock.advance(IDLE - 1)
        await bench.store.find(KEY, PRINCIPAL)
        bench.clock.advance(IDLE - 1)
        fence = await bench.begin(1, "a")
        bench.clock.advance(IDLE - 1)
        await bench.store.settle(KEY, "a", fence, None)
        await bench.ends(IDLE, SessionInput.IDLE)

    @scenario()
    async def test_work_counts_as_life(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.begin(1, "a")
        await bench.store.detach(KEY, "a", 0, None, broke=True)
        for _ in range(20):
            bench.clock.advance(LIFETIME)
            assert await bench.sweep() == []
        await bench.store.settle(KEY, "a", fence, b"last", tag=3, keep=True)
        bench.clock.advance(2)
        assert [key for key, _ in await bench.sweep()] == [KEY]

    @scenario()
    async def test_a_session_looked_at_while_it_worked_idles_out_after_its_work(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.begin(1, "a")
        bench.clock.advance(IDLE * 2)
        assert await bench.sweep() == []
        await bench.store.settle(KEY, "a", fence, None)
        await bench.ends(IDLE, SessionInput.IDLE)

    @scenario()
    async def test_a_live_reader_counts_as_life(self, bench: Bench) -> None:
        opened = await bench.open()
        reader = await bench.attach()
        bench.clock.advance(IDLE * 5)
        assert await bench.sweep() == []
        await bench.store.detach(KEY, opened.standalone, reader.generation, None, broke=False)
        await bench.ends(IDLE, SessionInput.IDLE)

    @scenario()
    async def test_a_sessions_lifetime_ends_even_with_a_reader(self, bench: Bench) -> None:
        await bench.open()
        await bench.attach()
        await bench.ends(LIFETIME, SessionInput.EXPIRED)

    @scenario()
    async def test_an_aged_session_ends_when_its_work_has_ended(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.begin(1, "a")
        bench.clock.advance(LIFETIME + 1)
        assert await bench.sweep() == []
        await bench.store.settle(KEY, "a", fence, None)
        bench.clock.advance(2)
        assert await bench.sweep() == [(KEY, SessionInput.EXPIRED)]

    @scenario()
    async def test_grace_counts_from_the_break(self, bench: Bench) -> None:
        opened = await bench.open()
        reader = await bench.attach()
        bench.clock.advance(10)
        await bench.store.detach(KEY, opened.standalone, reader.generation, None, broke=True)
        await bench.ends(GRACE, SessionInput.GRACE_OVER)

    @scenario()
    async def test_grace_counts_from_the_last_settled_exchange(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.begin(1, "a")
        await bench.store.detach(KEY, "a", 0, None, broke=True)
        bench.clock.advance(GRACE * 3)
        assert await bench.sweep() == []
        await bench.store.settle(KEY, "a", fence, b"last", tag=3, keep=True)
        bench.clock.advance(GRACE - 1)
        assert await bench.sweep() == []
        bench.clock.advance(2)
        assert await bench.sweep() == [(KEY, SessionInput.GRACE_OVER)]

    @scenario()
    async def test_coming_back_ends_the_grace(self, bench: Bench) -> None:
        opened = await bench.open()
        reader = await bench.attach()
        await bench.store.detach(KEY, opened.standalone, reader.generation, None, broke=True)
        bench.clock.advance(GRACE - 1)
        await bench.store.find(KEY, PRINCIPAL)
        bench.clock.advance(GRACE)
        assert await bench.sweep() == []
        bench.clock.advance(IDLE)
        assert await bench.sweep() == [(KEY, SessionInput.IDLE)]

    @scenario()
    async def test_without_grace_a_broken_session_goes_as_soon_as_nothing_is_in_flight(
        self, bench: Bench
    ) -> None:
        await bench.open(grace=0.0)
        fence = await bench.begin(1, "a")
        assert await bench.store.detach(KEY, "a", 0, None, broke=True)
        assert await bench.sweep() == []
        await bench.store.settle(KEY, "a", fence, b"last", tag=1, keep=True)
        bench.clock.advance(1)
        assert await bench.sweep() == [(KEY, SessionInput.GRACE_OVER)]

    @scenario()
    async def test_of_many_sweepers_and_closers_exactly_one_closes(self, bench: Bench) -> None:
        for number in range(20):
            await bench.open(f"s{number}")
        bench.clock.advance(IDLE)
        sweeps = [bench.store.sweep() for _ in range(5)]
        closes = [bench.store.close(f"s{number}", SessionInput.DELETED) for number in range(20)]
        swept, closed = await asyncio.gather(asyncio.gather(*sweeps), asyncio.gather(*closes))
        keys = [one.record.key for batch in swept for one in batch]
        keys += [one.record.key for one in closed if one is not None]
        assert sorted(keys) == sorted(f"s{number}" for number in range(20))
