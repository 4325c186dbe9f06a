"""The recordings of the README: their commands still work, their pictures are small and say nothing of the machine that made them."""

import getpass
import re
import shlex
import socket
from typing import Any, Final
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import pytest
import typer.main
from typer.testing import CliRunner

from limpet.cli.whole import app
from tools.record import PICTURES, RECORDINGS, ROOT, URL, Recording, cast, pictures, shortened
from tools.recording_svg import LAST_SECONDS, Picture, Window, svg
from tools.terminal import Cell, Screen, Style

MOST_BYTES: Final = 200 * 1024
COMMANDS: Final = [step.command for recording in RECORDINGS.values() for step in recording.steps]


def picture(name: str) -> str:
    return (PICTURES / f"{name}.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("line", COMMANDS)
def test_every_recorded_command_exists(line: str) -> None:
    program, command, *words = shlex.split(line)
    group: Any = typer.main.get_command(app)
    known = {name for parameter in group.commands[command].params for name in parameter.opts}
    assert program == "limpet"
    assert {word for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("limpet call ")])
def test_every_recorded_call_works(line: str) -> None:
    [serve] = [shlex.split(line) for line in COMMANDS if line.startswith("limpet serve ")]
    words = [str(ROOT / serve[2]) if word == URL else word for word in shlex.split(line)[1:]]
    assert CliRunner().invoke(app, words).exit_code == 0


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_picture_shows_the_commands_and_is_small(name: str) -> None:
    drawn = picture(name)
    assert len(drawn.encode()) < MOST_BYTES
    assert ET.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 - our own file
    for step in RECORDINGS[name].steps:
        assert f">{escape(step.command)}<" in drawn, "record again: make record"


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_picture_names_no_path_host_or_user_of_a_machine(name: str) -> None:
    texts = " ".join(ET.fromstring(picture(name)).itertext())  # noqa: S314 - our own file
    assert not re.search(r"(?<![\w:/.])/(?:tmp|var|usr|opt|home|root|work|Users)\b", texts)
    for own in (socket.gethostname(), getpass.getuser()):
        assert own.isdigit() or not re.search(rf"\b{re.escape(own)}\b", texts)


def test_what_is_recorded_went_well() -> None:
    assert re.search(r"limpet [\d.]+: 4 held; mcp [\d.]+: ", picture("demo"))
    assert ">8 ticks<" in picture("serve")
    assert ".failed" not in picture("serve")


# The terminal


def shown(output: str, columns: int = 10, rows: int = 3) -> list[str]:
    screen = Screen(columns, rows)
    screen.feed(output)
    return ["".join(cell.text for cell in row) for row in screen.rows()]


@pytest.mark.parametrize(
    ("output", "rows"),
    [
        ("a\r\nb", ["a", "b", ""]),
        ("0123456789ab", ["0123456789", "ab", ""]),
        ("0123456789\r\nab", ["0123456789", "ab", ""]),
        ("1\r\n2\r\n3\r\n4", ["2", "3", "4"]),
        ("one\r\ntwo\x1b[1A\r\x1b[2K1", ["1", "two", ""]),
        ("abc\b\bX", ["aXc", "", ""]),
        ("abc\r\x1b[Kd", ["d", "", ""]),
        ("a\x1b[?25lb\x1b]0;title\x07c  ", ["abc", "", ""]),
    ],
)
def test_the_screen_shows_what_a_terminal_shows(output: str, rows: list[str]) -> None:
    assert shown(output) == rows


def test_styles_end_where_they_end() -> None:
    screen = Screen(10, 1)
    screen.feed("\x1b[1;32ma\x1b[0mb\x1b[2mc\x1b[39md")
    [row] = screen.rows()
    assert row == (
        Cell("a", Style("green", bold=True)),
        Cell("b"),
        Cell("c", Style(dim=True)),
        Cell("d", Style(dim=True)),
    )


@pytest.mark.parametrize("output", ["\x1b[5Z", "\x1b(B", "\x1b[38;5;1m", "\x1b[3K"])
def test_an_unknown_control_sequence_is_an_error(output: str) -> None:
    with pytest.raises(ValueError, match="unknown"):
        shown(output)


# The recording


def test_pauses_of_all_terminals_together_are_shortened_and_marks_removed() -> None:
    first, second = shortened(
        [[(0.0, "\x1b]133;A\x07$ "), (10.0, "a")], [(9.5, "b"), (9.6, "\x1b]133;A\x07")]]
    )
    assert first == [(0.0, "$ "), (2.0, "a")]
    assert second == [(1.5, "b")]


def test_a_recording_becomes_a_cast_and_pictures_of_every_state_that_lasts() -> None:
    recording = Recording("x", (), columns=10, rows=2)
    output = [(1.0, "a"), (1.1, "b"), (1.2, "c"), (2.0, "\r\x1b[2Kd")]
    assert cast(recording, output).splitlines() == [
        '{"version": 2, "width": 10, "height": 2, "title": "x"}',
        '[1.0, "o", "a"]',
        '[1.1, "o", "b"]',
        '[1.2, "o", "c"]',
        '[2.0, "o", "\\r\\u001b[2Kd"]',
    ]
    found = [(one.begins, "".join(cell.text for cell in one.rows[0])) for one in pictures(recording, output)]
    assert found == [(0.0, ""), (1.0, "a"), (1.2, "abc"), (2.0, "d")]


def test_the_last_picture_shows_where_nothing_moves() -> None:
    rows = [((Cell("a"),),), ((Cell("<"),),), ((Cell("a"),),)]
    drawn = svg([Window("w", [Picture(float(at), one) for at, one in enumerate(rows)])], 10, "t & t")
    assert 'transform="translate(0 -36)"' in drawn
    assert f"{100 * 1 / (2 + LAST_SECONDS):.2f}%{{transform:translateY(-18px)}}" in drawn
    assert drawn.count('<text x="0"') == 2, "a row that occurs twice is written once"
    assert ">&lt;</text>" in drawn
    assert 'aria-label="t &amp; t"' in drawn
    assert "prefers-reduced-motion:no-preference" in drawn
