"""State that belongs to a principal instead of a session."""

from holdfast.errors import SessionGone, StateError
from holdfast.stores.base import Cell
from holdfast.stores.scopes import own_scope
from holdfast.testing.store.bench import KEY, PRINCIPAL, STRANGER, Bench, Contract, refused, scenario

SCOPE, OWN, TTL = "scope", own_scope(PRINCIPAL), 100.0


class ScopeContract(Contract):
    """Scopes: whose they are, how long they last, how many there may be."""

    @scenario()
    async def test_a_scope_keeps_state_as_a_session_does(self, bench: Bench) -> None:
        assert await bench.store.open_scope(SCOPE, PRINCIPAL, TTL)
        first = await bench.store.set_state(SCOPE, "f", b"one", op="1", version=0)
        assert await bench.store.get_state(SCOPE, "f") == Cell(b"one", first)
        assert await bench.store.set_state(SCOPE, "f", b"two", op="2", version=0) == -1
        assert await bench.store.add_state(SCOPE, "n", 2, op="3") == 2
        assert await bench.store.add_state(SCOPE, "n", 2, op="3") == 2
        await bench.open()
        assert await bench.store.get_state(KEY, "f") is None

    @scenario()
    async def test_a_scope_opened_twice_is_the_same_and_belongs_to_one_principal(self, bench: Bench) -> None:
        assert await bench.store.open_scope(SCOPE, PRINCIPAL, TTL)
        await bench.store.set_state(SCOPE, "f", b"one", op="1")
        assert await bench.store.open_scope(SCOPE, PRINCIPAL, TTL)
        assert not await bench.store.open_scope(SCOPE, STRANGER, TTL)
        assert await bench.store.get_state(SCOPE, "f") is not None

    @scenario()
    async def test_unknown_and_foreign_scopes_are_not_found(self, bench: Bench) -> None:
        await bench.store.open_scope(SCOPE, PRINCIPAL, TTL)
        assert await bench.store.find_scope(SCOPE, PRINCIPAL)
        assert not await bench.store.find_scope(SCOPE, STRANGER)
        assert not await bench.store.find_scope("none", PRINCIPAL)
        await bench.open()
        assert not await bench.store.find_scope(KEY, PRINCIPAL), "a session is not a scope"

    @scenario()
    async def test_a_scope_is_forgotten_once_unused_for_its_time(self, bench: Bench) -> None:
        await bench.store.open_scope(SCOPE, PRINCIPAL, TTL)
        await bench.store.set_state(SCOPE, "f", b"one", op="1")
        for _ in range(3):
            bench.clock.advance(TTL - 1)
            await bench.store.sweep()
            assert await bench.store.find_scope(SCOPE, PRINCIPAL)
        bench.clock.advance(TTL)
        assert not await bench.store.find_scope(SCOPE, PRINCIPAL)
        await refused(bench.store.set_state(SCOPE, "f", b"two", op="2"), SessionGone)
        await bench.store.open_scope(SCOPE, STRANGER, TTL)
        assert await bench.store.get_state(SCOPE, "f") is None

    @scenario()
    async def test_a_scope_that_has_ended_can_be_begun_again_and_is_empty(self, bench: Bench) -> None:
        await bench.store.open_scope(SCOPE, PRINCIPAL, TTL)
        await bench.store.set_state(SCOPE, "f", b"one", op="1")
        bench.clock.advance(TTL)
        assert await bench.store.open_scope(SCOPE, PRINCIPAL, TTL)
        assert await bench.store.get_state(SCOPE, "f") is None

    @scenario()
    async def test_beginning_a_scope_again_starts_its_time_again(self, bench: Bench) -> None:
        await bench.store.open_scope(OWN, PRINCIPAL, TTL)
        await bench.store.set_state(OWN, "f", b"one", op="1")
        for _ in range(3):
            bench.clock.advance(TTL - 1)
            await bench.store.sweep()
            assert await bench.store.open_scope(OWN, PRINCIPAL, TTL)
        assert await bench.store.get_state(OWN, "f") is not None

    @scenario(handles=1, handles_per_principal=1, principal_states=2)
    async def test_principals_own_state_and_handles_take_no_room_from_each_other(self, bench: Bench) -> None:
        assert await bench.store.open_scope(SCOPE, PRINCIPAL, TTL)
        assert await bench.store.open_scope(OWN, PRINCIPAL, TTL)
        assert not await bench.store.open_scope("other", PRINCIPAL, TTL)
        assert await bench.store.open_scope(own_scope(STRANGER), STRANGER, TTL)
        assert not await bench.store.open_scope(own_scope(""), "", TTL), "two principals have state already"
        assert await bench.store.open_scope(OWN, PRINCIPAL, TTL), "the first one still has its own"
        bench.clock.advance(TTL)
        assert await bench.store.open_scope(own_scope(""), "", TTL), "an expired scope makes room"
        assert await bench.store.open_scope("other", PRINCIPAL, TTL)

    @scenario(state_bytes=100, principal_state_bytes=300)
    async def test_a_principals_own_state_has_a_limit_of_its_own(self, bench: Bench) -> None:
        await bench.store.open_scope(OWN, PRINCIPAL, TTL)
        await bench.store.set_state(OWN, "f", b"x" * 200, op="1")
        await refused(bench.store.set_state(OWN, "g", b"x" * 200, op="2"), StateError)
        await refused(bench.store.add_state(OWN, "n" * 200, 1, op="3"), StateError)
        assert await bench.store.get_state(OWN, "g") is None

    @scenario(state_bytes=100)
    async def test_a_scopes_state_has_a_limit(self, bench: Bench) -> None:
        await bench.store.open_scope(SCOPE, PRINCIPAL, TTL)
        await refused(bench.store.set_state(SCOPE, "f", b"x" * 200, op="1"), StateError)
        assert await bench.store.get_state(SCOPE, "f") is None

    @scenario(handles=3, handles_per_principal=2)
    async def test_scopes_are_limited_per_principal_and_in_all(self, bench: Bench) -> None:
        opened = [await bench.store.open_scope(f"{SCOPE}{n}", PRINCIPAL, TTL) for n in range(3)]
        assert opened == [True, True, False]
        assert await bench.store.open_scope("other", STRANGER, TTL)
        assert not await bench.store.open_scope("another", STRANGER, TTL)
        bench.clock.advance(TTL)
        assert await bench.store.open_scope("another", STRANGER, TTL), "an expired scope makes room"

    @scenario(handles=3, handles_per_principal=2)
    async def test_anonymous_clients_have_only_the_limit_of_all(self, bench: Bench) -> None:
        opened = [await bench.store.open_scope(f"{SCOPE}{n}", "", TTL) for n in range(4)]
        assert opened == [True, True, True, False]
