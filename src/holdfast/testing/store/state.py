"""State: versions, compare-and-set, exact counters, operations that may be sent again, a limit."""

import asyncio

from holdfast.core.lifecycle import SessionInput
from holdfast.errors import SessionGone, StateError
from holdfast.stores.base import Cell
from holdfast.testing.store.bench import KEY, OTHER, Bench, Contract, refused, scenario


class StateContract(Contract):
    """get_state, set_state, add_state (law 11)."""

    @scenario()
    async def test_a_field_is_absent_then_set_then_gone(self, bench: Bench) -> None:
        await bench.open()
        assert await bench.store.get_state(KEY, "f") is None
        version = await bench.store.set_state(KEY, "f", b"one", op="1")
        assert version > 0
        assert await bench.store.get_state(KEY, "f") == Cell(b"one", version)
        later = await bench.store.set_state(KEY, "f", b"two", op="2")
        assert later > version
        assert await bench.store.set_state(KEY, "f", None, op="3") == 0
        assert await bench.store.get_state(KEY, "f") is None

    @scenario()
    async def test_state_belongs_to_its_session(self, bench: Bench) -> None:
        await bench.open()
        await bench.open(OTHER)
        await bench.store.set_state(KEY, "f", b"one", op="1")
        assert await bench.store.get_state(OTHER, "f") is None
        await bench.store.set_state(OTHER, "f", b"two", op="1")
        cell = await bench.store.get_state(OTHER, "f")
        assert cell is not None
        assert cell.value == b"two", "the same operation name in another session is another operation"

    @scenario()
    async def test_a_version_that_differs_changes_nothing(self, bench: Bench) -> None:
        await bench.open()
        assert await bench.store.set_state(KEY, "f", b"x", op="0", version=7) == -1
        first = await bench.store.set_state(KEY, "f", b"one", op="1", version=0)
        assert first > 0
        assert await bench.store.set_state(KEY, "f", b"two", op="2", version=0) == -1
        assert await bench.store.set_state(KEY, "f", b"two", op="3", version=first + 1) == -1
        assert await bench.store.get_state(KEY, "f") == Cell(b"one", first)
        assert await bench.store.set_state(KEY, "f", b"two", op="4", version=first) > first

    @scenario()
    async def test_a_field_that_came_back_has_a_version_it_never_had(self, bench: Bench) -> None:
        await bench.open()
        first = await bench.store.set_state(KEY, "f", b"one", op="1")
        await bench.store.set_state(KEY, "f", None, op="2")
        again = await bench.store.set_state(KEY, "f", b"one", op="3")
        assert again != first
        assert await bench.store.set_state(KEY, "f", b"two", op="4", version=first) == -1

    @scenario()
    async def test_of_racing_compare_and_sets_one_wins(self, bench: Bench) -> None:
        await bench.open()
        writes = [bench.store.set_state(KEY, "f", b"%d" % n, op=f"o{n}", version=0) for n in range(30)]
        assert (await asyncio.gather(*writes)).count(-1) == 29

    @scenario()
    async def test_an_operation_sent_again_returns_its_first_result(self, bench: Bench) -> None:
        await bench.open()
        first = await bench.store.set_state(KEY, "f", b"one", op="1")
        failed = await bench.store.set_state(KEY, "f", b"x", op="2", version=0)
        await bench.store.set_state(KEY, "f", None, op="3")
        assert await bench.store.set_state(KEY, "f", b"one", op="1") == first
        assert await bench.store.set_state(KEY, "f", b"x", op="2", version=0) == failed == -1
        assert await bench.store.get_state(KEY, "f") is None
        assert await bench.store.add_state(KEY, "n", 5, op="4") == 5
        assert await bench.store.add_state(KEY, "n", 5, op="4") == 5

    @scenario()
    async def test_a_counter_is_exact_under_racing_and_repeated_additions(self, bench: Bench) -> None:
        await bench.open()
        adds = [bench.store.add_state(KEY, "n", n % 7 - 2, op=f"o{n}") for n in range(100) for _ in range(2)]
        await asyncio.gather(*adds)
        assert await bench.store.add_state(KEY, "n", 0, op="end") == sum(n % 7 - 2 for n in range(100))
        cell = await bench.store.get_state(KEY, "n")
        assert cell is not None
        assert int(cell.value) == sum(n % 7 - 2 for n in range(100))

    @scenario()
    async def test_only_an_integer_can_be_added_to(self, bench: Bench) -> None:
        await bench.open()
        for number, value in enumerate((b'"text"', b"1.5", b"true", b"null", b"not json")):
            await bench.store.set_state(KEY, "f", value, op=f"set{number}")
            await refused(bench.store.add_state(KEY, "f", 1, op=f"add{number}"), StateError)
            cell = await bench.store.get_state(KEY, "f")
            assert cell is not None
            assert cell.value == value

    @scenario(state_bytes=100)
    async def test_state_has_a_limit_and_a_refusal_changes_nothing(self, bench: Bench) -> None:
        await bench.open()
        await bench.store.set_state(KEY, "f", b"x" * 60, op="1")
        await refused(bench.store.set_state(KEY, "g", b"x" * 60, op="2"), StateError)
        assert await bench.store.get_state(KEY, "g") is None
        await bench.store.set_state(KEY, "f", b"x" * 30, op="3")
        assert await bench.store.set_state(KEY, "g", b"x" * 60, op="4") > 0
        await bench.store.set_state(KEY, "g", None, op="5")
        assert await bench.store.set_state(KEY, "h", b"x" * 60, op="6") > 0

    @scenario(state_bytes=100)
    async def test_many_small_fields_are_within_the_limit_too(self, bench: Bench) -> None:
        await bench.open()

        async def fill() -> None:
            for number in range(101):
                await bench.store.set_state(KEY, f"field{number}", b"", op=f"o{number}")

        await refused(fill(), StateError)

    @scenario()
    async def test_the_state_of_a_closed_session_is_gone(self, bench: Bench) -> None:
        await bench.open()
        await bench.store.set_state(KEY, "f", b"one", op="1")
        await bench.store.close(KEY, SessionInput.DELETED)
        await refused(bench.store.set_state(KEY, "f", b"two", op="2"), SessionGone)
        await refused(bench.store.add_state(KEY, "n", 1, op="3"), SessionGone)
        await bench.open()
        assert await bench.store.get_state(KEY, "f") is None
