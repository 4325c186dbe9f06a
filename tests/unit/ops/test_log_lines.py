"""Log records as lines: for a person on a terminal, for a program elsewhere; and an application's own handlers."""

import io
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from limpet.ops.log import LogObserver
from limpet.ops.log_lines import HumanFormatter, JsonFormatter, is_coloured, log_to_stderr


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


Begin = Callable[..., None]


@pytest.fixture
def begin() -> Begin:
    """`log_to_stderr` in a process whose root logger has no handlers yet."""

    def begin(*args: Any, **options: Any) -> None:
        logging.getLogger().handlers.clear()
        log_to_stderr(*args, **options)

    return begin


def text(out: io.StringIO) -> str:
    """Wait for the thread that writes, and return the text."""
    for handler in logging.getLogger().handlers:
        handler.flush()
    return out.getvalue()


def lines(out: io.StringIO) -> list[str]:
    return text(out).splitlines()


def test_a_pipe_gets_one_json_object_per_event(begin: Begin) -> None:
    out = io.StringIO()
    begin(stream=out)
    LogObserver().note("session.opened", session="1f0c", client="two words", count=3)
    line = json.loads(text(out))
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "limpet",
        "event": "session.opened",
        "session": "1f0c",
        "client": "two words",
        "count": 3,
    }


def test_a_terminal_gets_readable_coloured_lines(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    begin(stream=out)
    LogObserver().note("session.opened", session="1f0c")
    (line,) = lines(out)
    assert "\x1b[1msession.opened\x1b[0m session=1f0c" in line
    assert "\x1b[32mINFO" in line


def test_no_color_removes_the_colours(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    begin(stream=out)
    LogObserver().note("session.opened", session="1f0c")
    assert "\x1b" not in text(out)
    assert text(out).endswith("INFO     session.opened session=1f0c\n")


@pytest.mark.parametrize(
    ("variables", "terminal", "pipe"),
    [
        ({"TERM": "xterm"}, True, False),
        ({"TERM": "dumb"}, False, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True, True),
        ({"TERM": "xterm", "FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
    ],
)
def test_variables_choose_colours(
    variables: dict[str, str], terminal: bool, pipe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert (is_coloured(Terminal()), is_coloured(io.StringIO())) == (terminal, pipe)


@pytest.mark.parametrize(("form", "is_json"), [("human", False), ("json", True)])
def test_a_chosen_format_is_used_everywhere(begin: Begin, form: str, is_json: bool) -> None:
    for out in (io.StringIO(), Terminal()):
        begin(form=form, stream=out)
        LogObserver().note("session.opened", session="1f0c")
        assert text(out).startswith("{") == is_json


def test_by_default_limpet_logs_from_info_on_and_others_from_warning_on(begin: Begin) -> None:
    out = io.StringIO()
    begin(stream=out)
    logging.getLogger("other").info("every request")
    logging.getLogger("other").warning("a problem")
    LogObserver().note("session.opened", session="1f0c")
    LogObserver().note("anything", session="1f0c")
    assert [json.loads(line).get("message", "session.opened") for line in lines(out)] == [
        "a problem",
        "session.opened",
    ]


def test_a_given_level_is_the_level_of_all_loggers(begin: Begin) -> None:
    out = io.StringIO()
    begin(logging.DEBUG, stream=out)
    logging.getLogger("other").debug("detail")
    LogObserver().note("anything")
    assert len(lines(out)) == 2


def test_a_traceback_is_one_member_of_the_json_line_and_indented_for_a_person(
    caplog: pytest.LogCaptureFixture,
) -> None:
    LogObserver().note("handler.failed", session="1f0c", error=ValueError("wrong\nforged line"))
    (record,) = caplog.records
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert "ValueError: wrong" in json.loads(line)["traceback"]
    first, *others = HumanFormatter().format(record).splitlines()
    assert "handler.failed" in first
    assert others
    assert all(other.startswith("  | ") for other in others)


def test_a_fact_cannot_replace_a_member_of_the_line() -> None:
    record = logging.LogRecord("limpet", logging.INFO, "", 0, "x", (), None)
    record.event, record.facts = "real", {"event": "forged", "level": "none", "client": "\ud800"}
    line = json.loads(JsonFormatter().format(record))
    assert (line["event"], line["event_"], line["level"], line["level_"]) == (
        "real",
        "forged",
        "info",
        "none",
    )
    assert line["client"] == "\\ud800"


def test_an_application_keeps_its_handlers_and_receives_event_and_facts() -> None:
    received: list[logging.LogRecord] = []

    class Own(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            received.append(record)

    ours, own = logging.getLogger("limpet"), Own()
    ours.addHandler(own)
    try:
        LogObserver().note("replica.lease_lost", replica="r1")
    finally:
        ours.removeHandler(own)
    (record,) = received
    assert record.getMessage() == "replica.lease_lost replica=r1"
    assert vars(record)["event"] == "replica.lease_lost"
    assert vars(record)["facts"] == {"replica": "r1"}
