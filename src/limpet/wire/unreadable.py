"""The id of a message that is not valid: the request that waits for it has to end.

A response that cannot be read ends our request, because there will be no other response. A request that cannot be read
is refused, because its sender waits for a response. Both need only the id, and whether the message is a request.

Most invalid messages are JSON with another fault. Others are not JSON: they have NaN, or half of a surrogate pair
(`json.dumps` of Python writes both), or only their edges were kept because they are too long. Their id is found by its
place: implementations write it near the beginning of a message, or at its end.
"""

import re
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct

from limpet.wire.jsonrpc import MAX_ID_LENGTH, RequestId

EDGE: Final = 256
"""How many bytes of the beginning and of the end of a message are enough."""
Recognised = tuple[RequestId, bool]
"""The id of a message, and True if it is a request, False if it is a response."""

_START: Final = rb'(?:\xef\xbb\xbf)?\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?'
_ID: Final = rb'"id"\s*:\s*(\d{1,16}|"[^"\\]{1,64}")\s*'
_KIND: Final = rb'"(method|result|error)"\s*:'
_ID_FIRST: Final = re.compile(_START + _ID + rb",\s*" + _KIND)
_KIND_FIRST: Final = re.compile(_START + _KIND)
_ID_LAST: Final = re.compile(rb",\s*" + _ID + rb'(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')


class _LooseEnvelope(Struct):
    id: int | str
    method: Any = UNSET
    params: Any = UNSET


_decode: Final = msgspec.json.Decoder(_LooseEnvelope).decode


def recognise(data: bytes) -> Recognised | None:
    """Return the id of an invalid message and its kind; None if it has no id, or the id cannot be read."""
    try:
        found = _decode(data.decode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        return recognise_by_edges(data[:EDGE], data[-EDGE:])
    if isinstance(found.id, str) and len(found.id) > MAX_ID_LENGTH:
        return None
    return found.id, found.method is not UNSET or found.params is not UNSET


def recognise_by_edges(head: bytes, tail: bytes) -> Recognised | None:
    """Do the same, given the first and the last bytes of the message."""
    if first := _ID_FIRST.match(head):
        return _number(first[1]), first[2] == b"method"
    kind = _KIND_FIRST.match(head)
    last = _ID_LAST.search(tail)
    return (_number(last[1]), kind[1] == b"method") if kind and last else None


def _number(text: bytes) -> RequestId:
    return text[1:-1].decode("utf-8", "replace") if text.startswith(b'"') else int(text)
