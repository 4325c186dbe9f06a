"""Codecs: decoding returns the encoded value, for every cut of the bytes."""

import contextlib
import json
from itertools import pairwise
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.errors import WireError
from limpet.wire import sse
from limpet.wire.jsonrpc import (
    Notification,
    Request,
    Response,
    decode,
    decode_raw,
    notification_message,
    request_message,
)
from limpet.wire.jsonrpc import result_message as answer
from limpet.wire.lines import LineBuffer

TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
IDS: Final = st.integers(-(2**53), 2**53) | TEXT.filter(lambda text: len(text.encode()) <= 256)
NUMBERS: Final = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
VALUES: Final = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
PARAMS: Final = st.dictionaries(TEXT, VALUES, max_size=5)


@given(IDS, TEXT, PARAMS)
def test_messages_survive_their_own_encoding(
    request_id: int | str, method: str, params: dict[str, Any]
) -> None:
    assert decode(request_message(request_id, method, params)) == Request(request_id, method, params)
    assert decode(notification_message(method, params)) == Notification(method, params)
    assert decode(answer(request_id, msgspec.json.encode(params))) == Response(request_id, params, None)


@given(IDS, TEXT, PARAMS, st.sampled_from([None, 1]), st.booleans())
def test_how_a_sender_writes_json_does_not_matter(
    request_id: int | str, method: str, params: dict[str, Any], indent: int | None, ascii_only: bool
) -> None:
    message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    text = json.dumps(message, indent=indent, ensure_ascii=ascii_only)
    assert decode(text.encode()) == Request(request_id, method, params)


@given(IDS, VALUES, st.sampled_from([None, 1]), st.booleans(), st.data())
def test_a_raw_result_is_accepted_if_and_only_if_a_decoded_one_is_and_has_the_same_value(
    request_id: int | str, result: Any, indent: int | None, ascii_only: bool, data: st.DataObject
) -> None:
    message = {"jsonrpc": "2.0", "id": request_id, "result": result}
    text = bytearray(json.dumps(message, indent=indent, ensure_ascii=ascii_only).encode())
    if data.draw(st.booleans()):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    try:
        plain = decode(bytes(text))
    except WireError as error:
        if "duplicate" not in str(error):
            with pytest.raises(WireError):
                decode_raw(bytes(text))
        return
    raw = decode_raw(bytes(text))
    if isinstance(plain, Response) and plain.error is None:
        assert isinstance(raw, Response)
        assert (raw.id, msgspec.json.decode(raw.result)) == (plain.id, plain.result)
        assert not {10, 13} & set(bytes(raw.result))
    else:
        assert raw == plain


@given(PARAMS, st.sampled_from([None, 1]), st.booleans(), VALUES, VALUES, st.data())
def test_a_second_member_of_a_name_is_always_found(
    params: dict[str, Any], indent: int | None, ascii_only: bool, first: Any, second: Any, data: st.DataObject
) -> None:
    def write(value: Any) -> str:
        return json.dumps(value, indent=indent, ensure_ascii=ascii_only)

    name = data.draw(TEXT)
    members = [f"{write(key)}:{write(value)}" for key, value in params.items() if key != name]
    members.insert(data.draw(st.integers(0, len(members))), f"{write(name)}:{write(first)}")
    members.insert(data.draw(st.integers(0, len(members))), f"{write(name)}:{write(second)}")
    text = '{"jsonrpc":"2.0","id":1,"method":"m","params":{' + ",".join(members) + "}}"
    with pytest.raises(WireError, match="duplicate member"):
        decode(text.encode())


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_raise_wire_error(data: bytes) -> None:
    with contextlib.suppress(WireError):
        decode(data)


@given(PARAMS, st.integers(0, 400), st.binary(min_size=1, max_size=3))
def test_a_damaged_message_raises_only_wire_error(params: dict[str, Any], place: int, damage: bytes) -> None:
    data = request_message(1, "m", params)
    test_any_bytes_are_decoded_or_raise_wire_error.hypothesis.inner_test(  # type: ignore[attr-defined]
        data[:place] + damage + data[place + len(damage) :]
    )


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(place, len(data)) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def fed(data: bytes, places: list[int], limit: int) -> list[bytes | str]:
    buffer = LineBuffer(limit)
    found = [item for chunk in cut(data, places) for item in buffer.feed(chunk)]
    return [item if isinstance(item, bytes) else item.message for item in found]


@given(
    st.lists(st.integers(0, 30), max_size=8),
    st.binary(max_size=60).map(lambda junk: junk.replace(b"\r", b"")),
    st.lists(st.integers(0, 300), max_size=12),
    st.integers(1, 40),
)
def test_lines_do_not_depend_on_how_they_are_cut(
    sizes: list[int], junk: bytes, places: list[int], limit: int
) -> None:
    data = b"\n".join([b"x" * size for size in sizes] + [junk, b""])
    assert fed(data, places, limit) == fed(data, [], limit)
    assert fed(data, places, limit) == fed(data, list(range(len(data))), limit)


@given(st.lists(st.integers(1, 30), max_size=8), st.integers(1, 40))
def test_each_line_is_itself_or_one_complaint(sizes: list[int], limit: int) -> None:
    found = fed(b"".join(b"x" * size + b"\n" for size in sizes), [], limit)
    assert [len(item) if isinstance(item, bytes) else None for item in found] == [
        size if size <= limit else None for size in sizes
    ]


@given(PARAMS, TEXT)
def test_an_event_holds_its_payload_on_one_data_line(params: dict[str, Any], method: str) -> None:
    payload = notification_message(method, params)
    lines = sse.event(payload, "s.1.a").split(b"\n")
    assert lines == [b"event: message", b"id: s.1.a", b"data: " + payload, b"", b""]
