"""Output of the commands: texts of a server for the terminal, and JSON for programs."""

import re
import sys
from typing import Any, Final

import msgspec

from limpet.ops.printable import printable_json

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that control a terminal, end a line, or change the direction of what follows."""


def plain(text: object) -> str:
    """Return a text without control characters, which could change the terminal."""
    return _CONTROL.sub("�", str(text))


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output, in UTF-8 in every locale. What could change a terminal is escaped."""
    shown = printable_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
    text = f"{shown}\n".encode()
    # A terminal of another encoding cannot show every character. None: standard output is closed.
    if (binary := getattr(sys.stdout, "buffer", None)) is not None:
        binary.write(text)
        binary.flush()
    elif sys.stdout is not None:
        sys.stdout.write(text.decode())
