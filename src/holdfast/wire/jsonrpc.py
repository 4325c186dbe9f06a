"""JSON-RPC 2.0: one strict decode of each received message, and the encoding of the messages that we send.

A message passes proxies, gateways and clients with other JSON parsers. If two parsers read one text differently, one of
them can be made to check something else than the other executes. So every text that parsers are known to read
differently is refused here, once, and all other code works on the decoded values.

What is checked, and when:

    size in bytes                the transport, before this module is called
    nesting, number of values    before decoding: a hostile text must not cost the time and memory of decoding it.
                                 Counting `{`, `[` and `,` in the whole text gives an upper bound, in C. Only a text over
                                 a limit is counted again exactly, without the characters inside strings (`_outside`).
    grammar, UTF-8, NaN,         by the decoder. Invalid: PARSE_ERROR, −32700.
    lone surrogates
    duplicate members            after decoding, everywhere in the message. The decoder keeps the last of two members
                                 with one name. So the value is encoded again: a text that is equal to the encoding has
                                 no duplicates. Otherwise (white space, escapes, numbers, or really a duplicate) the
                                 members are counted in both texts.
    the shape of the message     last: a request, a notification or a response, with an id of an allowed type and size.
                                 Invalid: INVALID_REQUEST, −32600, with the id if it could be read.

`decode_raw` is for a proxy that forwards results: it leaves the result of a response as JSON text.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from typing import Any, Final

import msgspec
from msgspec import Struct

from holdfast.errors import INVALID_REQUEST, PARSE_ERROR, McpError, WireError

RequestId = int | str
"""The id of a JSON-RPC request: `1` and `"1"` are different ids."""

MAX_ID: Final = 2**53
"""The largest integer that every JSON implementation represents exactly."""
_MIN_ID: Final = -MAX_ID
MAX_ID_LENGTH: Final = 256
VALUE_BYTES: Final = 96
"""The most memory that one comma or bracket stands for after decoding. An object with one member takes 192 bytes and has
a bracket and a comma; a number in a list takes 8 to 32."""
_MANY: Final = 4_096
_EXACT_BYTES: Final = 1024 * 1024
"""Longer texts are not counted exactly: that would take longer than decoding them."""

encode: Callable[[object], bytes] = msgspec.json.Encoder().encode
_decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode


class Request(Struct, frozen=True, gc=False):
    """A message that expects a response. `params` is empty if the sender gave none."""

    id: RequestId
    method: str
    params: dict[str, Any]


class Notification(Struct, frozen=True, gc=False):
    """A message that expects no response."""

    method: str
    params: dict[str, Any]


class Response(Struct, frozen=True, gc=False):
    """A response: `error` is None, or it is the error object and `result` is None."""

    id: RequestId
    result: Any
    error: dict[str, Any] | None


Message = Request | Notification | Response


def decode(data: bytes, *, max_depth: int = 64, max_values: int = sys.maxsize) -> Message | list[Message]:
    """Decode one message, or the messages of a batch array.

    `max_values` bounds the time that a hostile message can take: a value of two bytes costs as much time and memory as
    one of two hundred. A client sets no bound, because it asked for what it reads.

    Raises:
        WireError: with the JSON-RPC code and, where it could be read, the request's id.
    """
    outside = None
    size = len(data)
    # Every level takes two brackets, and every value a byte or more: a short text has neither too many levels nor values.
    if size > 2 * max_depth or size > max_values:
        brackets = data.count(b"{") + data.count(b"[")
        if brackets > max_depth or size > max_values:
            outside = _check_shape(data, brackets, max_depth, max_values)
    try:
        value = _decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise WireError(PARSE_ERROR, f"Parse error: {error}") from None
    # A text that equals the encoding of its value has no member twice.
    if (encoded := encode(value)) != data:
        _check_members(data, encoded, outside)
    if type(value) is not list:
        return _classify(value)
    if not value:
        raise WireError(INVALID_REQUEST, "Invalid request: an empty batch")
    return [_classify(item) for item in value]


def _check_members(data: bytes, encoded: bytes, outside: bytes | None) -> None:
    """Refuse a text that has a member twice, by counting its members and those of its value's encoding.

    Each member has one colon outside of strings, and a member that the decoder dropped is missing in the encoding.
    Comparing lengths is not enough: a number that grows (1e6) can make up for a member that is missing.
    `outside` is the result of `_outside` for the text, if it is known.
    """
    if outside is None:
        outside = _outside(_unescaped(data))
    if _outside(_unescaped(encoded)).count(b":") != outside.count(b":"):
        raise WireError(INVALID_REQUEST, f"Invalid request: duplicate member{_duplicate(data)}")


class _RawResponse(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    jsonrpc: str
    id: RequestId
    result: msgspec.Raw


_decode_raw: Callable[[bytes], _RawResponse] = msgspec.json.Decoder(_RawResponse).decode


def decode_raw(data: bytes, *, max_depth: int = 64) -> Message | list[Message]:
    """Decode as `decode`, but leave the result of a response as JSON text (`msgspec.Raw`) without line breaks.

    The text is valid JSON and UTF-8, has no lone surrogates, and is not nested deeper than `max_depth`. Unlike `decode`,
    this does not look for duplicate members in a result: we read nothing from it, and pass on what the server sent.

    Raises:
        WireError: as `decode`.
    """
    # A text with a line break is decoded and encoded again.
    if b"\n" not in data and b"\r" not in data:
        try:
            raw = _decode_raw(data)
            # `Raw` checks the grammar and surrogates, but neither UTF-8 nor nesting.
            data.isascii() or data.decode()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _with_raw_results(decode(data, max_depth=max_depth))
        brackets = data.count(b"{") + data.count(b"[")
        if brackets > max_depth:
            _check_shape(data, brackets, max_depth, sys.maxsize)
        if raw.jsonrpc == "2.0":
            return Response(_checked_id(raw.id), raw.result, None)
    return _with_raw_results(decode(data, max_depth=max_depth))


def _with_raw_results(message: Message | list[Message]) -> Message | list[Message]:
    if isinstance(message, list):
        return [_with_raw_result(one) for one in message]
    return _with_raw_result(message)


def _with_raw_result(message: Message) -> Message:
    if isinstance(message, Response) and message.error is None:
        return Response(message.id, msgspec.Raw(encode(message.result)), None)
    return message


_NAMED_BYTES: Final = 16_384
_NO_STRUCTURE: Final = bytes(byte for byte in range(256) if byte not in b'"{[]},:')
_AS_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_STEPS: Final = bytes.maketrans(b"[]", b"\x01\xff")
"""Brackets as signed bytes: one level down, one level up."""
_ROUNDS: Final = 8
"""Most texts have no more levels."""


def _check_shape(data: bytes, brackets: int, max_depth: int, max_values: int) -> bytes | None:
    """Refuse a text with too many values or levels. Only one that may have too many is counted outside of strings.

    Returns the result of `_outside` for the text, if it was needed.
    """
    if brackets <= max_depth and brackets + data.count(b",") < max_values:
        return None
    unescaped = _unescaped(data)
    # Each member has at most two strings. A text with more of them is not cut at each of their quotes.
    if unescaped.count(b'"') > 4 * max_values:
        raise _too_many(max_values)
    outside = _outside(unescaped)
    if len(outside) > max_values and _values(outside) > max_values:
        raise _too_many(max_values)
    if brackets > max_depth and _depth(outside) > max_depth:
        raise WireError(INVALID_REQUEST, f"Invalid request: nested deeper than {max_depth} levels")
    return outside


# These scans run in C and take a few milliseconds for the largest message; a loop in Python would take a second.


def _unescaped(data: bytes) -> bytes:
    """Return the text without escaped quotes, so that every quote begins or ends a string."""
    return data.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in data else data


def _outside(unescaped: bytes) -> bytes:
    """Return the brackets, commas and colons of a text without escaped quotes that are not inside its strings.

    Of a string, only these characters and its quotes are kept at first. So most strings are an empty pair of quotes,
    which one replacement removes. Only if a quote is left, the text is cut at every quote.
    """
    kept = unescaped.translate(None, _NO_STRUCTURE)
    outside = kept.replace(b'""', b"")
    return outside if b'"' not in outside else b"".join(kept.split(b'"')[::2])


def _depth(outside: bytes) -> int:
    """Return how deep a text is nested, or more if its brackets do not match. Each round removes the innermost level."""
    left = outside.translate(_AS_BRACKETS, b",:")
    for depth in range(_ROUNDS):
        if not left:
            return depth
        left = left.replace(b"[]", b"")
    return _ROUNDS + max(accumulate(memoryview(left.translate(_STEPS)).cast("b")), default=0)


def _values(data: bytes) -> int:
    """Return an upper bound for the number of values: each but the first follows a comma or a bracket."""
    return 1 + data.count(b",") + data.count(b"{") + data.count(b"[")


def _too_many(max_values: int) -> WireError:
    return WireError(INVALID_REQUEST, f"Invalid request: a message has at most {max_values} values")


def cost(data: bytes, max_values: int) -> int:
    """Estimate the memory of a message, text and decoded values together, before it is decoded."""
    values = _values(data)
    if values > _MANY and len(data) <= _EXACT_BYTES:
        # Commas inside strings are not values, and a table in a string has many.
        values = _values(_outside(_unescaped(data)))
    return len(data) + min(values, max_values) * VALUE_BYTES


def _duplicate(data: bytes) -> str:
    """Return the name of the duplicate member, for the error; empty for a long message, where the search would take long."""
    found: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        found.extend(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)

    if len(data) <= _NAMED_BYTES:
        json.JSONDecoder(object_pairs_hook=look).decode(data.decode())
    return f" {found[0][:40]!r}" if found else ""


_USUAL: Final = len(("jsonrpc", "id", "method", "params"))


def _classify(value: Any) -> Message:
    if type(value) is not dict:
        raise WireError(INVALID_REQUEST, "Invalid request: a message is a JSON object")
    if len(value) == _USUAL:
        # Nearly every message has these four members. All others are checked member by member.
        get = value.get
        number, method, params = get("id"), get("method"), get("params")
        if (
            type(number) is int
            and type(method) is str
            and type(params) is dict
            and get("jsonrpc") == "2.0"
            and _MIN_ID <= number <= MAX_ID
        ):
            return Request(number, method, params)
    request_id = value.get("id")
    if type(request_id) is not int and type(request_id) is not str:
        request_id = None
    if value.get("jsonrpc") != "2.0":
        raise WireError(INVALID_REQUEST, 'Invalid request: "jsonrpc" must be "2.0"', request_id)
    if "method" in value:
        return _call(value, request_id)
    if "result" in value or "error" in value:
        return _response(value, request_id)
    raise WireError(INVALID_REQUEST, "Invalid request: neither a method nor a response", request_id)


def _call(value: dict[str, Any], request_id: RequestId | None) -> Request | Notification:
    method = value["method"]
    # null counts as no params: several clients send it.
    params = value.get("params")
    if params is None:
        params = {}
    if type(method) is not str:
        raise WireError(INVALID_REQUEST, 'Invalid request: "method" must be a string', request_id)
    if type(params) is not dict:
        raise WireError(INVALID_REQUEST, 'Invalid request: "params" must be an object', request_id)
    if "result" in value or "error" in value:
        raise WireError(INVALID_REQUEST, "Invalid request: both a method and a response", request_id)
    if "id" not in value:
        return Notification(method, params)
    return Request(_checked_id(request_id), method, params)


def _response(value: dict[str, Any], request_id: RequestId | None) -> Response:
    error = value.get("error")
    if "error" not in value:
        return Response(_checked_id(request_id), value["result"], None)
    if "result" in value:
        raise WireError(INVALID_REQUEST, "Invalid request: both a result and an error", request_id)
    if type(error) is not dict or type(error.get("code")) is not int or type(error.get("message")) is not str:
        raise WireError(
            INVALID_REQUEST, "Invalid request: an error needs an integer code and a message", request_id
        )
    return Response(_checked_id(request_id), None, error)


def _checked_id(request_id: RequestId | None) -> RequestId:
    if type(request_id) is int and -MAX_ID <= request_id <= MAX_ID:
        return request_id
    if type(request_id) is str and len(request_id.encode()) <= MAX_ID_LENGTH:
        return request_id
    raise WireError(
        INVALID_REQUEST,
        f"Invalid request: an id is a string of at most {MAX_ID_LENGTH} bytes or an integer within ±2^53",
    )


def result_message(request_id: RequestId, result: bytes) -> bytes:
    """Return the response with an already encoded result."""
    return b"".join((b'{"jsonrpc":"2.0","id":', encode(request_id), b',"result":', result, b"}"))


def error_message(request_id: RequestId | None, code: int, message: str, data: object = None) -> bytes:
    """Return the response with an error; without an id if none could be read."""
    error: dict[str, object] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    if request_id is None:
        return encode({"jsonrpc": "2.0", "error": error})
    return encode({"jsonrpc": "2.0", "id": request_id, "error": error})


def refusal(request_id: RequestId | None, error: McpError) -> bytes:
    """Return the response for an exception."""
    return error_message(request_id, error.code, error.message, error.data)


def request_message(request_id: RequestId, method: str, params: object) -> bytes:
    """Return a request; `params` is anything that the encoder accepts."""
    return encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def notification_message(method: str, params: object = None) -> bytes:
    """Return a notification; without `params` if there are none."""
    if params is None:
        return encode({"jsonrpc": "2.0", "method": method})
    return encode({"jsonrpc": "2.0", "method": method, "params": params})
