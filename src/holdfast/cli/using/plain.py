"""Texts of a server for the terminal."""

import re
from typing import Final

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def plain(text: object) -> str:
    """Return a text without control characters, which could change the terminal."""
    return _CONTROL.sub("�", str(text))
