"""Headers that repeat parts of a request's body (2026-07-28), so that proxies can route without parsing the body. Pure.

Header and body must be equal: otherwise a proxy would check one value and the server would execute another.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from limpet.errors import ConfigError, HeaderMismatch
from limpet.protocol.sessionless import NAMED

PARAM_PREFIX: Final = "mcp-param-"
_SENTINEL_START, _SENTINEL_END = "=?base64?", "?="
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PLAIN: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?|")
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
_TYPES: Final = frozenset({"string", "integer", "boolean"})
_NOT_REACHED: Final = object()
SAFE: Final = 2**53 - 1
"""The largest integer that every JSON parser reads exactly. Mirrored integers are at most as large."""

GetHeader = Callable[[str], str | None]
"""Returns a header by lower-case name; None if it is missing."""


class MirroredParameter(Struct, frozen=True):
    """A parameter of a tool that a header repeats: the header's lower-case name and the path to the value."""

    header: str
    path: tuple[str, ...]


# Encoding and decoding


def encode_value(value: str | int | bool) -> str:  # noqa: FBT001 - a parameter's value
    """Return a value in the form of a header."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    looks_encoded = text.startswith(_SENTINEL_START) and text.endswith(_SENTINEL_END)
    if _PLAIN.fullmatch(text) and not looks_encoded:
        return text
    return _SENTINEL_START + base64.b64encode(text.encode()).decode() + _SENTINEL_END


def decode_value(text: str, header: str) -> str:
    """Return the value of a header.

    Raises:
        HeaderMismatch: it has characters that a header may not have, or its encoding is not valid.
    """
    if text.startswith(_SENTINEL_START) and text.endswith(_SENTINEL_END):
        try:
            inside = text[len(_SENTINEL_START) : -len(_SENTINEL_END)]
            return base64.b64decode(inside.encode("ascii"), validate=True).decode()
        except (binascii.Error, UnicodeError, ValueError):
            raise HeaderMismatch(f"{header} is not valid base64 of UTF-8 text") from None
    if not _PLAIN.fullmatch(text):
        raise HeaderMismatch(f"{header} has characters that need the =?base64?…?= form")
    return text


# The mirrored parameters of a tool's schema


def mirrored_parameters(schema: Mapping[str, Any], tool: str) -> tuple[MirroredParameter, ...]:
    """Return the mirrored parameters of an input schema.

    Raises:
        ConfigError: an `x-mcp-header` breaks a rule; it names the rule.
    """
    found = tuple(_reachable(schema, (), tool))
    if len(found) != _count(schema):
        raise ConfigError(
            f"tool {tool}: x-mcp-header is allowed only on parameters reached through `properties` alone"
        )
    names = [item.header for item in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"tool {tool}: two parameters have the x-mcp-header {name[len(PARAM_PREFIX) :]!r}"
            )
    return found


def _reachable(schema: Mapping[str, Any], path: tuple[str, ...], tool: str) -> Iterator[MirroredParameter]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return
    for name, part in properties.items():
        if not isinstance(part, Mapping):
            continue
        if "x-mcp-header" in part:
            header = part["x-mcp-header"]
            if not isinstance(header, str) or not _TOKEN.fullmatch(header):
                raise ConfigError(f"tool {tool}: x-mcp-header {header!r} of {name!r} is not a header name")
            if part.get("type") not in _TYPES:
                raise ConfigError(
                    f"tool {tool}: x-mcp-header needs a string, integer or boolean, which {name!r} is not"
                )
            yield MirroredParameter(PARAM_PREFIX + header.lower(), (*path, name))
        yield from _reachable(part, (*path, name), tool)


def _count(schema: object) -> int:
    """Count the annotations anywhere in a schema; a property with the name `x-mcp-header` is not one."""
    if isinstance(schema, Mapping):
        own = int("x-mcp-header" in schema and not isinstance(schema["x-mcp-header"], Mapping))
        return own + sum(_count(part) for part in schema.values())
    if isinstance(schema, list):
        return sum(map(_count, schema))
    return 0


def values_of(mirrored: tuple[MirroredParameter, ...], arguments: object) -> Iterator[tuple[str, Any]]:
    """Yield header name and value of every mirrored parameter that has a value; null is not a value."""
    for item in mirrored:
        value: Any = arguments
        for step in item.path:
            value = value.get(step, _NOT_REACHED) if isinstance(value, Mapping) else _NOT_REACHED
        if value is not _NOT_REACHED and value is not None:
            yield item.header, value


def headers_of(mirrored: tuple[MirroredParameter, ...], arguments: object) -> dict[str, str]:
    """Return the headers that repeat parameters of a call.

    A value of another type than the schema's is left out, and so is an integer that is not safe: the server refuses
    both.
    """
    values = values_of(mirrored, arguments)
    return {
        header: encode_value(value)
        for header, value in values
        if isinstance(value, str | int) and not _is_unsafe(value)
    }


def _is_unsafe(value: object) -> bool:
    return isinstance(value, int) and abs(value) > SAFE


# Checking


def check_headers(get: GetHeader, version: str, method: str, params: Mapping[str, Any]) -> None:
    """Check the standard headers against the body.

    Raises:
        HeaderMismatch: one is missing, malformed or different.
    """
    _check_equal("MCP-Protocol-Version", get("mcp-protocol-version"), version)
    _check_equal("Mcp-Method", get("mcp-method"), method)
    source = NAMED.get(method)
    if source is not None:
        given, name = get("mcp-name"), params.get(source)
        if given is None:
            raise HeaderMismatch(f"the header Mcp-Name is missing; {method} needs it")
        if isinstance(name, str):
            _check_equal("Mcp-Name", decode_value(given, "Mcp-Name"), name)


def check_parameters(get: GetHeader, mirrored: tuple[MirroredParameter, ...], arguments: object) -> None:
    """Check the headers that mirror a tool's parameters.

    Raises:
        HeaderMismatch: one is missing, malformed or different, or the body has no value for it.
    """
    values = dict(values_of(mirrored, arguments))
    for item in mirrored:
        given = get(item.header)
        if item.header in values:
            if _is_unsafe(values[item.header]):
                raise HeaderMismatch(f"the value for {item.header} is not between -{SAFE} and {SAFE}")
            if given is None:
                raise HeaderMismatch(f"the header {item.header} is missing; the body has a value for it")
            if not _agree(decode_value(given, item.header), values[item.header]):
                raise HeaderMismatch(f"the header {item.header} differs from the body's value")
        elif given is not None:
            raise HeaderMismatch(f"the header {item.header} is given, but the body has no value for it")


def _check_equal(header: str, given: str | None, wanted: str) -> None:
    if given is None:
        raise HeaderMismatch(f"the header {header} is missing")
    if given != wanted:
        raise HeaderMismatch(f"the header {header} differs from the body")


def _agree(text: str, value: object) -> bool:
    """Compare a header with a value; integers are compared as numbers, so 42.0 equals 42."""
    if isinstance(value, bool):
        return text == str(value).lower()
    if isinstance(value, int):
        if not _NUMBER.fullmatch(text):
            return False
        whole, _, fraction = text.partition(".")
        return not fraction.strip("0") and len(whole) <= 20 and int(whole) == value  # noqa: PLR2004
    if isinstance(value, float):
        return bool(_NUMBER.fullmatch(text)) and float(text) == value
    return text == value
