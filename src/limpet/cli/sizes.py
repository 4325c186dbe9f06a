"""Numbers of bytes and seconds as people write them."""

import re
from typing import Final

from limpet.errors import ConfigError

_SIZE: Final = re.compile(r"([1-9][0-9]{0,14})\s*([kmgt]?)(i?b)?", re.IGNORECASE)
_BITS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def size_of(text: str) -> int:
    """Return the bytes of a text: `512M`, `2GiB`, `1073741824`. Units are powers of 1,024, as in Kubernetes with an i.

    Raises:
        ConfigError: the text has another form.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"{text[:40]!r} is no size: write a size such as 512M, 2G or a number of bytes")
    return int(found[1]) << _BITS[found[2].lower()]


def time_or_word(text: str) -> float | str:
    """Return the seconds of a text, or the text itself: `45`, `auto`."""
    try:
        return float(text)
    except ValueError:
        return text
