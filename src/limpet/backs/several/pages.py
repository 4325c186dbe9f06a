"""Pages of several servers as one page. Pure.

A page of the merged list has one page of each member that has more, so a list has as many pages as the member with the
most; except that a page waits while an earlier member, which has more pages, could have one of its names: the first
member must be seen first. The cursor says where each of them goes on:

    {"files": "<cursor of files>", "github": "<cursor of github>"}

Members are named, not numbered: a cursor stays valid on another replica, and a member that the file does not have any
more is left out. A component whose name an earlier member has is left out too, and reported.
"""

from base64 import b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from limpet.backs.renaming import LISTED, item_name
from limpet.config import KIB
from limpet.errors import InvalidCursor
from limpet.wire.jsonrpc import encode

MAX_CURSOR: Final = 64 * KIB
"""Longer cursors are refused without decoding. It has the cursors of all members."""


_Page = dict[str, msgspec.Raw]
_decode_page = msgspec.json.Decoder(_Page).decode
_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_NO_ITEMS: Final = msgspec.Raw(b"[]")
_decode_cursors = msgspec.json.Decoder(dict[str, str]).decode
_decode_text = msgspec.json.Decoder(str | None).decode
_decode_number = msgspec.json.Decoder(float).decode


class PartPage(Struct, frozen=True):
    """A page of one member."""

    items: Mapping[str, msgspec.Raw]
    """By name, in the order of the member."""
    cursor: str | None
    others: _Page


def read_page(method: str, result: bytes) -> PartPage:
    """Return the page that the result of a list has.

    Raises:
        msgspec.MsgspecError: it is not a page.
    """
    member, _, _ = LISTED[method]
    members = _decode_page(result)
    items = {item_name(method, item): item for item in _decode_items(members.pop(member, _NO_ITEMS))}
    cursor = _decode_text(members.pop("nextCursor", msgspec.Raw(b"null")))
    return PartPage(items, cursor or None, members)


def merged(
    method: str,
    pages: Mapping[str, PartPage],
    is_shown: Callable[[str, str], bool],
    own: Mapping[str, Any],
    *,
    put_off: Mapping[str, str],
    is_whole: bool,
) -> bytes:
    """Return one page of all. `is_shown`: whether a member shows an item of this name.

    `is_whole`: no member is missing.

    `put_off`: the members whose page must wait, with the cursor that brings it again.

    `own` are members of the result that are ours. Of other members that several pages have, the first one stays.
    """
    others: dict[str, Any] = {}
    for page in reversed(list(pages.values())):
        others |= page.others
    others |= own
    if "ttlMs" in others:
        # 2026-07-28: it is as old as its oldest part, and only as public as its most private part.
        hints = [(page.others.get("ttlMs"), page.others.get("cacheScope")) for page in pages.values()]
        others["ttlMs"] = (
            min(0 if ttl is None else int(_decode_number(ttl)) for ttl, _ in hints) if is_whole else 0
        )
        is_public = all(scope is not None and _decode_text(scope) == "public" for _, scope in hints)
        others["cacheScope"] = "public" if is_public and is_whole else "private"
    items = [
        item
        for name, page in pages.items()
        if name not in put_off
        for shown, item in page.items.items()
        if is_shown(name, shown)
    ]
    ends = {name: put_off.get(name, page.cursor) for name, page in pages.items()}
    cursors = {name: cursor for name, cursor in ends.items() if cursor is not None}
    following = {"nextCursor": write_cursor(cursors)} if cursors else {}
    return encode({**others, LISTED[method][0]: items, **following})


def write_cursor(cursors: Mapping[str, str]) -> str:
    """Return one cursor for those of the members."""
    return urlsafe_b64encode(encode(cursors)).decode().rstrip("=")


def read_cursor(cursor: object) -> dict[str, str] | None:
    """Return the cursors of the members; None: from the start.

    Raises:
        InvalidCursor: `write_cursor` did not make it.
    """
    if cursor is None:
        return None
    if type(cursor) is not str or len(cursor) > MAX_CURSOR:
        raise InvalidCursor
    try:
        return _decode_cursors(b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except (Base64Error, ValueError) as error:
        raise InvalidCursor from error
