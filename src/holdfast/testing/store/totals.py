"""The data of one principal beside streams and tasks has one total: it cannot fill the store for the others."""

from holdfast.core.lifecycle import SessionInput
from holdfast.errors import StateError
from holdfast.stores.kept import ENTRY_BYTES
from holdfast.stores.scopes import own_scope
from holdfast.testing.store.bench import PRINCIPAL, STRANGER, Bench, Contract, refused, scenario

TTL, SIZE = 100.0, 700
COST = ENTRY_BYTES + len("f") + SIZE
"""The counted bytes of a field `f` of this size."""
TOTAL = 5 * COST + ENTRY_BYTES
"""Room for five of them and for less than one more, also in a store that grants room in steps."""
VALUE = b"x" * SIZE


async def fill(bench: Bench, scopes: list[str]) -> list[str]:
    """Set one field in each scope; return which of them had room."""
    kept = []
    for scope in scopes:
        try:
            await bench.store.set_state(scope, "f", VALUE, op="fill")
        except StateError:
            assert await bench.store.get_state(scope, "f") is None
        else:
            kept.append(scope)
    return kept


async def sessions(bench: Bench, count: int, principal: str = PRINCIPAL) -> list[str]:
    """Open sessions of one principal."""
    return [(await bench.open(f"{principal or 'anyone'}{number}", principal)).key for number in range(count)]


class TotalContract(Contract):
    """principal_kept_bytes: state of sessions, handles and principals, and subscriptions."""

    @scenario(principal_kept_bytes=TOTAL)
    async def test_sessions_of_one_principal_have_one_total_of_state(self, bench: Bench) -> None:
        hostile, [modest] = await sessions(bench, 8), await sessions(bench, 1, STRANGER)
        assert await fill(bench, hostile) == hostile[:5]
        assert await fill(bench, [modest]) == [modest], "another principal has its own total"
        await refused(bench.store.add_state(hostile[6], "n" * SIZE, 1, op="add"), StateError)

    @scenario(principal_kept_bytes=TOTAL)
    async def test_handles_and_own_state_are_part_of_the_total(self, bench: Bench) -> None:
        scopes = ["handle", "another", own_scope(PRINCIPAL), "last"]
        for scope in scopes:
            assert await bench.store.open_scope(scope, PRINCIPAL, TTL)
        opened = await sessions(bench, 2)
        assert await fill(bench, [*scopes[:3], *opened, "last"]) == [*scopes[:3], *opened]
        assert await bench.store.open_scope("strangers", STRANGER, TTL)
        assert await fill(bench, ["strangers"]) == ["strangers"]

    @scenario(principal_kept_bytes=TOTAL)
    async def test_what_is_full_can_still_be_read_changed_and_made_smaller(self, bench: Bench) -> None:
        opened = await sessions(bench, 6)
        await fill(bench, opened)
        assert await bench.store.set_state(opened[0], "f", b"y" * SIZE, op="same size") > 0
        assert await bench.store.set_state(opened[0], "f", b"z", op="smaller") > 0
        found = await bench.store.get_state(opened[1], "f")
        assert found is not None
        assert found.value == VALUE
        assert await bench.store.set_state(opened[1], "f", None, op="gone") == 0
        assert await fill(bench, opened[5:]) == opened[5:], "a removed entry makes room"

    @scenario(principal_kept_bytes=TOTAL)
    async def test_a_field_that_grows_or_shrinks_is_counted_again(self, bench: Bench) -> None:
        opened = await sessions(bench, 6)
        for key in opened:
            await bench.store.set_state(key, "f", b"1", op="small")
        for key in opened[:4]:
            await bench.store.set_state(key, "f", VALUE, op="large")
        await refused(bench.store.set_state(opened[4], "f", VALUE, op="large"), StateError)
        await bench.store.set_state(opened[0], "f", b"1", op="small again")
        assert await bench.store.set_state(opened[4], "f", VALUE, op="large, too") > 0

    @scenario(principal_kept_bytes=TOTAL)
    async def test_a_closed_session_makes_room(self, bench: Bench) -> None:
        opened = await sessions(bench, 6)
        await fill(bench, opened)
        await bench.store.subscribe(opened[0], "a:b")
        assert await bench.store.close(opened[0], SessionInput.DELETED) is not None
        assert await fill(bench, opened[5:]) == opened[5:]

    @scenario(principal_kept_bytes=TOTAL)
    async def test_a_handle_that_is_not_used_makes_room_with_the_next_sweep(self, bench: Bench) -> None:
        for number in range(5):
            await bench.store.open_scope(f"handle{number}", PRINCIPAL, TTL)
        assert len(await fill(bench, [f"handle{number}" for number in range(5)])) == 5
        bench.clock.advance(TTL)
        await bench.store.sweep()
        opened = await sessions(bench, 5)
        assert await fill(bench, opened) == opened

    @scenario(principal_kept_bytes=TOTAL)
    async def test_many_small_fields_count_what_they_cost(self, bench: Bench) -> None:
        [one, two] = await sessions(bench, 2)
        most = TOTAL // ENTRY_BYTES
        kept = 0
        for number in range(2 * most):
            try:
                await bench.store.set_state((one, two)[number % 2], f"{number}", b"1", op=f"{number}")
                kept += 1
            except StateError:
                break
        assert most - 1 <= kept <= most

    @scenario(principal_kept_bytes=TOTAL)
    async def test_subscriptions_are_part_of_the_total(self, bench: Bench) -> None:
        [one, two] = await sessions(bench, 2)
        [other] = await sessions(bench, 1, STRANGER)
        uris = [f"test://{number}/{'x' * SIZE}" for number in range(6)]
        kept = [uri for uri in uris if await bench.store.subscribe(one, uri)]
        assert kept == uris[:5]
        assert not await bench.store.subscribe(two, uris[0])
        assert await bench.store.subscribe(one, uris[0]), "it has this one already"
        assert await bench.store.subscribe(other, uris[0])
        await refused(bench.store.set_state(two, "f", VALUE, op="1"), StateError)
        await bench.store.unsubscribe(one, uris[0])
        assert await bench.store.subscribe(two, uris[0]), "a removed entry makes room"
        assert sorted(await bench.store.subscribers(uris[0])) == sorted([two, other])

    @scenario(principal_kept_bytes=TOTAL)
    async def test_anonymous_clients_are_one_principal(self, bench: Bench) -> None:
        opened = await sessions(bench, 7, "")
        assert await fill(bench, opened) == opened[:5]
        mine = await sessions(bench, 1)
        assert await fill(bench, mine) == mine
