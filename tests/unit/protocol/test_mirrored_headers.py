"""Headers that mirror the body: every rule of the specification's server validation."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.errors import HEADER_MISMATCH, ConfigError, HeaderMismatch
from limpet.protocol.mirrored_headers import (
    SAFE,
    check_headers,
    check_parameters,
    decode_value,
    encode_value,
    headers_of,
    mirrored_parameters,
)

GOOD = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "echo"}
BODY: dict[str, Any] = {"name": "echo", "arguments": {}}


def check(headers: dict[str, str], method: str = "tools/call", params: dict[str, Any] | None = None) -> None:
    check_headers(headers.get, "2026-07-28", method, BODY if params is None else params)


def test_headers_that_agree_pass() -> None:
    check(GOOD)
    check({**GOOD, "mcp-method": "tools/list"}, "tools/list", {})
    check({**GOOD, "mcp-method": "resources/read", "mcp-name": "a://b"}, "resources/read", {"uri": "a://b"})
    check({**GOOD, "mcp-method": "tasks/get", "mcp-name": "t1"}, "tasks/get", {"taskId": "t1"})


@pytest.mark.parametrize("missing", list(GOOD))
def test_a_missing_header_is_refused(missing: str) -> None:
    with pytest.raises(HeaderMismatch) as refused:
        check({name: value for name, value in GOOD.items() if name != missing})
    assert refused.value.code == HEADER_MISMATCH


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("mcp-protocol-version", "2025-11-25"),
        ("mcp-method", "tools/list"),
        ("mcp-method", "Tools/Call"),
        ("mcp-name", "Echo"),
        ("mcp-name", "other"),
        ("mcp-name", "=?base64?!!!?="),
        ("mcp-name", "=?base64?/w==?="),
        ("mcp-name", "=?BASE64?ZWNobw==?="),
        ("mcp-name", "ech\u00f6"),
        ("mcp-name", " echo"),
        ("mcp-name", "echo\x01"),
    ],
)
def test_a_header_that_differs_from_its_parameter_is_refused(header: str, value: str) -> None:
    with pytest.raises(HeaderMismatch):
        check({**GOOD, header: value})


def test_an_encoded_name_is_decoded_before_it_is_compared() -> None:
    check({**GOOD, "mcp-name": "=?base64?ZWNobw==?="})
    check({**GOOD, "mcp-name": encode_value("größe\n")}, params={"name": "größe\n"})


@given(st.text())
def test_every_text_survives_the_way_through_a_header(text: str) -> None:
    carried = encode_value(text)
    assert carried.isascii()
    assert carried.isprintable() or "\t" in carried
    assert carried == carried.strip()
    assert decode_value(carried, "x") == text


@pytest.mark.parametrize(
    ("value", "carried"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        (42, "42"),
        (-7, "-7"),
        (True, "true"),
        ("", ""),
    ],
)
def test_values_are_carried_as_the_specification_shows(value: str | int, carried: str) -> None:
    assert encode_value(value) == carried


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "deep": {"type": "object", "properties": {"flag": {"type": "boolean", "x-mcp-header": "Flag"}}},
        "plain": {"type": "string"},
    },
}


def check_parameters_of(arguments: object, headers: dict[str, str]) -> None:
    check_parameters(headers.get, mirrored_parameters(SCHEMA, "tool"), arguments)


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({}, {}),
        ({"region": None}, {}),
        ({"region": "eu", "plain": "x"}, {"mcp-param-region": "eu"}),
        ({"region": "é"}, {"mcp-param-region": "=?base64?w6k=?="}),
        ({"count": 42}, {"mcp-param-count": "42"}),
        ({"count": 42}, {"mcp-param-count": "42.0"}),
        ({"count": 42.0}, {"mcp-param-count": "42"}),
        ({"count": -7}, {"mcp-param-count": "-7"}),
        ({"deep": {"flag": False}}, {"mcp-param-flag": "false"}),
        ({"deep": "no object"}, {}),
        ({"region": "eu"}, {"mcp-param-region": "eu", "mcp-param-unknown": "anything"}),
    ],
)
def test_parameters_that_agree_pass(arguments: object, headers: dict[str, str]) -> None:
    check_parameters_of(arguments, headers)


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "eu"}, {}),
        ({"region": "eu"}, {"mcp-param-region": "us"}),
        ({"region": "eu"}, {"mcp-param-region": "EU"}),
        ({"region": "eu"}, {"mcp-param-region": "=?base64?e?="}),
        ({"region": "eu"}, {"mcp-param-region": "e\x7fu"}),
        ({}, {"mcp-param-region": "eu"}),
        ({"region": None}, {"mcp-param-region": "null"}),
        ({"count": 42}, {"mcp-param-count": "42.5"}),
        ({"count": 42}, {"mcp-param-count": "0x2a"}),
        ({"count": 42}, {"mcp-param-count": "4" * 5_000}),
        ({"count": 1}, {"mcp-param-count": "true"}),
        ({"deep": {"flag": True}}, {"mcp-param-flag": "True"}),
    ],
)
def test_parameters_that_differ_are_refused(arguments: object, headers: dict[str, str]) -> None:
    with pytest.raises(HeaderMismatch):
        check_parameters_of(arguments, headers)


@pytest.mark.parametrize(
    "properties",
    [
        {"a": {"type": "string", "x-mcp-header": ""}},
        {"a": {"type": "string", "x-mcp-header": "a b"}},
        {"a": {"type": "string", "x-mcp-header": "a\r\nb"}},
        {"a": {"type": "string", "x-mcp-header": 3}},
        {"a": {"type": "number", "x-mcp-header": "A"}},
        {"a": {"type": "array", "x-mcp-header": "A"}},
        {"a": {"type": "string", "x-mcp-header": "X"}, "b": {"type": "string", "x-mcp-header": "x"}},
        {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}},
        {"a": {"anyOf": [{"type": "string", "x-mcp-header": "A"}]}},
        {"a": {"oneOf": [{"type": "string", "x-mcp-header": "A"}]}},
        {"a": {"allOf": [{"properties": {"b": {"type": "string", "x-mcp-header": "A"}}}]}},
        {"a": {"not": {"type": "string", "x-mcp-header": "A"}}},
        {"a": {"if": {}, "then": {"properties": {"b": {"type": "string", "x-mcp-header": "A"}}}}},
        {
            "a": {"$ref": "#/properties/b/$defs/c"},
            "b": {"$defs": {"c": {"type": "string", "x-mcp-header": "A"}}},
        },
    ],
)
def test_a_tool_with_a_bad_annotation_is_refused_at_registration(properties: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="tool bad"):
        mirrored_parameters({"type": "object", "properties": properties}, "bad")


def test_a_parameter_named_like_the_annotation_is_not_mirrored() -> None:
    assert mirrored_parameters({"properties": {"x-mcp-header": {"type": "string"}}}, "odd") == ()


@pytest.mark.parametrize(
    ("value", "is_safe"), [(SAFE, True), (-SAFE, True), (SAFE + 1, False), (-SAFE - 1, False)]
)
def test_an_integer_beyond_the_safe_range_is_not_mirrored(value: int, is_safe: bool) -> None:
    mirrored = mirrored_parameters(SCHEMA, "tool")
    assert headers_of(mirrored, {"count": value}) == ({"mcp-param-count": str(value)} if is_safe else {})
    if is_safe:
        check_parameters_of({"count": value}, {"mcp-param-count": str(value)})
    else:
        with pytest.raises(HeaderMismatch, match="between"):
            check_parameters_of({"count": value}, {"mcp-param-count": str(value)})
