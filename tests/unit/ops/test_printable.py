"""JSON on a terminal: no character of a peer controls it."""

import io
import json
import logging
import sys

import pytest

from limpet.cli.using.plain import plain, print_json
from limpet.ops.log_lines import JsonFormatter
from limpet.ops.printable import printable_json

_CONTROLS = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0))]
_INVISIBLE = "\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff\U000e0041\U0001d173"
HOSTILE = "".join([*_CONTROLS, *_INVISIBLE])
"""C0 and C1 controls, marks and overrides of direction, ends of lines, and invisible characters."""
FRIENDLY = "h\u00e9llo \u4f60\u597d \U0001f600 \u05d0\u05d1"


def test_json_is_printable_and_keeps_its_value() -> None:
    value = {f"name {HOSTILE}": [HOSTILE, FRIENDLY], "n": 1}
    shown = printable_json(json.dumps(value, ensure_ascii=False, indent=1))
    assert json.loads(shown) == value
    assert [char for char in shown if not (char.isprintable() or char == "\n")] == []
    assert FRIENDLY in shown


def test_the_json_of_a_command_and_of_the_log_is_printable(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    print_json({"text": HOSTILE})
    printed = out.buffer.getvalue().decode()
    record = logging.LogRecord("limpet", logging.INFO, "", 0, "%s", (HOSTILE,), None)
    logged = JsonFormatter().format(record)
    assert (json.loads(printed), json.loads(logged)["message"]) == ({"text": HOSTILE}, HOSTILE)
    assert logged.isprintable()
    assert printed.replace("\n", "").isprintable()


def test_a_text_of_a_server_cannot_change_the_direction_of_a_line() -> None:
    for char in "\x1b\x7f\x9b\u061c\u200e\u200f\u2028\u2029\u202e\u2066":
        assert plain(f"a{char}b") == "a\ufffdb"
    assert plain(FRIENDLY + "\n\t") == FRIENDLY + "\n\t"
