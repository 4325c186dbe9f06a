"""Output of the commands: texts of a server for the terminal, and JSON for programs."""

import re
import sys
from typing import Any, Final

import msgspec

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def plain(text: object) -> str:
    """Return a text without control characters, which could change the terminal."""
    return _CONTROL.sub("�", str(text))


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output, in UTF-8 in every locale."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
    # A terminal of another encoding cannot show every character. None: standard output is closed.
    if (binary := getattr(sys.stdout, "buffer", None)) is not None:
        binary.write(text)
        binary.flush()
    elif sys.stdout is not None:
        sys.stdout.write(text.decode())
