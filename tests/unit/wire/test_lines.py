"""Newline framing at its edges; its chunking independence is a property."""

from holdfast.errors import INVALID_REQUEST, LineTooLong, WireError
from holdfast.wire.lines import LineBuffer


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
