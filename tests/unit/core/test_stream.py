"""A log at its edges; the general case is a property."""

import pytest

from limpet.core.stream import Continuity, Log, Packed, Position, after_terminal, before_terminal


def filled(count: int, size: int = 1) -> Log:
    log = Log(Position(1, 100))
    for number in range(count):
        log.append(101 + number, b"x" * size)
    return log


def test_the_newest_event_survives_any_trim() -> None:
    log = filled(3, size=10)
    assert log.trim(0, 0) == 20
    assert [event.position.seq for event in log.events] == [4]
    assert log.bytes == 10


def test_a_cursor_exactly_at_the_trim_edge_is_still_proved() -> None:
    log = filled(5)
    log.trim(2, 1000)
    assert log.read(Position(4, 103), 9, 9).continuity is Continuity.OK
    assert log.read(Position(4, 999), 9, 9).continuity is Continuity.FORK


@pytest.mark.parametrize(
    "cursor", [Position(0, 100), Position(-1, 0), Position(1, 101), Position(7, 106), Position(3, 101)]
)
def test_a_position_that_never_was_is_a_fork(cursor: Position) -> None:
    page = filled(5).read(cursor, 9, 9)
    assert (page.continuity, page.events, page.missed, page.finished) == (Continuity.FORK, [], None, False)


def test_a_position_before_the_start_is_a_fork_after_a_trim_too() -> None:
    log = filled(5)
    log.trim(1, 1000)
    assert log.read(Position(1, 100), 9, 9).continuity is Continuity.GAP
    assert log.read(Position(0, 100), 9, 9).continuity is Continuity.FORK


def test_a_gap_names_the_first_and_last_missing_event() -> None:
    log = filled(5)
    log.trim(2, 1000)
    assert log.read(Position(2, 101), 9, 9).missed == (3, 4)


def test_a_finished_log_reports_its_end_only_at_its_end() -> None:
    log = filled(2)
    log.append(200, b"last", final=True)
    assert not log.read(Position(1, 100), 2, 99).finished
    assert log.read(Position(1, 100), 3, 99).finished
    assert log.read(log.top, 9, 9).finished


def complete(sizes: list[int], trimmed: int = 0) -> Log:
    """Return a complete log with messages of these sizes, without its first ones."""
    log = Log(Position(1, 100))
    for number, size in enumerate(sizes):
        log.append(2**64 - 1 - number, bytes([number % 256]) * size, final=number == len(sizes) - 1)
    log.trim(len(sizes) - trimmed, 10**9)
    return log


@pytest.mark.parametrize("trimmed", [0, 1, 3])
@pytest.mark.parametrize("sizes", [[3], [0, 5, 0, 300], [7] * 20])
def test_a_packed_log_is_read_as_before(sizes: list[int], trimmed: int) -> None:
    loose, packed = complete(sizes, trimmed), complete(sizes, trimmed)
    packed.pack()
    packed.pack()
    assert isinstance(packed.events, Packed)
    assert list(packed.events) == list(loose.events)
    tags = {
        loose.low,
        loose.top,
        Position(0, 100),
        Position(2, 5),
        *(event.position for event in loose.events),
    }
    for cursor in tags:
        for events, size in ((1, 1), (3, 8), (100, 10**6)):
            assert packed.read(cursor, events, size) == loose.read(cursor, events, size)
        assert packed.proves(cursor) is loose.proves(cursor)


def test_a_packed_log_can_be_trimmed_and_a_log_that_goes_on_is_not_packed() -> None:
    loose, packed = complete([5] * 9), complete([5] * 9)
    packed.pack()
    assert packed.trim(4, 12) == loose.trim(4, 12) == 35
    assert list(packed.events) == list(loose.events)
    assert (packed.low, packed.bytes) == (loose.low, loose.bytes)
    for log in (filled(0), filled(3)):
        log.pack()
        assert not isinstance(log.events, Packed)


def test_logs_without_events_share_nothing_after_the_first_one() -> None:
    one, other = filled(0), filled(0)
    one.append(1, b"x")
    assert (len(one.events), len(other.events)) == (1, 0)


def test_a_stream_with_its_last_message_alone_begins_and_ends_at_known_positions() -> None:
    log = Log(before_terminal(9))
    assert log.low.tag != 9
    assert log.append(9, b"last", final=True).position == after_terminal(9)


def test_a_log_that_goes_on_after_a_gap_has_no_bytes() -> None:
    log = filled(5)
    log.skip_to(Position(9, 1))
    assert (log.bytes, len(log.events), log.top) == (0, 0, Position(9, 1))
