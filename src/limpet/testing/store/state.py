"""State: versions, compare-and-set, exact counters, operations that may be sent again; areas of principals.

Limits and totals.
"""

import asyncio

from limpet.core.lifecycle import SessionInput
from limpet.core.rules.areas import own_area
from limpet.core.rules.state import ENTRY_BYTES
from limpet.errors import SessionGone, StateError
from limpet.stores.base import REMEMBERED_OPS, Cell
from limpet.testing.store.bench import KEY, OTHER, PRINCIPAL, STRANGER, Bench, Contract, refused, scenario
from limpet.testing.store.fleet import Fleet, fleet_scenario

AREA, OWN, TTL, SIZE = "area", own_area(PRINCIPAL), 100.0, 700
VALUE = b"x" * SIZE
TOTAL = 5 * (ENTRY_BYTES + len("f") + SIZE) + ENTRY_BYTES
"""Room for five fields `f` of this size and for less than one more, also in a store that grants room in steps."""


async def fill(bench: Bench, areas: list[str]) -> list[str]:
    """Set one field in each area; return which of them had room."""
    kept = []
    for area in areas:
        try:
            await bench.store.set_state(area, "f", VALUE, op="fill")
        except StateError:
            assert await bench.store.get_state(area, "f") is None
        else:
            kept.append(area)
    return kept


async def opened(bench: Bench, count: int, principal: str = PRINCIPAL) -> list[str]:
    """Open sessions of one principal."""
    return [(await bench.open(f"{principal or 'anyone'}{number}", principal)).key for number in range(count)]


class StateContract(Contract):
    """get_state, set_state, add_state, open_area, find_area (law 11)."""

    @scenario()
    async def test_a_field_is_absent_then_set_then_gone_and_comes_back_with_another_version(
        self, bench: Bench
    ) -> None:
        store = bench.store
        await bench.open()
        await bench.open(OTHER)
        assert await store.get_state(KEY, "f") is None
        first = await store.set_state(KEY, "f", b"one", op="1")
        assert first > 0
        assert await store.get_state(KEY, "f") == Cell(b"one", first)
        assert await store.get_state(OTHER, "f") is None, "state belongs to its session"
        assert await store.set_state(OTHER, "f", b"other", op="1") > 0, "and so do operations"
        assert await store.get_state(OTHER, "f") != await store.get_state(KEY, "f")
        later = await store.set_state(KEY, "f", b"two", op="2")
        assert later > first
        assert await store.set_state(KEY, "f", None, op="3") == 0
        assert await store.get_state(KEY, "f") is None
        again = await store.set_state(KEY, "f", b"one", op="4")
        assert again not in {first, later}
        assert await store.set_state(KEY, "f", b"two", op="5", version=first) == -1

    @scenario()
    async def test_a_version_that_differs_changes_nothing_and_of_racing_ones_one_wins(
        self, bench: Bench
    ) -> None:
        store = bench.store
        await bench.open()
        assert await store.set_state(KEY, "f", b"x", op="0", version=7) == -1
        first = await store.set_state(KEY, "f", b"one", op="1", version=0)
        assert await store.set_state(KEY, "f", b"two", op="2", version=0) == -1
        assert await store.get_state(KEY, "f") == Cell(b"one", first)
        writes = [store.set_state(KEY, "g", b"%d" % n, op=f"o{n}", version=0) for n in range(30)]
        assert (await asyncio.gather(*writes)).count(-1) == 29

    @scenario()
    async def test_an_operation_sent_again_returns_its_first_result(self, bench: Bench) -> None:
        store = bench.store
        await bench.open()
        first = await store.set_state(KEY, "f", b"one", op="1")
        assert await store.set_state(KEY, "f", b"x", op="2", version=0) == -1
        await store.set_state(KEY, "f", None, op="3")
        assert await store.set_state(KEY, "f", b"one", op="1") == first
        assert await store.set_state(KEY, "f", b"x", op="2", version=0) == -1
        assert await store.get_state(KEY, "f") is None
        assert await store.add_state(KEY, "n", 5, op="4") == 5
        assert await store.add_state(KEY, "n", 5, op="4") == 5
        for number in range(REMEMBERED_OPS):
            await store.add_state(KEY, "m", 1, op=f"o{number}")
        assert await store.add_state(KEY, "m", 1, op="o0") == 1, "it is one of the last operations"

    @scenario()
    async def test_a_counter_is_exact_under_racing_and_repeated_additions(self, bench: Bench) -> None:
        await bench.open()
        adds = [bench.store.add_state(KEY, "n", n % 7 - 2, op=f"o{n}") for n in range(100) for _ in range(2)]
        await asyncio.gather(*adds)
        total = sum(n % 7 - 2 for n in range(100))
        assert await bench.store.add_state(KEY, "n", 0, op="end") == total
        cell = await bench.store.get_state(KEY, "n")
        assert cell is not None
        assert int(cell.value) == total
        for by in (2**53, -(2**54)):
            total += by
            assert await bench.store.add_state(KEY, "n", by, op=str(by)) == total, "not a float"

    @scenario()
    async def test_the_state_of_a_closed_session_is_gone(self, bench: Bench) -> None:
        await bench.open()
        await bench.store.set_state(KEY, "f", b"one", op="1")
        await bench.store.close(KEY, SessionInput.DELETED)
        await refused(bench.store.set_state(KEY, "f", b"two", op="2"), SessionGone)
        await refused(bench.store.add_state(KEY, "n", 1, op="3"), SessionGone)
        await bench.open()
        assert await bench.store.get_state(KEY, "f") is None
        version = await bench.store.set_state(KEY, "f", b"two", op="1")
        assert await bench.store.get_state(KEY, "f") == Cell(b"two", version), (
            "its operations are forgotten too"
        )

    # Areas

    @scenario()
    async def test_an_area_keeps_state_as_a_session_does_for_one_principal(self, bench: Bench) -> None:
        store = bench.store
        await bench.open()
        assert await store.open_area(AREA, PRINCIPAL, TTL)
        first = await store.set_state(AREA, "f", b"one", op="1", version=0)
        assert await store.get_state(AREA, "f") == Cell(b"one", first)
        assert await store.set_state(AREA, "f", b"two", op="2", version=0) == -1
        for _ in range(2):
            assert await store.add_state(AREA, "n", 2, op="3") == 2
        assert await store.get_state(KEY, "f") is None
        assert await store.open_area(AREA, PRINCIPAL, TTL), "opened twice it is the same"
        assert not await store.open_area(AREA, STRANGER, TTL)
        assert await store.get_state(AREA, "f") is not None
        assert await store.find_area(AREA, PRINCIPAL)
        assert not await store.find_area(AREA, STRANGER)
        assert not await store.find_area("none", PRINCIPAL)
        assert not await store.find_area(KEY, PRINCIPAL), "a session is not an area"

    @scenario()
    async def test_an_area_is_forgotten_once_unused_for_its_time(self, bench: Bench) -> None:
        store = bench.store
        for area in (AREA, OWN):
            await store.open_area(area, PRINCIPAL, TTL)
            await store.set_state(area, "f", b"one", op="1")
        for _ in range(3):
            bench.clock.advance(TTL - 1)
            await store.sweep()
            assert await store.find_area(AREA, PRINCIPAL)
            assert await store.open_area(OWN, PRINCIPAL, TTL), "its time starts again"
        assert await store.get_state(OWN, "f") is not None
        bench.clock.advance(TTL)
        assert not await store.find_area(AREA, PRINCIPAL)
        await refused(store.set_state(AREA, "f", b"two", op="2"), SessionGone)
        await store.open_area(AREA, STRANGER, TTL)
        assert await store.get_state(AREA, "f") is None
        bench.clock.advance(TTL)
        assert await store.open_area(OWN, PRINCIPAL, TTL)
        assert await store.get_state(OWN, "f") is None, "begun again it is empty"

    @scenario(handles=3, handles_per_principal=2, principal_states=2)
    async def test_areas_are_limited_per_principal_and_in_all(self, bench: Bench) -> None:
        store = bench.store
        assert [await store.open_area(f"{AREA}{n}", PRINCIPAL, TTL) for n in range(3)] == [True, True, False]
        assert await store.open_area("other", STRANGER, TTL)
        assert not await store.open_area("another", STRANGER, TTL)
        assert await store.open_area(OWN, PRINCIPAL, TTL), "handles take no room from it"
        assert await store.open_area(own_area(STRANGER), STRANGER, TTL)
        assert not await store.open_area(own_area(""), "", TTL), "two principals have state already"
        assert await store.open_area(OWN, PRINCIPAL, TTL), "the first one still has its own"
        bench.clock.advance(TTL)
        assert await store.open_area(own_area(""), "", TTL), "an expired area makes room"
        anonymous = [await store.open_area(f"{AREA}{n}", "", TTL) for n in range(4)]
        assert anonymous == [True, True, True, False], "anonymous clients have only the limit of all"

    @scenario(principal_state_bytes=2 * SIZE)
    async def test_a_principals_own_state_has_a_limit_of_its_own(self, bench: Bench) -> None:
        store = bench.store
        for area in (AREA, OWN):
            await store.open_area(area, PRINCIPAL, TTL)
            assert await store.set_state(area, "f", VALUE, op="1") > 0
        await refused(store.set_state(OWN, "g", VALUE, op="2"), StateError)
        assert await store.get_state(OWN, "g") is None
        assert await store.set_state(AREA, "g", VALUE, op="2") > 0, "a handle has the limit of a session"

    # Totals: `principal_kept_bytes`

    @scenario(principal_kept_bytes=TOTAL)
    async def test_sessions_and_areas_of_one_principal_have_one_total(self, bench: Bench) -> None:
        areas = ["handle", OWN, "last"]
        for area in areas:
            assert await bench.store.open_area(area, PRINCIPAL, TTL)
        mine, [other], anyone = (
            await opened(bench, 4),
            await opened(bench, 1, STRANGER),
            await opened(bench, 6, ""),
        )
        assert await fill(bench, [*areas[:2], *mine, "last"]) == [*areas[:2], *mine[:3]]
        await refused(bench.store.add_state(mine[3], "n" * SIZE, 1, op="add"), StateError)
        assert await fill(bench, [other]) == [other], "another principal has its own total"
        assert await fill(bench, anyone) == anyone[:5], "anonymous clients are one principal"

    @scenario(principal_kept_bytes=TOTAL)
    async def test_what_is_full_can_still_be_read_changed_and_made_smaller(self, bench: Bench) -> None:
        store, keys = bench.store, await opened(bench, 7)
        assert await fill(bench, keys) == keys[:5]
        status = await store.look(keys[0])
        assert status is not None
        assert status.kept_bytes == ENTRY_BYTES + len("f") + SIZE
        assert await store.set_state(keys[0], "f", b"y" * SIZE, op="same size") > 0
        found = await store.get_state(keys[1], "f")
        assert found is not None
        assert found.value == VALUE
        assert await store.set_state(keys[1], "f", None, op="gone") == 0
        assert await fill(bench, keys[5:]) == keys[5:6], "a removed field makes room"
        assert await store.set_state(keys[0], "f", b"1", op="smaller") > 0
        await store.set_state(keys[6], "f", b"2", op="small")
        assert await store.set_state(keys[6], "f", b"x" * (SIZE - ENTRY_BYTES), op="grows") > 0
        await refused(store.set_state(keys[0], "f", VALUE, op="too large"), StateError)
        assert await store.close(keys[2], SessionInput.DELETED) is not None
        assert await store.set_state(keys[0], "f", VALUE, op="fits") > 0, "a closed session makes room"

    @scenario(principal_kept_bytes=TOTAL)
    async def test_a_handle_that_is_not_used_makes_room_with_the_next_sweep(self, bench: Bench) -> None:
        handles = [f"handle{number}" for number in range(5)]
        for handle in handles:
            await bench.store.open_area(handle, PRINCIPAL, TTL)
        assert await fill(bench, handles) == handles
        bench.clock.advance(TTL)
        await bench.store.sweep()
        keys = await opened(bench, 5)
        assert await fill(bench, keys) == keys

    @scenario(principal_kept_bytes=TOTAL)
    async def test_subscriptions_are_part_of_the_total(self, bench: Bench) -> None:
        store = bench.store
        [one, two], [other] = await opened(bench, 2), await opened(bench, 1, STRANGER)
        uris = [f"test://{number}/{'x' * SIZE}" for number in range(6)]
        assert [uri for uri in uris if await store.subscribe(one, uri)] == uris[:5]
        assert not await store.subscribe(two, uris[0])
        assert await store.subscribe(one, uris[0]), "it has this one already"
        assert await store.subscribe(other, uris[0])
        await refused(store.set_state(two, "f", VALUE, op="1"), StateError)
        await store.unsubscribe(one, uris[0])
        assert await store.subscribe(two, uris[0]), "a removed one makes room"
        assert sorted(await store.subscribers(uris[0])) == sorted([two, other])
        assert await store.close(one, SessionInput.DELETED) is not None
        assert await fill(bench, [two]) == [two]

    @scenario(principal_kept_bytes=TOTAL)
    async def test_subscriptions_at_once_stay_within_the_total(self, bench: Bench) -> None:
        store, keys = bench.store, await opened(bench, 3)
        wanted = [(keys[number % 3], f"test://{number:02}/{'x' * SIZE}") for number in range(12)]
        done = await asyncio.gather(
            *(store.subscribe(*one) for one in wanted), store.change(keys[0], level="error")
        )
        granted = {one for one, is_granted in zip(wanted, done[:-1], strict=True) if is_granted}
        assert len(granted) == 5
        assert {one for one in wanted if one[0] in await store.subscribers(one[1])} == granted
        kept = [found.kept_bytes for key in keys if (found := await store.look(key)) is not None]
        assert sum(kept) <= TOTAL


class SharedStateContract(Contract):
    """State that several replicas write."""

    @fleet_scenario()
    async def test_a_replica_that_knows_the_newest_head_has_not_read_every_field(self, fleet: Fleet) -> None:
        one, two = (bench.store for bench in fleet.benches[:2])
        await fleet.benches[0].open()
        assert await two.add_state(KEY, "f", 1, op="1") == 1
        assert await two.add_state(KEY, "g", 5, op="2") == 5
        assert await one.add_state(KEY, "f", 1, op="3") == 2
        assert await one.add_state(KEY, "g", 1, op="4") == 6
