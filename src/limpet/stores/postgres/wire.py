"""The messages of PostgreSQL's protocol (version 3) that the store sends and receives, as bytes. No I/O.

The driver's own encoder asks Python several questions about each element of an array, and a commit has many: that was
more than half of our CPU for a call. The types of parameters and columns are those that the server names
(`Description`). All values are binary, except `numeric`, which is text.
"""

import struct
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Final

from msgspec import Struct

PARSED: Final = ord("1")
BOUND: Final = ord("2")
ROW: Final = ord("D")
READY: Final = ord("Z")
REFUSED: Final = ord("E")
PARAMETERS: Final = ord("t")
COLUMNS: Final = ord("T")
NOTIFIED: Final = ord("A")
END: Final = b"Z\0\0\0\5I"
"""READY, outside of a transaction."""
SYNC: Final = b"S\0\0\0\4"
_EXECUTE: Final = b"E\0\0\0\x09\0\0\0\0\0"
_NULL: Final = b"\xff\xff\xff\xff"
_BINARY_ROWS: Final = b"\0\1\0\1"
_HEAD: Final = struct.Struct(">Bi")
_LENGTH: Final = struct.Struct(">i")
_ARRAY: Final = struct.Struct(">iiiii")
_COLUMN: Final = struct.Struct(">IHIHiH")
_MEMBER: Final = struct.Struct(">Ii")
_NUMERIC: Final = 1700
_OURS: Final = 16384
"""The least number of a type that PostgreSQL does not bring with it."""
_Encoder = Callable[[Any], bytes]
_Decoder = Callable[[bytes], Any]


class ServerRefusal(Exception):
    """PostgreSQL has refused a statement, with this SQLSTATE."""

    def __init__(self, fields: dict[str, str]) -> None:
        super().__init__(" ".join(fields[name] for name in "MDH" if name in fields))
        self.sqlstate: str = fields.get("C", "")


class Description(Struct, frozen=True):
    """A statement: how its arguments are encoded, and how its columns are decoded."""

    encoders: Sequence[_Encoder]
    formats: bytes
    """The formats of the arguments, and their number."""
    decoders: Sequence[_Decoder]


# Values


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _text(value: str) -> bytes:
    return _sized(value.encode())


def _digits(value: object) -> bytes:
    return _sized(str(value).encode())


@cache
def _doubles_of(count: int) -> struct.Struct:
    return struct.Struct(">iiiiii" + "id" * count)


def _doubles(values: Sequence[float]) -> bytes:
    count = len(values)
    flat: list[float] = [8] * (2 * count)
    flat[1::2] = values
    return _doubles_of(count).pack(20 + 12 * count, 1, 0, 701, count, 1, *flat)


def _array(oid: int, encode: _Encoder) -> _Encoder:
    def encoded(values: Sequence[Any]) -> bytes:
        head = _ARRAY.pack(1, 0, oid, len(values), 1)
        return _sized(head + b"".join([_NULL if one is None else encode(one) for one in values]))

    return encoded


def _byteas(values: Sequence[bytes | None]) -> bytes:
    parts = [_ARRAY.pack(1, 0, 17, len(values), 1)]
    for one in values:
        parts += (_NULL,) if one is None else (len(one).to_bytes(4, "big"), one)
    return _sized(b"".join(parts))


def _elements(decode: _Decoder) -> _Decoder:
    def decoded(data: bytes) -> list[Any]:
        dimensions, _, _, count, _ = _ARRAY.unpack_from(data) if len(data) >= _ARRAY.size else (0,) * 5
        return _values(data, _ARRAY.size, [decode] * count) if dimensions else []

    return decoded


def _double(data: bytes) -> float:
    [value] = struct.unpack(">d", data)
    return float(value)


_integer: Final[_Decoder] = partial(int.from_bytes, byteorder="big", signed=True)
_int8: Final[_Encoder] = partial(struct.Struct(">iq").pack, 8)
_TYPES: Final[dict[int, tuple[_Encoder, _Decoder]]] = {
    16: (partial(struct.Struct(">i?").pack, 1), b"\1".__eq__),  # bool
    17: (_sized, bytes),  # bytea
    20: (_int8, _integer),  # bigint
    23: (partial(struct.Struct(">ii").pack, 4), _integer),  # integer
    25: (_text, bytes.decode),  # text
    701: (partial(struct.Struct(">id").pack, 8), _double),  # double precision
    1001: (_byteas, _elements(bytes)),
    1009: (_array(25, _text), _elements(bytes.decode)),
    1016: (_array(20, _int8), _elements(_integer)),
    1022: (_doubles, _elements(_double)),
    _NUMERIC: (_digits, bytes.decode),
    2278: (_sized, lambda _: None),  # void
}
"""The types that our statements use, by their numbers in every PostgreSQL."""


def _composite(data: bytes) -> list[Any]:
    """Return the values of a row that is one value. Its type is one of ours, and each of its columns has its own."""
    values: list[Any] = []
    at = 4
    while at < len(data):
        oid, size = _MEMBER.unpack_from(data, at)
        at += _MEMBER.size
        values.append(None if size < 0 else _TYPES[oid][1](data[at : at + size]))
        at += max(size, 0)
    return values


def described(parameters: bytes, columns: bytes) -> Description:
    """Read the bodies of PARAMETERS and COLUMNS. The second is empty for a statement without rows."""
    oids = struct.unpack(f">{(len(parameters) - 2) // 4}I", parameters[2:])
    formats = [0 if oid == _NUMERIC else 1 for oid in oids]
    packed = struct.pack(f">h{len(oids)}hh", len(oids), *formats, len(oids))
    decoders: list[_Decoder] = []
    at = 2
    while at < len(columns):
        at = columns.index(b"\0", at) + 1
        oid = _COLUMN.unpack_from(columns, at)[2]
        decoders.append(_composite if oid >= _OURS else _TYPES[oid][1])
        at += _COLUMN.size
    return Description([_TYPES[oid][0] for oid in oids], packed, decoders)


# Sent


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + (len(body) + 4).to_bytes(4, "big") + body


def query(text: str) -> bytes:
    """Run several statements, without arguments."""
    return _message(b"Q", text.encode() + b"\0")


def parse(name: bytes, statement: str) -> bytes:
    """Prepare a statement under a name; an empty one holds until the next."""
    return _message(b"P", name + b"\0" + statement.encode() + b"\0\0\0")


def describe(name: bytes) -> bytes:
    """Ask for the types of a statement."""
    return _message(b"D", b"S" + name + b"\0")


def execute(name: bytes, description: Description, arguments: Sequence[Any]) -> bytes:
    """Run a prepared statement."""
    pairs = zip(description.encoders, arguments, strict=True)
    values = [_NULL if value is None else encode(value) for encode, value in pairs]
    body = b"\0" + name + b"\0" + description.formats + b"".join(values) + _BINARY_ROWS
    return _message(b"B", body) + _EXECUTE


# Received


class MessageCutter:
    """Cuts what arrives into messages: their kind and their body."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._needed = 0
        """Bytes of the message that has arrived in part."""

    @property
    def is_partial(self) -> bool:
        """True if the last message has not arrived as a whole."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return the messages that are complete.

        Raises:
            ValueError: this is no message.
        """
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return []
            data = bytes(self._rest)
            self._rest.clear()
        found: list[tuple[int, bytes]] = []
        at, end = 0, len(data)
        while at + 5 <= end:
            kind, size = _HEAD.unpack_from(data, at)
            if size < 4:  # noqa: PLR2004 - its own length
                raise ValueError("a message of PostgreSQL has no length")
            stop = at + 1 + size
            if stop > end:
                self._needed = stop - at
                break
            found.append((kind, data[at + 5 : stop]))
            at = stop
        else:
            self._needed = 5
        if at < end:
            self._rest += data[at:]
        return found


def _values(data: bytes, at: int, decoders: Sequence[_Decoder]) -> list[Any]:
    values: list[Any] = []
    for decode in decoders:
        [size] = _LENGTH.unpack_from(data, at)
        at += 4
        if size < 0:
            values.append(None)
        else:
            values.append(decode(data[at : at + size]))
            at += size
    return values


def row(body: bytes, description: Description) -> list[Any]:
    """Return the values of a row."""
    return _values(body, 2, description.decoders)


def refusal(body: bytes) -> ServerRefusal:
    """Return the error of a REFUSED message."""
    fields = body.decode(errors="replace").split("\0")
    return ServerRefusal({field[0]: field[1:] for field in fields if field})


def notification(body: bytes) -> str:
    """Return the text of a NOTIFIED message."""
    return body[4:].split(b"\0")[1].decode(errors="replace")
