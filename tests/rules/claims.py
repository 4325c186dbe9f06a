"""A request is claimed once, under its own id, in its own session."""

import asyncio

from limpet.core.lifecycle import SessionInput
from limpet.stores.base import STANDALONE_FENCE, Claimed, Duplicate, Refusal, WakeUp
from limpet.testing.store.bench import (
    IDLE,
    KEY,
    OTHER,
    PRINCIPAL,
    Bench,
    Contract,
    data_of,
    scenario,
    tag_of,
)


class ClaimRules(Contract):
    """claim and cancel (laws 1 and 2)."""

    @scenario()
    async def test_of_many_claims_of_one_id_exactly_one_wins(self, bench: Bench) -> None:
        await bench.open()
        verdicts = await asyncio.gather(*(bench.claim(1, f"s{number}") for number in range(50)))
        winners = [verdict for verdict in verdicts if isinstance(verdict, Claimed)]
        losers = [verdict for verdict in verdicts if isinstance(verdict, Duplicate)]
        assert (len(winners), len(losers)) == (1, 49)
        assert len({loser.stream for loser in losers}) == 1

    @scenario()
    async def test_one_and_the_text_one_are_different_ids(self, bench: Bench) -> None:
        await bench.open()
        assert await bench.begin(1, "a") != await bench.begin("1", "b")

    @scenario()
    async def test_the_same_id_in_another_session_is_free(self, bench: Bench) -> None:
        await bench.open()
        await bench.open(OTHER)
        await bench.begin(1, "a")
        await bench.begin(1, "b", key=OTHER)

    @scenario()
    async def test_an_id_is_free_again_once_settled(self, bench: Bench) -> None:
        await bench.open()
        for number in range(3):
            fence = await bench.begin(1, f"s{number}")
            await bench.store.settle(KEY, f"s{number}", fence, None)

    @scenario()
    async def test_an_id_is_free_again_once_its_claim_was_given_back(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.begin(1, "a")
        for _ in range(2):
            await bench.store.give_back(KEY, "a", fence)
        await bench.begin(1, "b")

    @scenario()
    async def test_a_duplicate_names_the_exchange_that_holds_the_id(self, bench: Bench) -> None:
        await bench.open()
        await bench.streaming(1, "a", digest=b"one")
        same = await bench.claim(1, "b", digest=b"one")
        assert same == Duplicate("a", same=True, finished=False, has_reader=True)
        other = await bench.claim(1, "c", digest=b"two")
        assert isinstance(other, Duplicate)
        assert not other.same
        await bench.store.detach(KEY, "a", 0, None, broke=True)
        gone = await bench.claim(1, "d", digest=b"one")
        assert isinstance(gone, Duplicate)
        assert not gone.has_reader

    @scenario()
    async def test_a_refused_duplicate_leaves_no_trace_on_the_first(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        await bench.claim(1, "b")
        await bench.append("a", fence, 1, b"one")
        await bench.store.settle(KEY, "a", fence, b"last", tag=tag_of("a", 2))
        assert data_of(await bench.read("a", await bench.start_of("a"))) == [b"one", b"last"]
        assert await bench.store.attach(KEY, PRINCIPAL, "b", None) is Refusal.UNRESUMABLE

    @scenario()
    async def test_a_claim_sent_again_is_the_same_claim(self, bench: Bench) -> None:
        for isolate in (False, True):
            key = f"isolate-{isolate}"
            await bench.open(key, isolate=isolate)
            fence = await bench.begin(1, "a", key=key)
            assert await bench.begin(1, "a", key=key) == fence
            await bench.store.settle(key, "a", fence, None)
            bench.clock.advance(101)
            # Counted twice it would still be at work, and live.
            assert [closed for closed, _ in await bench.sweep()] == [key]

    @scenario()
    async def test_a_claim_makes_its_post_the_reader_of_generation_0(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.begin(1, "a")
        bench.clock.advance(IDLE)
        await bench.store.open_stream(KEY, "a", fence, tag_of("a", 0))
        await bench.store.settle(KEY, "a", fence, b"last", tag=tag_of("a", 1))
        bench.clock.advance(IDLE)
        assert await bench.sweep() == [], "the POST still reads"
        assert not await bench.store.detach(KEY, "a", 1, None, broke=True), "no reader has this generation"
        assert await bench.store.detach(KEY, "a", 0, None, broke=True)
        assert (await bench.attach("a")).generation == 1

    @scenario()
    async def test_an_exchange_that_is_forgotten_takes_its_reader_with_it(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.begin(1, "a")
        await bench.store.settle(KEY, "a", fence, None)
        assert not await bench.store.detach(KEY, "a", 0, None, broke=True)
        bench.clock.advance(IDLE)
        assert await bench.sweep() == [(KEY, SessionInput.IDLE)]

    @scenario()
    async def test_every_fence_of_a_session_is_larger_than_those_before(self, bench: Bench) -> None:
        await bench.open()
        fences = [await bench.begin(number, f"s{number}", control=number % 2 == 0) for number in range(4)]
        assert fences == sorted(set(fences))
        assert fences[0] > STANDALONE_FENCE

    @scenario()
    async def test_isolated_requests_with_one_id_run_apart(self, bench: Bench) -> None:
        await bench.open(isolate=True)
        first, second = await bench.streaming(1, "a"), await bench.streaming(1, "b")
        assert first != second
        await bench.store.settle(KEY, "b", second, b"B", tag=tag_of("b", 1))
        await bench.append("a", first, 1, b"progress")
        await bench.store.settle(KEY, "a", first, b"A", tag=tag_of("a", 2))
        assert data_of(await bench.read("a", await bench.start_of("a"))) == [b"progress", b"A"]
        assert data_of(await bench.read("b", await bench.start_of("b"))) == [b"B"]

    @scenario(running=2, queued=1)
    async def test_over_the_limit_of_calls_is_busy_and_control_passes(self, bench: Bench) -> None:
        await bench.open()
        fences = [await bench.begin(number, f"s{number}") for number in range(3)]
        assert await bench.claim(9, "late") is Refusal.BUSY
        ping = await bench.begin("ping", "control", control=True)
        assert await bench.claim(9, "late") is Refusal.BUSY
        await bench.store.settle(KEY, "control", ping, None)
        assert await bench.claim(9, "late") is Refusal.BUSY
        await bench.store.settle(KEY, "s1", fences[1], None)
        await bench.begin(9, "late")

    @scenario(running=1, queued=0)
    async def test_one_sessions_calls_do_not_fill_another(self, bench: Bench) -> None:
        await bench.open()
        await bench.open(OTHER)
        await bench.begin(1, "a")
        await bench.begin(1, "b", key=OTHER)

    @scenario()
    async def test_a_cancellation_wakes_the_one_exchange_meant(self, bench: Bench) -> None:
        await bench.open()
        await bench.begin(1, "a")
        await bench.begin("1", "b")
        await bench.store.cancel(KEY, PRINCIPAL, "1")
        await bench.store.cancel(KEY, PRINCIPAL, 2)
        assert bench.wakeups == [(WakeUp.CANCEL, KEY, "b")]

    @scenario()
    async def test_a_cancellation_that_could_mean_two_is_ignored(self, bench: Bench) -> None:
        await bench.open(isolate=True)
        await bench.begin(1, "a")
        await bench.begin(1, "b")
        await bench.store.cancel(KEY, PRINCIPAL, 1)
        assert bench.wakeups == []

    @scenario()
    async def test_a_settled_exchange_cannot_be_cancelled(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.streaming(1, "a")
        await bench.store.settle(KEY, "a", fence, b"last", tag=5)
        bench.wakeups.clear()
        await bench.store.cancel(KEY, PRINCIPAL, 1)
        assert bench.wakeups == []
