"""Other people's event streams: cut anywhere, ended by any line end, bounded."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.errors import WireError
from limpet.wire.sse import EventParser, ReceivedEvent, comment, event, priming, retry


def parse(*chunks: bytes, limit: int = 1_000, event_limit: int | None = None) -> list[ReceivedEvent]:
    parser = EventParser(limit, event_limit)
    return [found for chunk in chunks for found in parser.feed(chunk)]


def test_written_events_are_read_back() -> None:
    text = comment("hello") + priming("1", 500) + event(b'{"a":1}', "2") + retry(7) + event(b"{}")
    assert parse(text) == [
        ReceivedEvent(b"", "1", 500),
        ReceivedEvent(b'{"a":1}', "2", None),
        ReceivedEvent(b"", None, 7),
        ReceivedEvent(b"{}", None, None),
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"data: a\ndata: b\n\n", [ReceivedEvent(b"a\nb", None, None)]),
        (b"data:a\n\ndata:  b\n\n", [ReceivedEvent(b"a", None, None), ReceivedEvent(b" b", None, None)]),
        (b"\xef\xbb\xbfdata: a\n\n", [ReceivedEvent(b"a", None, None)]),
        (b"data\n\n", [ReceivedEvent(b"", None, None)]),
        (b"id\ndata: a\n\n", [ReceivedEvent(b"a", "", None)]),
        (b"id: a\0b\ndata: a\n\n", [ReceivedEvent(b"a", None, None)]),
        (b"retry: 1x\nretry: -1\ndata: a\n\n", [ReceivedEvent(b"a", None, None)]),
        (b": comment\n\n: another\n\nevent: x\n\nnonsense\n\n", []),
        (b"data: unfinished\n", []),
        (b"id: \xff\ndata: a\n\n", [ReceivedEvent(b"a", "\ufffd", None)]),
    ],
)
def test_the_standards_corners(text: bytes, found: list[ReceivedEvent]) -> None:
    assert parse(text) == found


LINES = st.sampled_from([b"data: a", b"data: bb", b"id: 7", b"retry: 5", b": c", b"", b"", b"other"])
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(st.lists(st.tuples(LINES, ENDS), max_size=12), st.lists(st.integers(0, 60), max_size=8))
def test_a_cut_at_any_byte_does_not_change_the_events(
    lines: list[tuple[bytes, bytes]], cuts: list[int]
) -> None:
    text = b"".join(line + end for line, end in lines)
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    chunks = [text[start:stop] for start, stop in itertools.pairwise(edges)]
    assert parse(*chunks) == parse(*(text[i : i + 1] for i in range(len(text)))) == parse(text)


def test_a_line_over_the_limit_ends_the_stream_before_it_is_whole() -> None:
    parser = EventParser(100)
    assert parser.feed(b"data: " + b"x" * 90) == []
    with pytest.raises(WireError, match="100 bytes"):
        parser.feed(b"x" * 10)


def test_an_event_over_the_limit_ends_the_stream() -> None:
    with pytest.raises(WireError, match="50 bytes"):
        parse(b"data: aaaaaaaaaa\n" * 10, event_limit=50)
