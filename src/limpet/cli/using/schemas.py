"""Reading the schema of a tool or a form. A server may send anything: parts that are not valid count as missing."""

from collections.abc import Mapping
from typing import Any


def properties_of(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the members of an object, each with its own schema, a reference followed."""
    found = schema.get("properties")
    if not isinstance(found, Mapping):
        return {}
    return {str(name): resolved(member, schema) for name, member in found.items()}


def required_of(schema: Mapping[str, Any]) -> list[str]:
    """Return the names of the required members."""
    found = schema.get("required")
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def choices_of(schema: Mapping[str, Any]) -> list[Any]:
    """Return the values that are allowed; empty: all."""
    found = schema.get("enum")
    return found if isinstance(found, list) else []


def kinds_of(schema: Mapping[str, Any]) -> set[str]:
    """Return the types that a schema names; empty: any."""
    given = schema.get("type")
    if isinstance(given, str):
        return {given}
    if isinstance(given, list):
        return {kind for kind in given if isinstance(kind, str)}
    either = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(either, list):
        every = [kinds_of(one) for one in either if isinstance(one, Mapping)]
        return set[str]().union(*every) if all(every) else set()
    return {"string"} if choices_of(schema) else set()


def resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema that a reference within the same document names."""
    if not isinstance(schema, Mapping):
        return {}
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return schema
    found: Any = root
    for part in reference[2:].split("/"):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}
