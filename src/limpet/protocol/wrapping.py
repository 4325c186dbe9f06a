"""Structured content must be an object, so a plain result is wrapped in one. The output schema marks it. Pure."""

from collections.abc import Mapping
from typing import Any, Final

MARK: Final = "x-fastmcp-wrap-result"
"""The mark by which fastmcp's client recognises a wrapped result; its servers set it too."""
MEMBER: Final = "result"


def wrapped(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of `{"result": value}` for the schema of the value."""
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    outer: dict[str, Any] = {
        "type": "object",
        "properties": {MEMBER: inner},
        "required": [MEMBER],
        MARK: True,
    }
    return outer | ({"$defs": schema["$defs"]} if "$defs" in schema else {})


def wraps(schema: Mapping[str, Any]) -> bool:
    """True if a schema is that of a wrapped value, and not that of an object with a member `result` of its own.

    The official Python SDK sets no mark; it names the object after the tool's function: `addOutput`.
    """
    if MARK in schema:
        return schema[MARK] is True
    properties, title = schema.get("properties"), schema.get("title")
    has_one = isinstance(properties, Mapping) and properties.keys() == {MEMBER}
    return has_one and isinstance(title, str) and title.endswith("Output")
