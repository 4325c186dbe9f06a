"""Newline framing at its edges; its chunking independence is a property."""

import pytest

from holdfast.errors import INVALID_REQUEST, LineTooLong, WireError
from holdfast.wire.lines import LineBuffer, answered_by


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


@pytest.mark.parametrize("size", [1, 7, 5_000])
@pytest.mark.parametrize(
    ("start", "end", "answered"),
    [
        ('{"jsonrpc":"2.0","id":7,"result":{"t":"', '"}}', 7),
        ('{ "id" : 7 , "error" : {"message":"', '"}, "jsonrpc": "2.0"}', 7),
        ('{"result":{"t":"', '"},"jsonrpc":"2.0","id":7}', 7),
        ('{"jsonrpc":"2.0","result":{"t":"', '"},"id":7}\r', 7),
        ('{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"t":"', '"}}', None),
        ('{"method":"sampling/createMessage","params":{"t":"', '"},"jsonrpc":"2.0","id":7}', None),
        ('{"jsonrpc":"2.0","method":"notifications/message","params":{"t":"', '","id":7}}', None),
        ('{"jsonrpc":"2.0","result":{"t":"', '","id":7}}', None),
        ('{"jsonrpc":"2.0","id":"7","result":{"t":"', '"}}', None),
        ("no json ", "at all", None),
    ],
)
def test_an_overlong_line_names_the_request_that_it_answers(
    start: str, end: str, answered: int | None, size: int
) -> None:
    buffer = LineBuffer(600, keeps_edges=True)
    text = f"{start}{'x' * 2_000}{end}\nok\n".encode()
    chunks = [text[at : at + size] for at in range(0, len(text), size)]
    skipped, following = [item for chunk in chunks for item in buffer.feed(chunk)]
    assert isinstance(skipped, LineTooLong)
    assert answered_by(skipped.head, skipped.tail) == answered
    assert following == b"ok"
