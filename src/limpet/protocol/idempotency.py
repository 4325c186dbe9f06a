"""Idempotency keys: a client of 2026-07-28 names a call, so that a repeat of its request does not run it again.

A key is in the request's `_meta` (KEY) or in the header `Idempotency-Key`, as text or as a quoted string. Pure:
`engine/idempotency.py` acts.
"""

import re
from typing import Any, Final

from limpet.errors import InvalidParams

KEY: Final = "limpet/idempotency-key"
"""The member of `_meta` that holds the key."""
KEYS_EXTENSION: Final = "limpet/idempotency"
"""The name of the extension in the capabilities of a server that takes such keys."""
HEADER: Final = "Idempotency-Key"
MAX_KEY: Final = 255
LEAST_UNGUESSABLE: Final = 22
"""Characters of a key of an anonymous client of another machine: 128 random bits, as letters and digits, have so
many."""
_VALID: Final = re.compile(rf"[!-~]{{1,{MAX_KEY}}}")


def read_key(said: Any, header: bytes | None = None) -> str:
    """Return the key of a request: `said` is the member of its `_meta`, `header` the value of its header.

    Raises:
        InvalidParams: it is no key, or the two differ.
    """
    key = said
    if header is not None:
        # RFC 8941 writes a string in quotes.
        text = header.decode("latin-1").strip()
        key = text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
    if type(key) is not str or _VALID.fullmatch(key) is None:
        raise InvalidParams(
            f"Invalid params: an idempotency key is a text of 1 to {MAX_KEY} visible ASCII characters"
        )
    if said is not None and said != key:
        raise InvalidParams(f"Invalid params: the header {HEADER} and the member {KEY} of _meta differ")
    return key


def declared(capabilities: dict[str, Any]) -> dict[str, Any]:
    """Return the capabilities of a server that takes idempotency keys."""
    extensions = capabilities.get("extensions")
    others = extensions if type(extensions) is dict else {}
    return {**capabilities, "extensions": {**others, KEYS_EXTENSION: {}}}


def takes_keys(capabilities: dict[str, Any]) -> bool:
    """Return True if a server takes idempotency keys."""
    extensions = capabilities.get("extensions")
    return type(extensions) is dict and KEYS_EXTENSION in extensions
