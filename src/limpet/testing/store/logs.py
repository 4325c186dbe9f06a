"""Logs: events are added, cut, dropped and read in pieces.

And the end of a session leaves some of them for a moment.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from limpet.core.lifecycle import SessionInput
from limpet.core.stream import Event, Position
from limpet.stores.base import LINGER_SECONDS, WakeUp
from limpet.stores.shared.commit import Done
from limpet.stores.shared.shelf import Erasure, Piece, Shelf
from limpet.testing.store.bench import KEY, Bench, Contract, record, scenario
from limpet.testing.store.documents import ANY, BEGUN, FIRST, UNKNOWN, begun, commit, see
from limpet.testing.store.fleet import Fleet, fleet_scenario

TAG = 2**64 - 10
"""Tags have 64 bits."""


def events(stream: str, *numbers: int, size: int = 10) -> dict[str, list[Event]]:
    """Return events with these numbers."""
    return {stream: [Event(Position(one, TAG + one), b"%d" % one * size) for one in numbers]}


def numbers_of(piece: Piece | None) -> list[int]:
    """Return the numbers of the events of a piece, which must be what was added."""
    assert piece is not None
    for event in piece.events:
        number = event.position.seq
        assert event == Event(Position(number, TAG + number), b"%d" % number * 10)
    return [event.position.seq for event in piece.events]


async def streaming(bench: Bench) -> Shelf:
    """Keep a session with two streams of five events."""
    shelf = await begun(bench)
    made = commit(1, compare=ANY, put={"l:s": b"head of s", "l:t": b"head of t"}, life=1e4)
    made.events = events("s", 1, 2, 3, 4, 5) | events("t", 1, 2)
    assert isinstance(await shelf.commit(KEY, made), Done)
    return shelf


async def erasure(
    shelf: Shelf, left: dict[str, bytes], added: Mapping[str, Sequence[Event]] | None = None, **parts: Any
) -> Erasure:
    """Return the end of a session that is as it is stored."""
    given: dict[str, Any] = {
        "exact": (await see(shelf)).bytes,
        "reason": SessionInput.DELETED,
        "record": record(),
        "event": "closing-1",
        "size": 100,
        "told": [],
        "writers": [],
        "subscriptions": [],
    }
    return Erasure(left=left, events=added or {}, **{**given, **parts})


class LogContract(Contract):
    """Events of commits, piece, sizes, remove."""

    @scenario()
    async def test_a_piece_begins_after_a_number_and_proves_it_by_its_tag(self, bench: Bench) -> None:
        shelf = await streaming(bench)
        for number in range(6):
            piece = await shelf.piece(KEY, "s", number, 100, 1_000)
            assert numbers_of(piece) == [*range(number + 1, 6)]
            assert piece is not None
            assert (piece.head, piece.tag) == (b"head of s", TAG + number if number else None)
        beyond = await shelf.piece(KEY, "s", 9, 100, 1_000)
        assert beyond == Piece(b"head of s", None, [])
        assert numbers_of(await shelf.piece(KEY, "s", -1, 100, 1_000)) == [1, 2, 3, 4, 5]
        assert await shelf.sizes(KEY, "s") == [(number, TAG + number, 10) for number in range(1, 6)]
        assert await shelf.piece(KEY, "unknown", 0, 100, 1_000) is None
        assert await shelf.piece("unknown", "s", 0, 100, 1_000) is None
        assert (await shelf.sizes(KEY, "unknown"), await shelf.sizes("unknown", "s")) == ([], [])

    @scenario()
    async def test_a_piece_has_bounds_and_at_least_one_event(self, bench: Bench) -> None:
        shelf = await streaming(bench)
        for most, size, expected in (
            (2, 1_000, [2, 3]),
            (9, 25, [2, 3]),
            (9, 30, [2, 3, 4]),
            (9, 1, [2]),
            (1, 99, [2]),
        ):
            assert numbers_of(await shelf.piece(KEY, "s", 1, most, size)) == expected

    @scenario()
    async def test_events_are_added_cut_and_dropped_in_one_step(self, bench: Bench) -> None:
        shelf = await streaming(bench)
        # A cut is exact, it may reach to the events of this commit, and a drop comes before them.
        made = commit(
            2, compare=ANY, cut={"s": 3}, events=events("s", 6) | events("t", 1, 2, 3), drop=["t"], life=1e4
        )
        for _ in range(2):
            assert isinstance(await shelf.commit(KEY, made), Done)
            assert numbers_of(await shelf.piece(KEY, "s", 0, 100, 1_000)) == [4, 5, 6]
        for number, tag in ((3, None), (4, TAG + 4)):
            piece = await shelf.piece(KEY, "s", number, 100, 1_000)
            assert piece is not None
            assert piece.tag == tag
        assert numbers_of(await shelf.piece(KEY, "t", 0, 100, 1_000)) == [1, 2, 3]
        stale = commit(3, compare={"a:1": b"x"}, cut={"s": 5}, events=events("s", 7), drop=["t"], life=1e4)
        await shelf.commit(KEY, stale)
        made = commit(
            3, compare=ANY, events=events("s", 7, 8), cut={"s": 7}, delete=["l:t"], drop=["t"], life=1e4
        )
        assert isinstance(await shelf.commit(KEY, made), Done)
        assert numbers_of(await shelf.piece(KEY, "s", 0, 100, 1_000)) == [8]
        assert await shelf.sizes(KEY, "s") == [(8, TAG + 8, 10)]
        assert await shelf.piece(KEY, "t", 0, 100, 1_000) is None, "it has no head any more"
        assert await shelf.sizes(KEY, "t") == [], "nor events"
        again = commit(4, compare=ANY, put={"l:t": b"new"}, events=events("t", 1), life=1e4)
        assert isinstance(await shelf.commit(KEY, again), Done)
        assert numbers_of(await shelf.piece(KEY, "t", 0, 100, 1_000)) == [1]

    @scenario()
    async def test_a_session_ends_if_it_is_the_known_one_and_leaves_what_is_named(self, bench: Bench) -> None:
        shelf = await streaming(bench)
        left = {"s": b"last head"}
        assert not await shelf.remove(KEY, await erasure(shelf, left, exact=UNKNOWN))
        assert (await see(shelf)).fields.items() >= FIRST.items(), "nothing has changed"
        ends = await erasure(shelf, left, events("s", 6))
        for _ in range(2):
            assert await shelf.remove(KEY, ends), "sent again it was done before"
        assert not await shelf.remove(KEY, another(ends)), "another closing has ended it"
        assert await shelf.stored(KEY) is None
        assert await shelf.commit(KEY, commit(2, compare=ANY)) is None
        piece = await shelf.piece(KEY, "s", 4, 100, 1_000)
        assert (numbers_of(piece), piece and piece.head) == ([5, 6], b"last head")
        assert await shelf.piece(KEY, "t", 0, 100, 1_000) is None
        bench.clock.advance(LINGER_SECONDS + 1)
        assert await shelf.piece(KEY, "s", 4, 100, 1_000) is None
        assert await shelf.create(record(), BEGUN, {})
        seen = await see(shelf)
        assert (seen.fields.keys() & {*FIRST, "l:s", "l:t"}, seen.writers) == (set(), {}), (
            "it is another session"
        )


def another(ends: Erasure) -> Erasure:
    """Return another closing of the same session."""
    return Erasure(
        **{name: getattr(ends, name) for name in ends.__struct_fields__ if name != "event"}, event="closing-2"
    )


class ClosedBellContract(Contract):
    """The wake-ups of a closing, for stores that several processes share."""

    @fleet_scenario()
    async def test_a_closing_wakes_the_home_and_all_that_have_written(self, fleet: Fleet) -> None:
        shelf, names = await streaming(fleet.benches[0]), [bench.store.replica for bench in fleet.benches]
        home = record(home=names[2])
        writers, told = [f"{names[1]}.1/a", f"{names[0]}.1/a"], [(WakeUp.STREAM, "s", names[1])]
        assert await shelf.remove(KEY, await erasure(shelf, {}, record=home, writers=writers, told=told))
        await fleet.heard(1, WakeUp.STREAM, KEY, "s")
        for number in (1, 2):
            await fleet.heard(number, WakeUp.CLOSED, KEY, "")
