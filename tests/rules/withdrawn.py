"""A request that no connection waits for does not start: its claim is given back, and its name is remembered for a while."""

from limpet.stores.base import WITHDRAWN_STREAMS, Claimed, Duplicate, Probed, Refusal
from limpet.testing.store.bench import KEY, PRINCIPAL, Bench, Contract, scenario, tag_of


class WithdrawnRules(Contract):
    """give_back, and what it means for claim, attach and probe (law 12)."""

    @scenario()
    async def test_a_claim_that_was_given_back_leaves_its_id_free_and_says_that_nothing_ran(
        self, bench: Bench
    ) -> None:
        await bench.open()
        fence = await bench.begin(1, "a")
        for _ in range(2):
            await bench.store.give_back(KEY, "a", fence)
            assert await bench.store.attach(KEY, PRINCIPAL, "a", None) is Refusal.WITHDRAWN
            probed = await bench.store.probe(KEY, "a")
            assert probed == Probed(running=False, kept=False, reader="", word=0, withdrawn=True)
        assert await bench.claim(1, "a") is Refusal.WITHDRAWN, "the first claim, sent again"
        await bench.begin(1, "b")

    @scenario()
    async def test_a_request_that_was_given_back_before_its_claim_cannot_be_claimed(
        self, bench: Bench
    ) -> None:
        await bench.open()
        await bench.store.give_back(KEY, "a")
        assert await bench.store.attach(KEY, PRINCIPAL, "a", None) is Refusal.UNRESUMABLE, "it may have run"
        for _ in range(2):
            assert await bench.claim(1, "a") is Refusal.WITHDRAWN
        assert await bench.store.attach(KEY, PRINCIPAL, "a", None) is Refusal.WITHDRAWN
        await bench.begin(1, "b")

    @scenario()
    async def test_a_claim_ends_when_it_is_made_again_after_its_request_was_given_back(
        self, bench: Bench
    ) -> None:
        await bench.open()
        await bench.begin(1, "a")
        await bench.store.give_back(KEY, "a")
        assert isinstance(await bench.claim(1, "b"), Duplicate), "it may run"
        assert await bench.claim(1, "a") is Refusal.WITHDRAWN
        await bench.begin(1, "b")

    @scenario()
    async def test_an_exchange_in_flight_whose_connection_is_gone_says_so_until_it_has_a_reader_again(
        self, bench: Bench
    ) -> None:
        await bench.open()
        fence = await bench.begin(1, "a")
        await bench.store.give_back(KEY, "a")
        probed = await bench.store.probe(KEY, "a")
        assert probed is not None
        assert (probed.running, probed.withdrawn) == (True, True)
        assert await bench.store.attach(KEY, PRINCIPAL, "a", None) is Refusal.UNBEGUN
        await bench.store.open_stream(KEY, "a", fence, tag_of("a", 0))
        await bench.attach("a")
        probed = await bench.store.probe(KEY, "a")
        assert probed is not None
        assert (probed.running, probed.withdrawn) == (True, False)
        assert isinstance(await bench.claim(1, "a"), Claimed), "a connection waits for it again"

    @scenario()
    async def test_an_exchange_that_has_ended_or_has_another_fence_is_not_given_back(
        self, bench: Bench
    ) -> None:
        await bench.open()
        fence = await bench.begin(1, "a")
        await bench.store.give_back(KEY, "a", fence + 1)
        assert isinstance(await bench.claim(1, "b"), Duplicate)
        await bench.store.settle(KEY, "a", fence, b"last", tag=tag_of("a", 1), keep=True)
        await bench.store.give_back(KEY, "a", fence)
        await bench.store.give_back(KEY, "a")
        await bench.attach("a")
        await bench.store.give_back("unknown", "a")

    @scenario()
    async def test_a_session_remembers_a_limited_number_of_them(self, bench: Bench) -> None:
        await bench.open()
        for number in range(WITHDRAWN_STREAMS + 1):
            await bench.store.give_back(KEY, f"s{number}")
        assert isinstance(await bench.claim(1, "s0"), Claimed), "the oldest is forgotten"
        assert await bench.claim(2, "s1") is Refusal.WITHDRAWN
        assert await bench.claim(3, f"s{WITHDRAWN_STREAMS}") is Refusal.WITHDRAWN
