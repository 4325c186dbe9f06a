"""Between replicas: inbox, announcements, secrets, notices, closings.

First with one replica, then with several that share a store.
"""

import asyncio

from limpet.core.lifecycle import SessionInput
from limpet.core.rules.areas import own_area
from limpet.stores.base import INBOX_BYTES, WakeUp
from limpet.testing.store.bench import KEY, PRINCIPAL, Bench, Contract, scenario
from limpet.testing.store.fleet import LEASE, Fleet, fleet_scenario


class ReplicaContract(Contract):
    """renew, forward, announce, secret, closings: every store has these, also one that is not shared."""

    @scenario()
    async def test_a_lease_is_the_same_incarnation_while_it_runs(self, bench: Bench) -> None:
        first = await bench.store.renew(LEASE)
        bench.clock.advance(LEASE / 2)
        assert await bench.store.renew(LEASE) == first
        assert list(await bench.store.replicas()) == [bench.store.replica]
        await bench.store.release()
        assert await bench.store.replicas() == {}

    @scenario()
    async def test_a_request_waits_in_the_inbox_of_a_living_replica_until_it_is_taken(
        self, bench: Bench
    ) -> None:
        store = bench.store
        assert not await store.forward("unknown", "f1", b"one", seconds=60)
        await store.renew(LEASE)
        for _ in range(2):
            assert await store.forward(store.replica, "f1", b"one", seconds=60)
        assert await store.forward(store.replica, "f2", b"two", seconds=60)
        assert sorted(await store.inbox()) == [("f1", b"one"), ("f2", b"two")]
        assert await store.remove_forwarded("f1")
        assert not await store.remove_forwarded("f1")
        assert await store.inbox() == [("f2", b"two")]
        await store.release()
        assert not await store.forward(store.replica, "f3", b"three", seconds=60)

    @scenario()
    async def test_an_inbox_takes_as_many_bytes_as_a_replica_reads_at_once_and_any_first_message(
        self, bench: Bench
    ) -> None:
        store, part = bench.store, b"x" * (INBOX_BYTES // 2)

        async def forward(name: str, payload: bytes) -> bool:
            return await store.forward(store.replica, name, payload, seconds=60)

        await store.renew(LEASE)
        assert await forward("f1", part)
        assert await forward("f2", part)
        assert not await forward("f3", b"more")
        assert await forward("f2", part), "a repeat is there already"
        assert await store.remove_forwarded("f1")
        assert await forward("f3", b"more")
        assert not await forward("f4", part)
        for name in ("f2", "f3"):
            assert await store.remove_forwarded(name)
        assert await forward("f5", part * 2 + b"more"), "it waits alone"
        assert not await forward("f6", b"more")

    @scenario()
    async def test_announcements_follow_a_cursor_and_count_once(self, bench: Bench) -> None:
        await bench.store.announce("a0", b"before")
        start = await bench.store.announced("")
        assert start.events == []
        for _ in range(2):
            await bench.store.announce("a1", b"one")
        await bench.store.announce("a2", b"two")
        after, events, missed = await bench.store.announced(start.cursor)
        assert (events, missed) == ([b"one", b"two"], False)
        assert await bench.store.announced(after) == (after, [], False)

    @scenario()
    async def test_a_secret_is_the_first_that_was_offered_while_it_is_asked_for(self, bench: Bench) -> None:
        assert await bench.store.secret("seal", b"first", seconds=60) == b"first"
        assert await bench.store.secret("other", b"third", seconds=60) == b"third"
        for _ in range(3):
            bench.clock.advance(40)
            await bench.store.sweep()
            assert await bench.store.secret("seal", b"second", seconds=60) == b"first"
        bench.clock.advance(61)
        await bench.store.sweep()
        assert await bench.store.secret("seal", b"third", seconds=60) == b"third"

    @scenario()
    async def test_a_replica_receives_neither_its_own_notice_nor_a_closing_that_was_reported(
        self, bench: Bench
    ) -> None:
        for notice in (b"one", b"", b"two"):
            assert await bench.store.post_notice(notice, seconds=60) == []
        await bench.open()
        closed = await bench.store.close(KEY, SessionInput.DELETED)
        assert closed is not None
        await bench.store.closing_reported(closed)
        bench.clock.advance(3600)
        assert await bench.store.unreported_closings() == []


class BetweenReplicasContract(Contract):
    """The same calls where several replicas share a store."""

    @fleet_scenario()
    async def test_the_last_notice_of_each_replica_reaches_the_others_for_its_time(
        self, fleet: Fleet
    ) -> None:
        one, two, three = (bench.store for bench in fleet.benches)
        assert await one.post_notice(b"old", seconds=10) == []
        assert await one.post_notice(b"\x00 1\xff", seconds=10) == []
        assert await two.post_notice(b"2", seconds=20) == [b"\x00 1\xff"]
        assert sorted(await three.post_notice(b"", seconds=10)) == [b"\x00 1\xff", b"2"]
        assert await one.post_notice(b"", seconds=10) == [b"2"]
        fleet.clock.advance(11)
        await three.sweep()
        assert await three.post_notice(b"3", seconds=20) == [b"2"]
        assert await two.post_notice(b"", seconds=10) == [b"3"]

    @fleet_scenario()
    async def test_of_secrets_and_states_that_begin_at_once_there_is_one(self, fleet: Fleet) -> None:
        offered = [bench.store.secret("seal", b"%d" % n, seconds=60) for n, bench in enumerate(fleet.benches)]
        assert len(set(await asyncio.gather(*offered))) == 1
        area = own_area(PRINCIPAL)

        async def use(bench: Bench, number: int) -> None:
            assert await bench.store.open_area(area, PRINCIPAL, 100.0)
            await bench.store.add_state(area, "n", 1, op=f"op{number}")

        await asyncio.gather(*(use(fleet.benches[number % 3], number) for number in range(12)))
        cell = await fleet.benches[0].store.get_state(area, "n")
        assert cell is not None
        assert cell.value == b"12", "a second beginning would have lost the earlier count"

    @fleet_scenario()
    async def test_tasks_announcements_and_requests_wake_the_replicas_that_wait(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await fleet.lease(1)
        await one.store.open_task("t", PRINCIPAL, b"1", ttl=60)
        await one.store.set_task("t", PRINCIPAL, b"2", version=1, ttl=60)
        await fleet.heard(1, WakeUp.TASK, "t", "")
        start = await two.store.announced("")
        await one.store.announce("n", b"changed")
        await fleet.heard(1, WakeUp.NEWS, "", "")
        assert (await two.store.announced(start.cursor)).events == [b"changed"]
        assert await one.store.forward(two.store.replica, "f", b"run this", seconds=60)
        await fleet.heard(1, WakeUp.FORWARD, "", "")
        assert await two.store.inbox() == [("f", b"run this")]
        assert await one.store.inbox() == []

    @fleet_scenario()
    async def test_a_request_is_taken_or_taken_back_once_also_from_the_dead(self, fleet: Fleet) -> None:
        one, two, three = fleet.benches
        await fleet.lease(0, 1, 2)
        assert await one.store.forward(two.store.replica, "f", b"run this", seconds=60)
        assert not await one.store.remove_forwarded("f"), "it is in the inbox of another replica"
        tries = [
            two.store.remove_forwarded("f"),
            one.store.remove_forwarded("f", replica=two.store.replica),
            three.store.remove_forwarded("f", replica=two.store.replica),
        ]
        assert sorted(await asyncio.gather(*tries)) == [False, False, True]
        assert await two.store.inbox() == []
        for gone in (one, three):
            assert await two.store.forward(gone.store.replica, "f", b"run this", seconds=600)
        await three.store.release()
        assert await fleet.orphans_of_dead_replicas(1) == []
        for gone in (one, three):
            assert not await two.store.forward(gone.store.replica, "g", b"run this", seconds=600)
            assert await two.store.remove_forwarded("f", replica=gone.store.replica), "it never ran"

    @fleet_scenario()
    async def test_a_closing_that_was_not_reported_is_found_by_another_replica(self, fleet: Fleet) -> None:
        one, two, three = fleet.benches
        await one.open()
        closed = await one.store.close(KEY, SessionInput.DELETED)
        assert closed is not None
        assert await two.store.unreported_closings() == []
        fleet.clock.advance(60)
        found = [*await two.store.unreported_closings(), *await three.store.unreported_closings()]
        assert found == [closed]
        assert found[0].event
        await two.store.closing_reported(found[0])
        fleet.clock.advance(60)
        assert await two.store.unreported_closings() == []
