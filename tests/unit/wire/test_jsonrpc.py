"""Valid and invalid messages, and the code of each error: one table per kind."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from bench.decoding import messages, ratio
from limpet.errors import INVALID_REQUEST, PARSE_ERROR, Busy, WireError
from limpet.wire.jsonrpc import (
    Notification,
    Request,
    Response,
    decode,
    decode_raw,
    encode,
    error_message,
    notification_message,
    refusal,
    request_message,
    result_message,
)


def call(params: str = "{}", *, request_id: str = "1", method: str = '"m"') -> bytes:
    return f'{{"jsonrpc":"2.0","id":{request_id},"method":{method},"params":{params}}}'.encode()


def code_of(data: bytes) -> int:
    with pytest.raises(WireError) as raised:
        decode(data)
    return raised.value.code


# Duplicate members: two parsers would read two messages.

DUPLICATES: Final = {
    "in the envelope": b'{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}',
    "of the method": b'{"jsonrpc":"2.0","id":1,"method":"m","method":"n"}',
    "in params": call('{"a":1,"a":2}'),
    "with equal values": call('{"a":1,"a":1}'),
    "in _meta": call('{"_meta":{"progressToken":1,"progressToken":2}}'),
    "inside an array": call('{"x":[[{"a":1,"a":2}]]}'),
    "with an escaped letter": call(r'{"\u0061":1,"a":2}'),
    "with escapes in both": call(r'{"\u0061":1,"\u0061":2}'),
    "with an escaped slash": call(r'{"a\/b":1,"a/b":2}'),
    "as a surrogate pair and as UTF-8": call(r'{"\ud83d\ude00":1,"😀":2}'),
    "the empty name": call('{"":1,"":2}'),
    "with white space": call('{ "a" : 1 ,\t"a"\n:\r2 }'),
    "hidden by a number that grows": call('{"x":1e6,"a":1,"a":2}'),
    "hidden by a float that grows by less": call('{"x":1e5,"y":1,"y":22}'),
    "in an answer": b'{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}',
    "in one message of a batch": b'[{"jsonrpc":"2.0","method":"m"},{"jsonrpc":"2.0","method":"m","method":"n"}]',
}


@pytest.mark.parametrize("data", DUPLICATES.values(), ids=DUPLICATES.keys())
def test_a_duplicate_member_is_refused_wherever_it_hides(data: bytes) -> None:
    assert code_of(data) == INVALID_REQUEST


def test_no_number_can_make_up_for_the_bytes_of_a_second_member() -> None:
    for exponent in range(1, 30):
        for padding in range(1, 30):
            data = call(f'{{"x":1e{exponent},"a":1,"a":{"2" * padding}}}')
            with pytest.raises(WireError, match="duplicate member 'a'"):
                decode(data)


@pytest.mark.parametrize(
    "params",
    ['{"a":1,"A":2}', '{"a":"a","b":"a"}', '{"x":{"a":1},"y":{"a":2}}', '{"a":"\\"a\\":1"}', '{ "a" : 1e5 }'],
)
def test_names_that_only_look_alike_are_not_duplicates(params: str) -> None:
    message = decode(call(params))
    assert isinstance(message, Request)
    assert message.params == msgspec.json.decode(params)


# Not JSON, or JSON that parsers disagree about.

UNREADABLE: Final = {
    "nothing": b"",
    "white space": b" \n ",
    "NaN": call('{"a":NaN}'),
    "Infinity": call('{"a":Infinity}'),
    "-Infinity": call('{"a":-Infinity}'),
    "a number out of range": call('{"a":1e400}'),
    "an endless integer": call('{"a":' + "9" * 5000 + "}"),
    "an endless integer and white space": call('{"a": ' + "9" * 5000 + "}"),
    "a leading zero": call('{"a":01}'),
    "a plus sign": call('{"a":+1}'),
    "a bare fraction": call('{"a":.5}'),
    "hexadecimal": call('{"a":0x1}'),
    "single quotes": b"{'jsonrpc':'2.0'}",
    "a trailing comma": call('{"a":1,}'),
    "a comment": call('{/*x*/"a":1}'),
    "a lone high surrogate": call(r'{"a":"\ud800"}'),
    "a lone low surrogate": call(r'{"a":"\udc00 "}'),
    "surrogates in the wrong order": call(r'{"a":"\udc00\ud800"}'),
    "a lone surrogate in a name": call(r'{"\ud800":1}'),
    "a surrogate as bytes": call('{"a":"?"}').replace(b"?", b"\xed\xa0\x80"),
    "bad UTF-8 in a string": call('{"a":"?"}').replace(b"?", b"\xff"),
    "bad UTF-8 in a name": call('{"?":1}').replace(b"?", b"\xff"),
    "overlong UTF-8": call('{"a":"?"}').replace(b"?", b"\xc0\xaf"),
    "cut UTF-8": call('{"a":"?"}').replace(b"?", b"\xe2\x82"),
    "a byte order mark": b"\xef\xbb\xbf" + call(),
    "UTF-16": call().decode().encode("utf-16"),
    "a raw control character": call('{"a":"\x01"}'),
    "a raw newline in a string": call('{"a":"\n"}'),
    "an unknown escape": call(r'{"a":"\x"}'),
    "an open object": call()[:-1],
    "two messages": call() + call(),
    "a closing bracket too many": call() + b"}",
}


@pytest.mark.parametrize("data", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_text_that_is_not_strict_json_is_a_parse_error(data: bytes) -> None:
    assert code_of(data) == PARSE_ERROR


# Time


MOST: Final = {
    "a plain call": 5.0,
    "a call with a URL": 9.0,
    "a table of 1 KB": 3.5,
    "objects of 1 KB": 4.0,
    "a text": 6.5,
    "a program": 6.5,
}
"""Times that were measured, and half as much again. A fixed part of 1 to 4 µs is most of the time of a short message."""


@pytest.mark.parametrize(
    "write", [encode, lambda message: json.dumps(message).encode()], ids=["compact", "spaced"]
)
@pytest.mark.parametrize("title", messages())
def test_the_checks_of_a_table_take_no_longer_than_decoding_it(
    title: str, write: Callable[[object], bytes]
) -> None:
    # 1.2 to 1.5 times for a long table; 2.5 to 5 with a scan or an encoding too many. That is Python 3.11,
    # with which `make test` measures; with 3.12 and 3.13 a long table takes 2.0 to 2.7 times.
    most = MOST.get(title, 2.2) * (1.0 if sys.version_info < (3, 12) else 1.5)
    assert min(ratio(write(messages()[title])).times for _ in range(3)) < most


# How many values


def list_of(unit: str, count: int) -> bytes:
    return call('{"a":[' + ",".join([unit] * count) + "]}")


@pytest.mark.parametrize(("unit", "each"), [("1", 1), ('"a"', 1), ("[]", 2), ('{"a":1}', 2), ('"a,b"', 1)])
def test_a_message_has_at_most_so_many_values(unit: str, each: int) -> None:
    # Envelope, params and list are three brackets; the envelope has three commas.
    most = (1_000 - 6) // each
    assert isinstance(decode(list_of(unit, most), max_values=1_000), Request)
    with pytest.raises(WireError, match="at most 1000 values") as refused:
        decode(list_of(unit, most + 1), max_values=1_000)
    assert refused.value.code == INVALID_REQUEST
    assert isinstance(decode(list_of(unit, most + 1)), Request), "a client reads the answer that it asked for"


@pytest.mark.parametrize("text", [",[{" * 2_000, '\\",' * 2_000, "\\\\," * 2_000, '\\\\\\",' * 2_000])
def test_commas_and_brackets_inside_strings_are_not_values(text: str) -> None:
    assert isinstance(decode(call(f'{{"a":"{text}"}}'), max_values=1_000), Request)


def test_a_short_message_has_no_more_values_either() -> None:
    with pytest.raises(WireError, match="at most 40 values"):
        decode(list_of("1", 50), max_values=40)


def test_a_batch_has_no_more_values_than_any_message() -> None:
    with pytest.raises(WireError, match="at most 1000 values"):
        decode(b"[" + b",".join([call()] * 200) + b"]", max_values=1_000)


LONG: Final = 4 * 1024 * 1024 - 100
HOSTILE: Final = {
    "arrays": list_of("[]", LONG // 3),
    "objects": list_of('{"a":1}', LONG // 8),
    "texts": list_of('"a"', LONG // 4),
    "as many arrays as are allowed, and white space": list_of("[] ", 49_990),
    "as many objects as are allowed, and white space": list_of('{"a":1} ', 49_990),
    "as many members as are allowed, and white space": call(
        "{" + ", ".join(f'"k{n}":1' for n in range(99_990)) + "}"
    ),
    "escaped quotes and commas": call('{"a":"' + '\\",' * (LONG // 3) + '"}'),
    "quotes": call('{"a":' + '"' * LONG + "}"),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_message_of_4_mib_keeps_the_loop_for_long(data: bytes) -> None:
    # Tens of milliseconds of the processor on a quiet machine; more than a second without the bound.
    spent = []
    for _ in range(3):
        before = time.process_time()
        with contextlib.suppress(WireError):
            decode(data, max_values=100_000)
        spent.append(time.process_time() - before)
    assert min(spent) < 0.15


# Depth


def nested(depth: int, opening: str = "[", closing: str = "]") -> bytes:
    """Return a message whose deepest value is on this level; envelope and params are the first two."""
    inner = opening * (depth - 2) + ("1" if closing == "}" else "") + closing * (depth - 2)
    return call(f'{{"a":{inner}}}')


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_64_levels_are_a_message_and_65_are_not(opening: str, closing: str) -> None:
    assert isinstance(decode(nested(64, opening, closing)), Request)
    assert code_of(nested(65, opening, closing)) == INVALID_REQUEST


@pytest.mark.parametrize("siblings", [0, 100, 2_000])
def test_a_deep_value_among_many_siblings_is_found(siblings: int) -> None:
    for levels in (60, 61):
        rest = "[" * levels + "]" * levels
        data = call('{"a":[' + "[]," * siblings + rest + "]}")
        # Envelope, params, and the list are the other three.
        assert isinstance(decode(data, max_depth=63 if levels == 60 else 64), Request)
        with pytest.raises(WireError, match="nested deeper"):
            decode(data, max_depth=62)


def test_an_invalid_text_that_is_too_deep_is_reported_as_too_deep() -> None:
    assert code_of(b"[" * 65) == INVALID_REQUEST
    assert code_of(b"[" * 64) == PARSE_ERROR


@pytest.mark.parametrize(
    "text", ["[" * 500, "{[" * 200, '\\"[' * 200, "\\\\" * 3 + "[" * 200, '\\"' + "[" * 99]
)
def test_brackets_inside_strings_are_not_depth(text: str) -> None:
    assert isinstance(decode(call(f'{{"a":"{text}"}}')), Request)


def test_a_text_is_not_decoded_if_it_is_deeper_than_the_stack_of_a_thread() -> None:
    # In a process of its own: the decoder would end it.
    program = """
import sys, threading
from limpet.errors import WireError
from limpet.wire.jsonrpc import decode
sys.setrecursionlimit(1_000_000)
def refused():
    try:
        decode(b"[" * 9_990)
    except WireError as error:
        print(error)
threading.stack_size(512 * 1024)
thread = threading.Thread(target=refused)
thread.start()
thread.join()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert b"nested deeper than 64" in done.stdout


def test_brackets_after_a_string_that_ends_in_a_backslash_are_depth() -> None:
    assert code_of(call('{"a":"\\\\","b":' + "[" * 63 + "]" * 63 + "}")) == INVALID_REQUEST


def test_many_siblings_are_not_depth() -> None:
    assert isinstance(decode(call('{"a":[' + "[]," * 999 + "{}]}")), Request)


@pytest.mark.parametrize(
    "data",
    [b"[" * 65 + b'"' + b'\\"' * 300_000, b"{" * 65 + b'"\\' * 300_000, b"[" * 4_000_000, b"[]" * 500_000],
    ids=["an open string of quotes", "quotes and backslashes", "brackets only", "pairs"],
)
def test_a_hostile_text_costs_no_more_than_its_length(data: bytes) -> None:
    began = time.process_time()
    with pytest.raises(WireError):
        decode(data)
    assert time.process_time() - began < 2


def test_a_duplicate_among_many_members_is_found_in_one_pass() -> None:
    names = [f'"{number}":1' for number in range(200_000)]
    began = time.process_time()
    assert code_of(call("{" + ",".join([*names, names[-1]]) + "}")) == INVALID_REQUEST
    assert time.process_time() - began < 2


# Ids


@pytest.mark.parametrize("value", [0, -1, 1, 2**53, -(2**53), "", "1", "x" * 256, "é" * 128, "a\u0000b"])
def test_an_id_comes_back_as_it_was_sent(value: int | str) -> None:
    message = decode(call(request_id=msgspec.json.encode(value).decode()))
    assert isinstance(message, Request)
    assert (type(message.id), message.id) == (type(value), value)


BAD_IDS: Final = [
    "null", "1.5", "1.0", "1e3", "true", "false", "[]", "{}", '["1"]',
    str(2**53 + 1), str(-(2**53) - 1), str(2**63), str(2**64), str(2**64 + 1), "9" * 40,
    f'"{"x" * 257}"', f'"{"é" * 129}"',
]  # fmt: skip


@pytest.mark.parametrize("request_id", BAD_IDS)
def test_an_id_that_could_be_read_as_another_is_refused_and_not_echoed(request_id: str) -> None:
    with pytest.raises(WireError) as raised:
        decode(call(request_id=request_id))
    assert raised.value.code == INVALID_REQUEST
    assert raised.value.request_id is None


@pytest.mark.parametrize("request_id", BAD_IDS)
def test_an_answer_with_such_an_id_is_refused_too(request_id: str) -> None:
    assert code_of(f'{{"jsonrpc":"2.0","id":{request_id},"result":{{}}}}'.encode()) == INVALID_REQUEST


# Shape

INVALID: Final = {
    "a number": b"1",
    "a string": b'"x"',
    "null": b"null",
    "an empty batch": b"[]",
    "a batch in a batch": b'[[{"jsonrpc":"2.0","method":"m"}]]',
    "a batch with a number": b'[{"jsonrpc":"2.0","method":"m"},1]',
    "no version": b'{"id":1,"method":"m"}',
    "version 1.0": b'{"jsonrpc":"1.0","id":1,"method":"m"}',
    "a number as version": b'{"jsonrpc":2.0,"id":1,"method":"m"}',
    "Jsonrpc": b'{"Jsonrpc":"2.0","id":1,"method":"m"}',
    "an empty object": b"{}",
    "only a version": b'{"jsonrpc":"2.0"}',
    "only an id": b'{"jsonrpc":"2.0","id":1}',
    "Method": b'{"jsonrpc":"2.0","id":1,"Method":"m"}',
    "METHOD": b'{"jsonrpc":"2.0","id":1,"METHOD":"m"}',
    "a number as method": call(method="1"),
    "null as method": call(method="null"),
    "params as array": call("[]"),
    "params as string": call('"x"'),
    "params as false": call("false"),
    "params as zero": call("0"),
    "a method and a result": b'{"jsonrpc":"2.0","id":1,"method":"m","result":{}}',
    "a method and an error": b'{"jsonrpc":"2.0","id":1,"method":"m","error":{"code":1,"message":"x"}}',
    "a result and an error": b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}',
    "a result and a null error": b'{"jsonrpc":"2.0","id":1,"result":{},"error":null}',
    "a null error": b'{"jsonrpc":"2.0","id":1,"error":null}',
    "an error as string": b'{"jsonrpc":"2.0","id":1,"error":"x"}',
    "an error without code": b'{"jsonrpc":"2.0","id":1,"error":{"message":"x"}}',
    "an error without message": b'{"jsonrpc":"2.0","id":1,"error":{"code":1}}',
    "a fractional code": b'{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":"x"}}',
    "a code that is true": b'{"jsonrpc":"2.0","id":1,"error":{"code":true,"message":"x"}}',
    "an answer without id": b'{"jsonrpc":"2.0","result":{}}',
    "an answer to null": b'{"jsonrpc":"2.0","id":null,"result":{}}',
}  # fmt: skip


@pytest.mark.parametrize("data", INVALID.values(), ids=INVALID.keys())
def test_json_that_is_no_message_is_an_invalid_request(data: bytes) -> None:
    assert code_of(data) == INVALID_REQUEST


@pytest.mark.parametrize("other", ['"result":{}', '"error":{"code":1,"message":"x"}'])
@pytest.mark.parametrize("params", ["", '"params":{},'])
def test_a_message_that_is_both_a_request_and_a_response_is_named(params: str, other: str) -> None:
    with pytest.raises(WireError, match="both a method and a response") as raised:
        decode(f'{{"jsonrpc":"2.0","id":1,"method":"m",{params}{other}}}'.encode())
    assert raised.value.request_id == 1


def test_a_refused_request_has_its_id_echoed_where_it_could_be_read() -> None:
    with pytest.raises(WireError) as raised:
        decode(call("[]", request_id='"seven"'))
    assert raised.value.request_id == "seven"


@pytest.mark.parametrize("params", ["null", "{}"])
def test_no_params_null_and_an_empty_object_are_the_same(params: str) -> None:
    without = decode(b'{"jsonrpc":"2.0","id":1,"method":"m"}')
    assert decode(call(params)) == without == Request(1, "m", {})


def test_each_kind_of_message_is_recognised() -> None:
    assert decode(b'{"jsonrpc":"2.0","method":"n","params":{"a":null}}') == Notification("n", {"a": None})
    assert decode(b'{"jsonrpc":"2.0","id":"1","result":null}') == Response("1", None, None)
    error = {"code": -1, "message": "x", "data": [1]}
    assert decode(b'{"jsonrpc":"2.0","id":1,"error":%b}' % msgspec.json.encode(error)) == Response(
        1, None, error
    )


def test_an_unknown_member_is_ignored() -> None:
    assert decode(b'{"jsonrpc":"2.0","id":1,"method":"m","extra":[1]}') == Request(1, "m", {})


def test_a_batch_keeps_its_order() -> None:
    batch = b"[" + call(request_id="2") + b"," + call(request_id='"2"') + b"]"
    assert decode(batch) == [Request(2, "m", {}), Request("2", "m", {})]


@pytest.mark.parametrize("request_id", [7, "7", 'quo"te'])
def test_a_written_message_is_read_back_equal(request_id: int | str) -> None:
    result: dict[str, Any] = {"content": [{"type": "text", "text": "line\nline\u2028"}]}
    assert decode(result_message(request_id, msgspec.json.encode(result))) == Response(
        request_id, result, None
    )
    assert decode(request_message(request_id, "m", {"a": 1})) == Request(request_id, "m", {"a": 1})
    assert decode(notification_message("n")) == Notification("n", {})
    assert decode(notification_message("n", {"a": 1})) == Notification("n", {"a": 1})
    error = {"code": -31001, "message": "later"}
    assert decode(refusal(request_id, Busy("later"))) == Response(request_id, None, error)
    assert decode(error_message(request_id, 1, "x", {"y": 2})) == Response(
        request_id, None, {"code": 1, "message": "x", "data": {"y": 2}}
    )


def test_no_written_message_holds_a_line_break() -> None:
    assert b"\n" not in error_message(1, 1, "a\nb\r\n")
    assert b"\n" not in notification_message("n", {"a": "\n\r"})


# Raw results


def response(result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"result":' + result + b"}"


def raw(result: bytes) -> bytes:
    message = decode_raw(response(result), max_depth=8)
    assert isinstance(message, Response)
    return bytes(message.result)


def test_a_raw_result_is_the_text_that_the_server_sent() -> None:
    assert raw(b'{ "n": 1.0, "big": 123456789012345678901234567890 }') == (
        b'{ "n": 1.0, "big": 123456789012345678901234567890 }'
    )


def test_a_raw_result_has_no_line_break() -> None:
    assert raw(b'{\n"a":\r\n1}') == b'{"a":1}'


@pytest.mark.parametrize(
    "result",
    [b'"\xff"', b'"\\ud800"', b'"\\uD800"', b'"\x00"', b"[1,]", b"NaN", b"[[[[[[[[1]]]]]]]]", b'"\\q"'],
    ids=repr,
)
def test_a_raw_result_that_another_parser_could_refuse_is_refused(result: bytes) -> None:
    with pytest.raises(WireError):
        raw(result)


@pytest.mark.parametrize(
    ("opening", "closing", "levels"),
    [(b"[", b"]", 1), (b'{"a":', b"}", 1), (b'[{"a":', b"}]", 2), (rb'["\"]\"",', rb',"\"[\""]', 1)],
    ids=repr,
)
def test_a_raw_result_may_be_nested_as_deep_as_the_limit_and_no_deeper(
    opening: bytes, closing: bytes, levels: int
) -> None:
    depth = 60 // levels
    nested = opening * depth + b"1" + closing * depth
    deep = response(b'[{"text":"a"},' + nested + b"]")
    decode_raw(deep, max_depth=62)
    with pytest.raises(WireError, match="nested deeper than 61"):
        decode_raw(deep, max_depth=61)


@pytest.mark.parametrize("text", ["", "[" * 70, '"[', "\\", '\\"[', "]{", '"" [] ""'], ids=repr)
def test_brackets_inside_strings_are_not_levels(text: str) -> None:
    result = msgspec.json.encode([{"text": text, "n": [number]} for number in range(40)])
    assert raw(result) == result


def test_everything_else_is_decoded_as_usual_beside_raw_results() -> None:
    error = b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}'
    request = request_message("a", "ping", {})
    assert decode_raw(error) == decode(error)
    assert decode_raw(request) == decode(request)
    batch = decode_raw(b"[" + request + b"," + response(b"{}") + b"]")
    assert batch == [Request("a", "ping", {}), Response(1, msgspec.Raw(b"{}"), None)]
