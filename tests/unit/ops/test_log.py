"""The log lines operators read."""

import asyncio
import logging

import pytest

from limpet.ops.figures import Figures
from limpet.ops.log import _LIMITED_BEFORE, LEVELS, LINES, REPEAT_SECONDS, REPEATING, LogObserver
from limpet.ops.log_lines import HumanFormatter, JsonFormatter
from limpet.ops.operated import Operated
from limpet.ops.ring import Ring
from limpet.testing import NotingObserver, VirtualClock
from tests.support import LoopClock, virtual_test


def test_an_event_is_one_line_with_its_facts(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "limpet"):
        LogObserver().note("session.opened", session="abc", version="2025-11-25")
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (
        logging.INFO,
        "session.opened session=abc version=2025-11-25",
    )


def test_each_line_has_the_name_of_its_server_if_an_operator_gave_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ring = Ring()
    with caplog.at_level(logging.DEBUG, "limpet"):
        observer = LogObserver(ring=ring, server="files")
        observer.note("call.ended", tool="read")
        observer.note("hosted.run_failed", server="its own name")
    assert [record.getMessage() for record in caplog.records] == [
        "call.ended tool=read server=files",
        "hosted.run_failed server=files",
    ]
    assert all(event.facts["server"] == "files" for event in ring.after())


def test_text_of_a_client_cannot_forge_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "limpet"):
        LogObserver().note("anything", method="a\r\nsession.opened\x1b[0m\u2028x", said="two words")
    assert caplog.records[0].getMessage() == (
        'anything method=a\\r\\nsession.opened\\x1b[0m\\u2028x said="two words"'
    )


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain", "plain"),
        ("", '""'),
        ("two words", '"two words"'),
        ('x" session=abc y="', '"x\\" session=abc y=\\""'),
        ("a=b", '"a=b"'),
        ("back\\slash", '"back\\\\slash"'),
        ('end\\" level=info', '"end\\\\\\" level=info"'),
        ("new\nline", "new\\nline"),
        (ValueError('" correlation=forged'), '"ValueError: \\" correlation=forged"'),
    ],
)
def test_no_value_can_look_like_two_facts(
    caplog: pytest.LogCaptureFixture, value: object, written: str
) -> None:
    with caplog.at_level(logging.DEBUG, "limpet"):
        LogObserver().note("anything", said=value, last=1)
    assert caplog.records[0].getMessage() == f"anything said={written} last=1"


def test_events_of_security_have_a_logger_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "limpet.audit"):
        LogObserver().note("audit.refused", reason="token", address="10.0.0.1")
    [told] = caplog.records
    assert (told.name, told.levelno) == ("limpet.audit", logging.WARNING)
    assert told.getMessage() == "audit.refused reason=token address=10.0.0.1"


def test_an_authors_failure_has_its_traceback_and_others_do_not(caplog: pytest.LogCaptureFixture) -> None:
    observer = LogObserver()
    failure = ValueError("why")
    with caplog.at_level(logging.DEBUG, "limpet"):
        observer.note("handler.failed", correlation="c1", error=failure)
        observer.note("exchange.fenced", error=failure)
    failed, fenced = caplog.records
    assert failed.exc_info is not None
    assert failed.exc_info[1] is failure
    assert 'correlation=c1 error="ValueError: why"' in failed.getMessage()
    assert not fenced.exc_info


def test_a_disabled_log_level_formats_no_text(caplog: pytest.LogCaptureFixture) -> None:
    class Loud:
        def __str__(self) -> str:
            raise AssertionError("formatted without a reader")

    with caplog.at_level(logging.WARNING, "limpet"):
        LogObserver().note("session.opened", session=Loud())
    assert caplog.records == []


def test_a_server_behind_cannot_fill_the_log_with_messages_that_are_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    observer = LogObserver(VirtualClock())
    for _ in range(1_000):
        observer.note("upstream.dropped", method="notifications/message")
    assert len(caplog.records) == 1


def test_an_event_that_repeats_is_one_line_in_ten_seconds_with_how_many_were_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = VirtualClock()
    observer = LogObserver(clock)
    with caplog.at_level(logging.DEBUG, "limpet"):
        for _ in range(12):
            for loop in ("poll", "sweep"):
                observer.note("loop.failed", loop=loop)
            clock.advance(1)
    assert [record.getMessage() for record in caplog.records] == [
        "loop.failed loop=poll",
        "loop.failed loop=sweep",
        "loop.failed loop=poll left_out=9",
        "loop.failed loop=sweep left_out=9",
    ]


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("event", [*sorted(LEVELS.keys() - _LIMITED_BEFORE - REPEATING), "of.debugging"])
def test_a_flood_of_one_event_is_limited_and_hides_no_other(
    caplog: pytest.LogCaptureFixture, event: str
) -> None:
    """One POST could write 29,744 lines: warnings and errors had no limit."""
    if event.startswith("audit."):
        # `engine/audit.py` limits them.
        return
    clock = VirtualClock()
    observer = LogObserver(clock)
    with caplog.at_level(logging.DEBUG, "limpet"):
        for _ in range(LINES + 50):
            observer.note(event)
        observer.note("another.event")
        assert messages(caplog) == [event] * LINES + ["another.event"]
        clock.advance(REPEAT_SECONDS)
        observer.note(event)
    assert messages(caplog)[-1] == f"{event} left_out=50"


@pytest.mark.parametrize("event", ["handler.failed", "session.opened"])
def test_lines_that_were_left_out_are_counted_in_a_line_also_if_no_further_one_comes(
    caplog: pytest.LogCaptureFixture, event: str
) -> None:
    @virtual_test
    async def run() -> None:
        observer = LogObserver(LoopClock())
        for _ in range(LINES + 50):
            observer.note(event)
        await asyncio.sleep(3 * REPEAT_SECONDS)
        for _ in range(LINES):
            observer.note(event)
        await asyncio.sleep(3 * REPEAT_SECONDS)

    with caplog.at_level(logging.DEBUG, "limpet"):
        run()
    assert messages(caplog) == [event] * LINES + [f"log.left_out of={event} count=50"] + [event] * LINES
    assert caplog.records[LINES].levelno == LEVELS[event]


def test_an_observer_of_the_author_is_in_place_of_the_log_and_the_ring_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    given, ring, figures = NotingObserver(), Ring(), Figures()
    observer = Operated(ring=ring, figures=figures).observer(given)
    observer.note("session.opened", session="1f0c22ab")
    assert given.named("session.opened") == [{"session": "1f0c22ab"}]
    assert [happened.event for happened in ring.after()] == ["session.opened"]
    assert figures.events["session.opened"] == 1
    assert caplog.records == []
    # Without an admin surface it is the author's own object.
    assert Operated().observer(given) is given


@pytest.mark.parametrize("text", ["x" * 3_000_000, "\0" * 700_000, "a\n" * 700_000])
@pytest.mark.parametrize("formatter", [HumanFormatter(), JsonFormatter()])
def test_an_error_with_a_long_text_of_a_client_has_a_short_line(
    text: str, formatter: logging.Formatter, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ValueError(f"begin {text} end")

    with pytest.raises(ValueError, match="begin") as failed:
        fail()
    LogObserver().note("handler.failed", error=failed.value, method="tools/call")
    line = formatter.format(caplog.records[-1])
    assert len(line) < 200_000
    assert line.count("\n") < 210
    assert "begin" in line
    assert "are left out" in line
    assert "test_log.py" in line
