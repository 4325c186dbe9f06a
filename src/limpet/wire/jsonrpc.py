"""JSON-RPC 2.0: one strict decode of each received message, and the encoding of the messages that we send.

A message passes proxies, gateways and clients with other JSON parsers. If two parsers read one text differently, an
attacker can make one of them check a different message than the other executes. So every text that parsers are known
to read differently is refused here, once, and all other code works on the decoded values.

The checks, in their order (`shape.py` counts values, levels and members):

    size in bytes                the transport, before this module is called
    number of values             before decoding: a hostile text must not cost the time and memory of decoding it.
    grammar, UTF-8, NaN,         by the decoder. Invalid: PARSE_ERROR, −32700.
    lone surrogates
    nesting                      after decoding; before it, if the stack of the decoder has no bound.
    duplicate members            after decoding, everywhere in the message. The decoder keeps the last of two members
                                 with one name, so the members of the text and of the value are counted.
    the shape of the message     last: a request, a notification or a response, with an id of an allowed type and size.
                                 Invalid: INVALID_REQUEST, −32600, with the id if it could be read.

`decode_raw` is for a proxy that forwards results: it leaves the result of a response as JSON text.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from limpet.errors import INVALID_REQUEST, PARSE_ERROR, McpError, WireError
from limpet.wire.shape import LONG, STACK, check_depth, check_text, is_whole

RequestId = int | str
"""The id of a JSON-RPC request: `1` and `"1"` are different ids."""

MAX_ID: Final = 2**53
"""The largest integer that every JSON implementation represents exactly."""
_MIN_ID: Final = -MAX_ID
MAX_ID_LENGTH: Final = 256
_CALL_MEMBERS: Final = len(("jsonrpc", "id", "method", "params"))
_CALL_LEVELS: Final = len(("message", "params", "arguments", "an object", "an empty object"))
_RESULT_MEMBERS: Final = len(("jsonrpc", "id", "result"))
# CPython finds a number in bytes five times as fast as bytes in bytes.
_BRACKET: Final = ord("[")
_BACKSLASH: Final = ord("\\")
_LF: Final = ord("\n")
_CR: Final = ord("\r")
_UNREADABLE: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)

encode: Callable[[object], bytes] = msgspec.json.Encoder().encode


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


BATCH: Final = 100
"""The most messages of a batch that a server takes: each of them costs as much as a POST of its own."""


def decode(
    data: bytes, *, max_depth: int = 64, max_values: int = sys.maxsize, max_batch: int = sys.maxsize
) -> Message | list[Message]:
    """Decode one message, or the messages of a batch array.

    `max_values` and `max_batch` bound the time that a hostile message can take: a value of two bytes costs as much time
    and memory as one of two hundred. A client sets no bound, because it has requested the message.

    Raises:
        WireError: with the JSON-RPC code and, where it could be read, the request's id.
    """
    size = len(data)
    if size > STACK or size > max_values:
        check_text(data, max_depth, max_values)
    try:
        found = _decode_envelope(data)
    except _UNREADABLE as error:
        return _decode_again(data, error, max_depth, max_batch)
    number, method, params = found.id, found.method, found.params
    if (
        type(params) is not dict
        or type(number) is not int
        or type(method) is not str
        or found.result is not UNSET
        or found.error is not UNSET
    ):
        return _decode_rarer(data, found, max_depth)
    # A plain call: each colon of the text belongs to a member of the message, of its params or of an object in them, or
    # to a string there, where it is not escaped. So no member is missing, and an object further inside is empty. Only
    # arrays could be too deep.
    members, in_strings = _CALL_MEMBERS + len(params), 0
    for item in params.values():
        if type(item) is dict:
            members += len(item)
            for inner in item.values():
                if type(inner) is dict:
                    members += len(inner)
                elif type(inner) is str and ":" in inner:
                    in_strings += inner.count(":")
    is_plain = (
        size <= LONG
        and members + in_strings == data.count(b":")
        and not (in_strings and _BACKSLASH in data)
        and max_depth >= _CALL_LEVELS
        and (size <= 2 * max_depth or _BRACKET not in data)
    )
    if not is_plain and not is_whole(data, params, max_depth, outer=_CALL_MEMBERS):
        raise _duplicate(data)
    return Request(number if _MIN_ID <= number <= MAX_ID else _checked_id(number), method, params)


class _Envelope(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """The members of a message. A text that does not fit is decoded as plain values, to name its fault."""

    jsonrpc: Literal["2.0"]
    id: RequestId | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: dict[str, Any] | UnsetType = UNSET
    result: Any = UNSET
    error: dict[str, Any] | UnsetType = UNSET


_decode_envelope: Callable[[bytes], _Envelope] = msgspec.json.Decoder(_Envelope).decode
_decode_plain: Callable[[bytes], Any] = msgspec.json.Decoder().decode


def _decode_rarer(data: bytes, found: _Envelope, max_depth: int) -> Message | list[Message]:
    """Return the message of an envelope: any but a call with params and a number as id."""
    number, method, params, result = found.id, found.method, found.params, found.result
    if found.error is not UNSET:
        return _decode_other(data, max_depth)
    if method is UNSET and params is UNSET and number is not UNSET and result is not UNSET:
        if not is_whole(data, result, max_depth, outer=_RESULT_MEMBERS):
            raise _duplicate(data)
        return Response(_checked_id(number), result, None)
    if method is UNSET or result is not UNSET:
        return _decode_other(data, max_depth)
    members = _CALL_MEMBERS - (number is UNSET) - (params is UNSET)
    if isinstance(params, UnsetType):
        params = {}
    if not is_whole(data, params, max_depth, outer=members):
        raise _duplicate(data)
    if isinstance(number, UnsetType):
        return Notification(method, params)
    return Request(_checked_id(number), method, params)


def _decode_again(data: bytes, error: Exception, max_depth: int, max_batch: int) -> Message | list[Message]:
    """Return the message of a text that does not fit the envelope; raise the error of a text that is not JSON."""
    if isinstance(error, msgspec.ValidationError):
        return _decode_other(data, max_depth, max_batch)
    raise _unreadable(data, error, max_depth) from None


def _decode_other(data: bytes, max_depth: int, max_batch: int = sys.maxsize) -> Message | list[Message]:
    """Decode a batch, an error, a message with unknown members, or an invalid one."""
    try:
        value = _decode_plain(data)
    except _UNREADABLE as error:
        raise _unreadable(data, error, max_depth) from None
    if type(value) is list and len(value) > max_batch:
        raise WireError(INVALID_REQUEST, f"Invalid request: a batch has at most {max_batch} messages")
    if not is_whole(data, value, max_depth):
        raise _duplicate(data)
    if type(value) is not list:
        return _classify(value)
    if not value:
        raise WireError(INVALID_REQUEST, "Invalid request: an empty batch")
    return [_classify(item) for item in value]


def _unreadable(data: bytes, error: Exception, max_depth: int) -> WireError:
    """Return the error for a text that is not JSON. If it is too deep, it is reported as such."""
    try:
        check_depth(data, max_depth)
    except WireError as deep:
        return deep
    return WireError(PARSE_ERROR, f"Parse error: {error}")


class _RawResponse(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    jsonrpc: str
    id: RequestId
    result: msgspec.Raw


_decode_raw: Callable[[bytes], _RawResponse] = msgspec.json.Decoder(_RawResponse).decode


def decode_raw(data: bytes, *, max_depth: int = 64) -> Message | list[Message]:
    """Decode as `decode`, but leave the result of a response as JSON text (`msgspec.Raw`) without line breaks.

    The text is valid JSON and UTF-8, has no lone surrogates, and is not nested deeper than `max_depth`. Unlike
    `decode`,
    this does not look for duplicate members in a result: a proxy reads nothing from it, and passes it on unchanged.

    Raises:
        WireError: as `decode`.
    """
    # A text with a line break is decoded and encoded again.
    if _LF not in data and _CR not in data:
        try:
            raw = _decode_raw(data)
            # `Raw` checks the grammar and surrogates, but neither UTF-8 nor nesting.
            data.isascii() or data.decode()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _with_raw_results(decode(data, max_depth=max_depth))
        if len(data) > 2 * max_depth:
            # Every level takes two brackets.
            check_depth(data, max_depth)
        if raw.jsonrpc == "2.0":
            number = raw.id
            is_short = type(number) is int and _MIN_ID <= number <= MAX_ID
            return Response(number if is_short else _checked_id(number), raw.result, None)
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


def _duplicate(data: bytes) -> WireError:
    """Return the error for a duplicate member, with its name.

    Without it for a long text, where the search would take long.
    """
    found: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        found.extend(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)

    if len(data) <= _NAMED_BYTES:
        json.JSONDecoder(object_pairs_hook=look).decode(data.decode())
    named = f" {found[0][:40]!r}" if found else ""
    return WireError(INVALID_REQUEST, f"Invalid request: duplicate member{named}")


def _classify(value: Any) -> Message:
    if type(value) is not dict:
        raise WireError(INVALID_REQUEST, "Invalid request: a message is a JSON object")
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
