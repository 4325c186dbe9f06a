"""The bytes of an event stream."""

import pytest

from limpet.wire import sse


def fields(event: bytes) -> list[tuple[str, str]]:
    """Read one event as a browser does."""
    assert event.endswith(b"\n\n")
    found = []
    for line in event.decode()[:-2].split("\n"):
        name, _, value = line.partition(":")
        found.append((name, value.removeprefix(" ")))
    return found


def test_an_event_is_one_message_with_its_id() -> None:
    event = sse.event(b'{"a":1}', "stream.1.ff")
    assert fields(event) == [("event", "message"), ("id", "stream.1.ff"), ("data", '{"a":1}')]


def test_an_event_without_an_id_leaves_the_clients_position_alone() -> None:
    assert fields(sse.event(b"{}")) == [("event", "message"), ("data", "{}")]


def test_the_priming_event_has_a_position_a_delay_and_no_message() -> None:
    assert fields(sse.priming("s.1.0", 500)) == [("id", "s.1.0"), ("retry", "500"), ("data", "")]


@pytest.mark.parametrize("line", [sse.KEEP_ALIVE, sse.comment("gap 1-5"), sse.comment("é")])
def test_a_comment_is_no_field(line: bytes) -> None:
    assert all(name == "" for name, _ in fields(line))


def test_a_retry_hint_is_in_whole_milliseconds() -> None:
    assert fields(sse.retry(1500)) == [("retry", "1500")]
