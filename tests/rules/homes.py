"""The home of a session: one replica has it, another takes it by compare-and-set, and only one of several succeeds."""

import asyncio

from msgspec.structs import replace

from limpet.core.lifecycle import SessionInput
from limpet.stores.base import Claimed, Duplicate, Refusal, WakeUp
from limpet.testing.store.bench import IDLE, KEY, PRINCIPAL, Bench, Contract, record, tag_of
from limpet.testing.store.fleet import Fleet, fleet_scenario


async def _opened(bench: Bench) -> None:
    """Open a session whose home is this replica."""
    await bench.store.open(replace(record(), home=bench.store.replica), evict=False)


class HomeRules(Contract):
    """take_home, subscriptions, and claims of one stream by two replicas: for stores that several processes share."""

    @fleet_scenario()
    async def test_the_home_is_in_every_record_that_a_store_returns(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await _opened(one)
        home = one.store.replica
        found = await two.store.find(KEY, PRINCIPAL)
        assert found is not None
        assert found.record.home == home
        claimed = await two.claim(1, "a")
        assert isinstance(claimed, Claimed)
        assert claimed.record.home == home
        assert (await two.attach()).record.home == home
        closed = await two.store.close(KEY, SessionInput.DELETED)
        assert closed is not None
        assert closed.record.home == home

    @fleet_scenario()
    async def test_of_many_that_take_a_home_one_has_it_and_all_learn_which(self, fleet: Fleet) -> None:
        one, two, three = fleet.benches
        await _opened(one)
        tries = [bench.store.take_home(KEY, one.store.replica) for bench in (two, three)]
        homes = {taken.home for taken in await asyncio.gather(*tries) if taken is not None}
        assert len(homes) == 1
        assert homes <= {two.store.replica, three.store.replica}
        again = await one.store.take_home(KEY, one.store.replica)
        assert again is not None
        assert {again.home} == homes, "it was the home, and is it no longer"
        claimed = await one.claim(1, "a")
        assert isinstance(claimed, Claimed)
        assert {claimed.record.home} == homes

    @fleet_scenario()
    async def test_a_home_taken_twice_by_the_same_replica_is_its_home(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await _opened(one)
        await one.store.change(KEY, level="debug")
        for _ in range(2):
            taken = await two.store.take_home(KEY, one.store.replica)
            assert taken is not None
            assert (taken.home, taken.level) == (two.store.replica, "debug")

    @fleet_scenario()
    async def test_an_unknown_or_closed_session_has_no_home(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        assert await two.store.take_home(KEY, one.store.replica) is None
        await _opened(one)
        await one.store.close(KEY, SessionInput.DELETED)
        assert await two.store.take_home(KEY, one.store.replica) is None
        assert await two.store.subscriptions(KEY) == []

    @fleet_scenario()
    async def test_a_question_for_the_home_is_no_sign_of_the_client(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await _opened(one)
        fleet.clock.advance(IDLE - 1)
        assert await two.store.take_home(KEY, one.store.replica) is not None
        fleet.clock.advance(1.5)
        assert [key for key, _ in await two.sweep()] == [KEY]

    @fleet_scenario()
    async def test_the_end_of_a_session_wakes_its_home(self, fleet: Fleet) -> None:
        one, two, three = fleet.benches
        await _opened(one)
        assert await two.store.take_home(KEY, one.store.replica) is not None
        assert await three.store.close(KEY, SessionInput.DELETED) is not None
        await fleet.heard(1, WakeUp.CLOSED, KEY, "")

    @fleet_scenario()
    async def test_a_new_home_learns_the_subscriptions(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await _opened(one)
        for uri in ("file:///ö", "file:///b", "file:///gone"):
            assert await one.store.subscribe(KEY, uri)
        await one.store.unsubscribe(KEY, "file:///gone")
        assert await two.store.subscriptions(KEY) == ["file:///b", "file:///ö"]

    @fleet_scenario()
    async def test_a_stream_that_one_replica_has_claimed_is_not_claimed_by_another(
        self, fleet: Fleet
    ) -> None:
        one, two, _ = fleet.benches
        await fleet.lease(0, 1)
        await one.store.open(replace(record(), isolate=True), evict=False)
        fence = await one.begin(1, "a", digest=b"call")
        again = await one.claim(1, "a", digest=b"call")
        assert isinstance(again, Claimed)
        assert again.fence == fence
        running = await two.claim(1, "a", digest=b"call")
        assert isinstance(running, Duplicate)
        assert (running.stream, running.same, running.finished) == ("a", True, False)
        await one.store.settle(KEY, "a", fence, b"last", tag=tag_of("a", 1))
        for bench in (one, two):
            ended = await bench.claim(1, "a", digest=b"call")
            assert isinstance(ended, Duplicate), "it would run a second time"
            assert (ended.stream, ended.same, ended.finished) == ("a", True, True)

    @fleet_scenario()
    async def test_a_request_whose_client_has_left_at_another_replica_is_not_claimed(
        self, fleet: Fleet
    ) -> None:
        one, two, _ = fleet.benches
        await fleet.lease(0, 1)
        await _opened(one)
        await two.store.give_back(KEY, "a")
        assert await one.claim(1, "a") is Refusal.WITHDRAWN
        await one.begin(1, "b")
        await two.store.give_back(KEY, "b")
        assert isinstance(await two.claim(1, "b"), Duplicate), "only its owner can end it"
        assert await one.claim(1, "b") is Refusal.WITHDRAWN
