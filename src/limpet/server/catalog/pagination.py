"""Pages of a list, with opaque cursors.

A cursor names the last item of the page, so that items that are added or removed elsewhere cause no repeats and no
gaps. If that item was removed, the next page starts at its former place.
"""

from base64 import b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from limpet.errors import InvalidCursor

T = TypeVar("T")

MAX_CURSOR: Final = 4096
"""Longer cursors are refused without decoding; ours are shorter for every reasonable name or URI."""


class _Cursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    seen: int
    last: str


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Cursor)


def page(items: Mapping[str, T], cursor: str | None, size: int) -> tuple[list[T], str | None]:
    """Return the items after `cursor` (None: from the start), at most `size`, and the next page's cursor.

    The last page has no cursor. A `size` of 0 means one page with everything.

    Raises:
        InvalidCursor: this function did not make the cursor.
    """
    keys = list(items)
    start = 0 if cursor is None else _start(keys, _read(cursor))
    stop = len(keys) if size <= 0 else min(start + size, len(keys))
    chosen = [items[key] for key in keys[start:stop]]
    return chosen, _write(stop, keys[stop - 1]) if stop < len(keys) else None


def _start(keys: list[str], cursor: _Cursor) -> int:
    try:
        return keys.index(cursor.last) + 1
    except ValueError:
        # The item at place `seen - 1` was removed, and the items after it have moved up by one.
        return min(cursor.seen - 1, len(keys))


def _write(seen: int, last: str) -> str:
    return urlsafe_b64encode(_encoder.encode(_Cursor(seen, last))).decode().rstrip("=")


def _read(cursor: str) -> _Cursor:
    if len(cursor) > MAX_CURSOR:
        raise InvalidCursor
    try:
        data = b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        read = _decoder.decode(data)
    except (Base64Error, ValueError) as error:
        raise InvalidCursor from error
    if read.seen < 1:
        raise InvalidCursor
    return read
