"""Commits: what is compared, what is applied, what is refused; and that a commit which was sent before counts once."""

import asyncio
from collections.abc import Mapping
from math import inf
from typing import Any, Final, cast

from limpet.stores.base import WakeUp
from limpet.stores.shared.commit import (
    HOW,
    NUMBERS,
    PLACES,
    SET,
    Commit,
    Done,
    LostWrites,
    Stale,
    pack,
    unpack,
)
from limpet.stores.shared.shelf import Shelf
from limpet.testing.store.bench import KEY, OTHER, PRINCIPAL, Bench, Contract, record, scenario
from limpet.testing.store.fleet import Fleet, fleet_scenario

FIRST: Final = {"a:1": b"one", "a:2": b"\x00two\xff"}
ME: Final = "replica.1/a"
ANY: Final[dict[str, bytes | None]] = {"a:absent": None}
"""A comparison that every session of a test passes. A commit that compares has at least one field to compare."""


def numbers(**given: float) -> bytes:
    """Return packed numbers. All that are not named are 0."""
    return pack(*(given.get(name, 0.0) for name in NUMBERS))


BEGUN: Final = numbers(version=1, mark=7, calls=2, touched=5, hint=1e6)
UNKNOWN: Final = numbers(version=1, mark=8)
"""Numbers that no session of a test has: the commit has to compare."""


def commit(
    number: int = 1,
    exact: bytes = UNKNOWN,
    writer: str = ME,
    *,
    tests: Mapping[str, tuple[float, float]] = {},
    changes: Mapping[str, float] = {},
    **parts: Any,
) -> Commit:
    """Return a commit whose writer knows that its commits before this one are applied."""
    conditions: list[float] = [len(tests)]
    for name, (low, high) in tests.items():
        conditions += PLACES[name], low, high
    for name, value in changes.items():
        conditions += PLACES[name], SET if name in tests else HOW[name], value
    acknowledged, after = parts.pop("acknowledged", number - 1), parts.pop("after", b"")
    return Commit(writer, number, acknowledged, exact, after, conditions=conditions, **parts)


class Seen:
    """A session as it is stored."""

    def __init__(self, stored: bytes, fields: Mapping[str, bytes]) -> None:
        self.bytes: bytes = stored
        self.numbers: dict[str, float] = dict(zip(NUMBERS, unpack(stored), strict=True))
        # A backend may have values of its own among the fields, under names without a colon.
        self.fields: dict[str, bytes] = {
            name: value for name, value in fields.items() if ":" in name and name[:2] != "o:"
        }
        self.writers: dict[str, int] = {
            name[2:]: int(value) for name, value in fields.items() if name[:2] == "o:"
        }


async def see(shelf: Shelf, key: str = KEY) -> Seen:
    """Return a session that must be there."""
    stored = await shelf.stored(key)
    assert stored is not None
    assert stored.fields is not None
    return Seen(stored.numbers, stored.fields)


async def begun(bench: Bench, key: str = KEY, fields: Mapping[str, bytes] = FIRST) -> Shelf:
    """Keep a session with these fields; return the store as a shelf."""
    shelf = cast("Shelf", bench.store)
    assert await shelf.create(record(key), BEGUN, fields)
    return shelf


def differing(reply: object) -> Mapping[str, bytes | None]:
    """Return the fields of a reply that must be Stale."""
    assert isinstance(reply, Stale)
    return reply.fields


class DocumentContract(Contract):
    """stored, create, commit."""

    @scenario()
    async def test_a_session_is_created_once_and_can_be_read(self, bench: Bench) -> None:
        shelf = await begun(bench)
        assert not await shelf.create(record(), UNKNOWN, {"a:9": b""}), "there is one under this key"
        seen = await see(shelf)
        assert (seen.bytes, seen.fields, seen.writers) == (BEGUN, FIRST, {})
        assert await shelf.stored(OTHER) is None
        known = await shelf.stored(KEY, BEGUN)
        assert known is not None
        assert (known.numbers, known.fields is None or known.fields.items() >= FIRST.items()) == (BEGUN, True)
        other = await shelf.stored(KEY, UNKNOWN)
        assert other is not None
        assert other.fields is not None
        assert other.fields.items() >= FIRST.items()

    @scenario()
    async def test_a_commit_by_one_that_knows_all_is_applied_without_a_comparison(self, bench: Bench) -> None:
        shelf = await begun(bench)
        await begun(bench, OTHER)
        after = numbers(version=2, mark=9, calls=1, hint=2e6)
        put = {"a:2": b"2", "a:3": b"3"}
        made = commit(
            exact=BEGUN, after=after, put=put, delete=["a:1", "a:absent"], compare={"a:1": b"wrong"}
        )
        assert await shelf.commit(KEY, made) == Done(after)
        seen = await see(shelf)
        assert (seen.bytes, seen.fields, seen.writers) == (after, put, {ME: 1})
        assert (await see(shelf, OTHER)).fields == FIRST, "another session"
        assert await shelf.commit("unknown", made) is None

    @scenario()
    async def test_one_that_does_not_know_all_and_compares_nothing_gets_all(self, bench: Bench) -> None:
        shelf = await begun(bench)
        fields = differing(await shelf.commit(KEY, commit(put={"a:1": b"x"}, after=UNKNOWN)))
        assert fields.items() >= FIRST.items()
        assert (await see(shelf)).fields == FIRST

    @scenario()
    async def test_fields_that_differ_are_returned_and_nothing_is_applied(self, bench: Bench) -> None:
        shelf = await begun(bench)
        wrong = {"a:1": b"other", "a:2": FIRST["a:2"], "a:new": b"x", "a:absent": None}
        parts: dict[str, Any] = {"put": {"a:3": b"3"}, "delete": ["a:1"], "changes": {"calls": 1}}
        reply = await shelf.commit(KEY, commit(compare=wrong, **parts))
        assert reply == Stale(BEGUN, {"a:1": b"one", "a:new": None})
        reply = await shelf.commit(KEY, commit(compare={"a:1": None}, **parts))
        assert differing(reply) == {"a:1": b"one"}, "it was read as absent"
        seen = await see(shelf)
        assert (seen.bytes, seen.fields, seen.writers) == (BEGUN, FIRST, {})

    @scenario()
    async def test_equal_fields_are_applied_with_numbers_that_are_added_or_grow(self, bench: Bench) -> None:
        shelf = await begun(bench)
        changes = {"calls": -1, "readers": 2, "touched": 4, "settled": 6, "hint": 5e5, "state": 1}
        compare = {"a:1": b"one", "a:absent": None}
        reply = await shelf.commit(
            KEY, commit(compare=compare, changes=changes, put={"a:1": b"1"}, delete=["a:2"])
        )
        seen = await see(shelf)
        assert reply == Done(seen.bytes)
        expected = {
            "version": 2,
            "mark": 7,
            "calls": 1,
            "readers": 2,
            "touched": 5,
            "settled": 6,
            "hint": 5e5,
            "state": 1,
        }
        assert {name: value for name, value in seen.numbers.items() if value} == expected
        assert (seen.fields, seen.writers) == ({"a:1": b"1"}, {ME: 1})
        await shelf.commit(KEY, commit(2, compare=ANY, changes={"hint": 9e5}))
        assert (await see(shelf)).numbers["hint"] == 5e5, "the smaller one counts"
        raised = commit(3, compare=ANY, changes={"hint": inf}, tests={"hint": (5e5, 5e5)})
        assert isinstance(await shelf.commit(KEY, raised), Done)
        assert (await see(shelf)).numbers["hint"] == inf, "but a sweep has tested it"

    @scenario()
    async def test_a_test_of_a_number_has_two_bounds_and_both_are_included(self, bench: Bench) -> None:
        shelf = await begun(bench)
        for low, high, is_applied in (
            (3, inf, False),
            (0, 1, False),
            (2, 2, True),
            (-inf, 2, True),
            (2, inf, True),
        ):
            number = (await see(shelf)).writers.get(ME, 0) + 1
            reply = await shelf.commit(
                KEY, commit(number, compare={"a:1": b"one"}, tests={"calls": (low, high)})
            )
            assert isinstance(reply, Done if is_applied else Stale), (low, high)
            assert is_applied or differing(reply) == {}

    @scenario()
    async def test_a_commit_that_was_sent_before_counts_once(self, bench: Bench) -> None:
        shelf = await begun(bench)
        made = commit(compare={"a:1": b"one"}, changes={"calls": 1}, put={"a:1": b"1"})
        after = numbers(version=2, mark=7, calls=3, touched=5, hint=1e6)
        for is_again in (False, True):
            assert await shelf.commit(KEY, made) == Done(after, is_again)
        exact = commit(2, after, after=BEGUN, put={"a:2": b"2"})
        for is_again in (False, True):
            assert await shelf.commit(KEY, exact) == Done(BEGUN, is_again)
        assert isinstance(
            await shelf.commit(KEY, commit(1, writer="other.1/b", compare=ANY, changes={"calls": 5})), Done
        )
        later = await see(shelf)
        assert await shelf.commit(KEY, exact) == Done(later.bytes, sent_before=True), (
            "the numbers are those of now"
        )
        seen = await see(shelf)
        assert (seen.numbers["calls"], seen.fields) == (7, {"a:1": b"1", "a:2": b"2"})
        assert seen.writers == {ME: 2, "other.1/b": 1}, "each writer has numbers of its own"

    @scenario()
    async def test_commits_whose_fate_is_unknown_may_be_given_up_and_lost_ones_are_noticed(
        self, bench: Bench
    ) -> None:
        shelf = await begun(bench)
        parts: dict[str, Any] = {"compare": ANY, "changes": {"calls": 1}}
        assert isinstance(await shelf.commit(KEY, commit(3, acknowledged=0, **parts)), Done), (
            "1 and 2 were given up"
        )
        assert isinstance(await shelf.commit(KEY, commit(5, acknowledged=3, **parts)), Done)
        before = await see(shelf)
        assert await shelf.commit(KEY, commit(9, acknowledged=8, **parts)) == LostWrites()
        assert await shelf.commit(KEY, commit(9, acknowledged=8)) == LostWrites(), "also without a comparison"
        assert await shelf.commit(KEY, commit(4, acknowledged=3, **parts)) == LostWrites(), (
            "it comes too late"
        )
        assert (await see(shelf)).bytes == before.bytes

    @scenario()
    async def test_of_racing_commits_that_touch_one_field_one_is_applied_and_others_all(
        self, bench: Bench
    ) -> None:
        shelf = await begun(bench)

        async def race(name: str, known: bytes | None, number: int) -> bool:
            made = commit(
                1,
                writer=f"r.{number}/x",
                compare={name: known},
                put={name: b"%d" % number},
                changes={"calls": 1},
            )
            return isinstance(await shelf.commit(KEY, made), Done)

        assert sum(await asyncio.gather(*(race("a:1", b"one", number) for number in range(20)))) == 1
        assert all(await asyncio.gather(*(race(f"a:{number}", None, number) for number in range(50, 70))))
        assert (await see(shelf)).numbers["calls"] == 2 + 1 + 20
        exact = (await see(shelf)).bytes
        after = [numbers(version=99, mark=number) for number in range(20)]
        made = [commit(1, exact, f"e.{n}/x", after=after[n], put={"a:e": b"%d" % n}) for n in range(20)]
        won = [
            isinstance(reply, Done)
            for reply in await asyncio.gather(*(shelf.commit(KEY, one) for one in made))
        ]
        assert won.count(True) == 1
        seen = await see(shelf)
        assert (seen.bytes, seen.fields["a:e"]) == (after[won.index(True)], b"%d" % won.index(True))

    @scenario()
    async def test_values_may_be_large_and_many_and_later_releases_may_add_numbers(
        self, bench: Bench
    ) -> None:
        shelf, more = cast("Shelf", bench.store), b"later"
        assert await shelf.create(record(), BEGUN + more, {})
        many = {f"i:sömé {number}\x00": b"%d" % number for number in range(6_000)}
        large = {"a:large": bytes(range(256)) * 4_096}
        assert isinstance(
            await shelf.commit(KEY, commit(1, compare=dict.fromkeys(many), put=many | large)), Done
        )
        seen = await see(shelf)
        assert seen.fields == many | large
        assert seen.bytes[-len(more) :] == more, "numbers that this release does not know are kept"
        assert isinstance(
            await shelf.commit(KEY, commit(2, compare=many | large, delete=[*many, "a:large"])), Done
        )
        assert (await see(shelf)).fields == {}


class BellContract(Contract):
    """The wake-ups of a commit, for stores that several processes share."""

    @fleet_scenario()
    async def test_a_commit_wakes_when_it_is_applied_and_not_else(self, fleet: Fleet) -> None:
        one, two, three = fleet.benches
        shelf, names = await begun(one), [bench.store.replica for bench in fleet.benches]
        stale = commit(1, compare={"a:1": b"x"}, told=[(WakeUp.STREAM, "stale", names[1])])
        assert isinstance(await shelf.commit(KEY, stale), Stale)
        told = [(WakeUp.STREAM, "s", names[1]), (WakeUp.ANSWER, "q", names[2])]
        assert isinstance(await shelf.commit(KEY, commit(1, compare=ANY, told=told)), Done)
        await fleet.heard(1, WakeUp.STREAM, KEY, "s")
        await fleet.heard(2, WakeUp.ANSWER, KEY, "q")
        await shelf.tell(KEY, [(WakeUp.PROBE, "p", names[1])])
        await fleet.heard(1, WakeUp.PROBE, KEY, "p")
        assert (WakeUp.STREAM, KEY, "stale") not in two.wakeups
        assert (WakeUp.STREAM, KEY, "s") not in three.wakeups, "it was for another replica"
        assert await two.store.find(KEY, PRINCIPAL) is None, "what is no record is no session"
