"""The path of a request: compared with our paths in one spelling only.

A proxy in front of us may have rules for paths, and mostly compares the text that the client sent. A path that we
decode would pass such a rule in another spelling: `/%68ook` for `/hook`, `/a%2Fb` for `/a/b`. So a path with a
character in percent-encoding that needs none, or with an encoded slash, is not decoded, and none of our paths is equal
to it.
"""

import re
from string import ascii_letters, digits
from typing import Final
from urllib.parse import unquote

_ENCODED: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_PLAIN: Final = frozenset(ascii_letters + digits + "-._~/\\")
"""The characters that RFC 3986 (2.3) calls unreserved, and slashes."""


def is_decoded(raw: bytes) -> bool:
    """True if a path, as it was sent, is decoded before it is compared."""
    return not any(chr(int(code, 16)) in _PLAIN for code in _ENCODED.findall(raw))


def path_of(raw: bytes) -> str:
    """Return the path of a request by the bytes that were sent."""
    text = raw.decode("latin-1")
    return unquote(text) if b"%" in raw and is_decoded(raw) else text
