"""Newline framing at its edges; its chunking independence is a property."""

from limpet.errors import INVALID_REQUEST, LineTooLong, WireError
from limpet.wire.lines import LineBuffer


def test_a_line_of_exactly_the_limit_passes_and_one_byte_more_is_refused() -> None:
    buffer = LineBuffer(4)
    assert buffer.feed(b"1234\n") == [b"1234"]
    [refused] = buffer.feed(b"12345\n")
    assert isinstance(refused, WireError)
    assert refused.code == INVALID_REQUEST


def test_an_overlong_line_is_reported_once_and_the_next_one_is_read() -> None:
    buffer = LineBuffer(4)
    seen = [item for chunk in (b"123456", b"7890", b"abc\nok\n") for item in buffer.feed(chunk)]
    assert [type(item) for item in seen] == [LineTooLong, bytes]
    assert seen[1] == b"ok"


def test_an_endless_line_keeps_no_more_than_the_limit() -> None:
    buffer = LineBuffer(1000)
    for _ in range(1000):
        buffer.feed(b"x" * 999)
    assert len(buffer._partial) <= 1000


def test_empty_lines_are_skipped_and_windows_line_ends_removed() -> None:
    assert LineBuffer(10).feed(b"\n \r\n\r\n\t\n") == []


def test_a_long_line_is_charged_while_it_is_read_and_skipped_if_there_is_no_memory() -> None:
    asked: list[int] = []

    def reserve(size: int) -> bool:
        asked.append(size)
        return size < 40_000

    buffer = LineBuffer(100_000, keeps_edges=True, reserve=reserve)
    assert buffer.feed(b"short\n" + b"a" * 10_000) == [b"short"]
    assert asked == []
    assert buffer.feed(b"a" * 20_000) == []
    assert buffer.feed(b"\n") == [b"a" * 30_000]
    assert asked == [30_000, 30_000, 0]
    asked.clear()
    assert buffer.feed(b"b" * 30_000) == []
    assert buffer.feed(b"b" * 30_000) == []
    assert asked == [30_000, 60_000, 0], "what was read of it is not kept"
    [skipped, after] = buffer.feed(b"b\nafter\n")
    assert isinstance(skipped, LineTooLong)
    assert not skipped.has_room
    assert skipped.head.startswith(b"bb")
    assert after == b"after"
