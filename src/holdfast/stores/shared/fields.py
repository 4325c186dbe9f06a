"""A document as named fields, which a backend keeps without understanding them.

    r            the record as it was opened         m            its variable part: log level, initialized, home
    x:<stream>   an exchange                         i:<id>       the stream that uses an id (`id_text`)
    l:<stream>   the head of a log (`HeadLog`)       f:<stream>   when a complete stream ended
    h:<stream>   a turn that is held                 a:<ask>      an ask
    d            digests of forgotten answers        w            streams that do not start
    u            subscriptions                       o:<writer>   the number of the writer's last commit

Values are msgpack. A structure is an array: a later release may add members at its end, which this one ignores.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from holdfast.core.records import SessionRecord
from holdfast.core.rules.document import Ask, Exchange, Held
from holdfast.core.stream import Position
from holdfast.errors import StoreError
from holdfast.stores.rules import id_from, id_text
from holdfast.stores.shared.heads import HeadLog

encode: Final = msgspec.msgpack.Encoder().encode
_record: Final = msgspec.json.Decoder(SessionRecord).decode
_variable: Final = msgspec.msgpack.Decoder(tuple[str, bool, str]).decode
_head: Final = msgspec.msgpack.Decoder(tuple[int, int, int, int, int, int, int, int, bool]).decode
_answered: Final = msgspec.msgpack.Decoder(list[tuple[str, bytes, float]]).decode
_withdrawn: Final = msgspec.msgpack.Decoder(list[tuple[str, bool]]).decode
_names: Final = msgspec.msgpack.Decoder(list[str]).decode


class Unreadable(StoreError):
    """A field cannot be read: another program has written it, or it is damaged."""


def _text(value: str) -> bytes:
    return value.encode()


def encode_log(log: HeadLog) -> bytes:
    """Return the head of a log."""
    low, top, delivered = log.low, log.top, log.delivered
    return encode((log.first, *low, *top, *delivered, log.bytes, log.closed))


def decode_log(value: bytes) -> HeadLog:
    """Return the head of a log. Its events are not known."""
    first, low, low_tag, top, top_tag, delivered, delivered_tag, size, closed = _head(value)
    log = HeadLog(Position(first, low_tag))
    log.low, log.top, log.delivered = (
        Position(low, low_tag),
        Position(top, top_tag),
        Position(delivered, delivered_tag),
    )
    log.bytes, log.closed = size, closed
    log.index = None
    return log


class Table:
    """The codec of one table: the prefix of its fields, and how keys and values are written."""

    __slots__ = ("decode", "encode", "key", "name", "prefix")

    def __init__(
        self,
        prefix: str,
        write: Callable[[Any], bytes],
        read: Callable[[bytes], Any],
        name: Callable[[Any], str] | None = None,
        key: Callable[[str], Any] = str,
    ) -> None:
        self.prefix: str = prefix
        self.encode: Callable[[Any], bytes] = write
        self.decode: Callable[[bytes], Any] = read
        self.name: Callable[[Any], str] = name or (lambda one: prefix + one)
        self.key: Callable[[str], Any] = key


def _id_name(request_id: Any) -> str:
    return "i:" + id_text(request_id)


TABLES: Final = {
    "exchanges": Table("x:", encode, msgspec.msgpack.Decoder(Exchange).decode),
    "ids": Table("i:", _text, bytes.decode, _id_name, id_from),
    "logs": Table("l:", encode_log, decode_log),
    "finished": Table("f:", encode, msgspec.msgpack.Decoder(float).decode),
    "held": Table("h:", encode, msgspec.msgpack.Decoder(Held).decode),
    "asks": Table("a:", encode, msgspec.msgpack.Decoder(Ask).decode),
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
    if name == "answered":
        if value is None:
            return None
        return OrderedDict((ask, (digest, until)) for ask, digest, until in _answered(value))
    if name == "withdrawn":
        return None if value is None else dict(_withdrawn(value))
    return frozenset() if value is None else frozenset(_names(value))


def encode_record(record: SessionRecord) -> tuple[bytes, bytes]:
    """Return a record as it was opened, and its variable part."""
    return msgspec.json.encode(record), encode_variable(record)


def encode_variable(record: SessionRecord) -> bytes:
    """Return the variable part of a record."""
    return encode((record.level, record.initialized, record.home))


def decode_record(opened: bytes, variable: bytes) -> SessionRecord:
    """Return a record as it is now."""
    record = _record(opened)
    record.level, record.initialized, record.home = _variable(variable)
    return record


def writers_of(fields: Mapping[str, bytes]) -> dict[str, int]:
    """Return the last commit of each writer."""
    return {name[2:]: int(value) for name, value in fields.items() if name.startswith("o:")}
