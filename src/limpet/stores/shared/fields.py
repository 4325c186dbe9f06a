"""A document as named fields, which a backend keeps without understanding them.

    r            the record as it was opened         m            its variable part: log level, initialized, home
    x:<stream>   an exchange                         i:<id>       the stream that uses an id (`id_text`)
    l:<stream>   the head of a log (`HeadLog`)       f:<stream>   when a complete stream ended
    h:<stream>   a turn that is held                 a:<ask>      an ask
    d            digests of forgotten answers        w            streams that do not start
    u            subscriptions                       o:<writer>   the number of the writer's last commit

Values are msgpack. A structure is an array: a later release may add members at its end. This one does not understand
them, and keeps them when it writes the field again (`kept_members`).
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from limpet.core.lifecycle import SessionState
from limpet.core.records import SessionRecord, Status
from limpet.core.rules.document import Ask, Document, ExchangeRecord, Held
from limpet.core.stream import Position
from limpet.errors import StoreError
from limpet.stores.base.overview import Listing
from limpet.stores.shared.commit import NUMBERS
from limpet.stores.shared.heads import HeadLog
from limpet.wire.jsonrpc import RequestId

STATES: Final = (SessionState.ATTACHED, SessionState.DETACHED)
encode: Final = msgspec.msgpack.Encoder().encode
_record: Final = msgspec.json.Decoder(SessionRecord).decode
_members: Final = msgspec.msgpack.Decoder(list[Any]).decode
_Head = tuple[int, int, int, int, int, int, int, int, bool]
_Variable = tuple[str, bool, str]
_answered: Final = msgspec.msgpack.Decoder(list[tuple[str, bytes, float]]).decode
_withdrawn: Final = msgspec.msgpack.Decoder(list[tuple[str, bool]]).decode
_names: Final = msgspec.msgpack.Decoder(list[str]).decode


class Unreadable(StoreError):
    """A field cannot be read: another program has written it, or it is damaged."""


def id_text(request_id: RequestId) -> str:
    """Return an id as text in which 1 and "1" differ."""
    return f"i{request_id}" if isinstance(request_id, int) else f"s{request_id}"


def id_from(text: str) -> RequestId:
    """Return the id that `id_text` wrote."""
    return int(text[1:]) if text[0] == "i" else text[1:]


def head_of(log: HeadLog) -> tuple[int | bool, ...]:
    """Return the head of a log."""
    return (log.first, *log.low, *log.top, *log.delivered, log.bytes, log.closed)


def encode_log(log: HeadLog) -> bytes:
    """Return the head of a log as it is stored."""
    return encode(head_of(log))


def decode_log(value: bytes) -> HeadLog:
    """Return the head of a log. Its events are not known."""
    first, low, low_tag, top, top_tag, delivered, delivered_tag, size, closed = msgspec.convert(
        _members(value)[:9], _Head
    )
    log = HeadLog(Position(first, low_tag))
    log.low, log.top, log.delivered = (
        Position(low, low_tag),
        Position(top, top_tag),
        Position(delivered, delivered_tag),
    )
    log.bytes, log.closed = size, closed
    log.index = None
    return log


class Codec(Struct, frozen=True):
    """How one table is stored: the prefix of its fields, and how keys and values are written."""

    prefix: str
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    members: Callable[[Any], tuple[Any, ...]] = lambda _: ()
    """The members of a value that is a structure."""
    text: Callable[[Any], str] = str
    """The key of an entry, in the name of its field."""
    key: Callable[[str], Any] = str


def kept_members(codec: Codec, value: Any, before: bytes) -> bytes:
    """Return a value as it is stored, with the members that a later release has added to the one before."""
    known = codec.members(value)
    more = _members(before)[len(known) :] if known else ()
    return encode((*known, *more)) if more else codec.encode(value)


TABLES: Final = {
    "exchanges": Codec("x:", encode, msgspec.msgpack.Decoder(ExchangeRecord).decode, astuple),
    "ids": Codec("i:", str.encode, bytes.decode, text=id_text, key=id_from),
    "logs": Codec("l:", encode_log, decode_log, head_of),
    "finished": Codec("f:", encode, msgspec.msgpack.Decoder(float).decode),
    "held": Codec("h:", encode, msgspec.msgpack.Decoder(Held).decode, astuple),
    "asks": Codec("a:", encode, msgspec.msgpack.Decoder(Ask).decode, astuple),
}
BY_PREFIX: Final = {table.prefix: name for name, table in TABLES.items()}


def encode_value(name: str, value: Any) -> bytes | None:
    """Return one of the values `answered`, `withdrawn` or `subscriptions`; None if it is empty."""
    if not value:
        return None
    if name == "answered":
        return encode([(ask, *entry) for ask, entry in value.items()])
    return encode(list(value.items()) if name == "withdrawn" else sorted(value))


VALUES: Final = {"answered": "d", "withdrawn": "w", "subscriptions": "u"}


def decode_value(name: str, value: bytes | None) -> Any:
    """Return one of these values."""
    if name == "subscriptions":
        return frozenset(() if value is None else _names(value))
    if value is None:
        return None
    if name == "withdrawn":
        return dict(_withdrawn(value))
    return OrderedDict((ask, (digest, until)) for ask, digest, until in _answered(value))


def encode_record(record: SessionRecord) -> tuple[bytes, bytes]:
    """Return a record as it was opened, and its variable part."""
    return msgspec.json.encode(record), encode_variable(record)


def encode_variable(record: SessionRecord, before: bytes = b"\x90") -> bytes:
    """Return the variable part of a record. Members that a later release has added to the one before are kept."""
    return encode((record.level, record.initialized, record.home, *_members(before)[3:]))


def decode_record(opened: bytes, variable: bytes) -> SessionRecord:
    """Return a record as it is now."""
    record = _record(opened)
    record.level, record.initialized, record.home = msgspec.convert(_members(variable)[:3], _Variable)
    return record


def readable_record(opened: bytes | None, variable: bytes | None) -> SessionRecord | None:
    """Return a record as it is now; None if it cannot be read."""
    try:
        return decode_record(opened or b"", variable or b"")
    except ValueError:
        return None


def status_of(row: Sequence[Any], now: float) -> Status | None:
    """Return the status of a session by its stored row: its key, its numbers, what its state keeps, its record.

    None if it cannot be read: the next command that uses it removes it.
    """
    _, numbers, held, opened, variable = row
    record = readable_record(opened, variable)
    if record is None:
        return None
    try:
        known = dict(zip(NUMBERS, numbers, strict=True))
        doc = Document(record, known["opened"])
        doc.touched, doc.settled, doc.broke = known["touched"], known["settled"], known["broke"]
        doc.readers, doc.running = int(known["readers"]), int(known["running"])
        doc.state = STATES[int(known["state"])]
        return doc.status(now, log_bytes=int(known["size"]), kept_bytes=int(known["kept"]) + held)
    except (ValueError, IndexError, OverflowError):
        return None


def listing_of(rows: Sequence[Sequence[Any]], limit: int, now: float) -> Listing:
    """Return a page of such rows. A session that cannot be read is left out."""
    found = [status for row in rows if (status := status_of(row, now)) is not None]
    return Listing(found, rows[-1][0] if len(rows) == limit else "")
