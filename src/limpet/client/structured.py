"""Structured content as Python values, by the output schema of its tool. Pure.

    an object with named properties     a `Record`: a dict whose members are attributes too
    a string with a format              a datetime, date, time, timedelta or UUID
    an array with prefixItems           a tuple; with uniqueItems, a set
    a number                            a float

The schema comes from the server and may be wrong or hostile. So a value that does not fit stays unchanged, nothing is
fetched (`$ref` is followed within the same schema only), no code is generated, and the size of the content limits the
work.
"""

import datetime as dt
import uuid
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from typing_extensions import override

from limpet.protocol.wrapping import MEMBER, wraps

Schema = Mapping[str, Any]
FORMATS: Final[dict[str, type[Any]]] = {
    "date-time": dt.datetime,
    "date": dt.date,
    "time": dt.time,
    "duration": dt.timedelta,
    "uuid": uuid.UUID,
}
TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
HOPS: Final = 16
"""References and alternatives that are followed for one value, and steps of one reference."""
CHOICES: Final = 64
"""Alternatives (`anyOf`, `oneOf`) that are tried for one value."""
REFERENCE: Final = 1_000
"""The longest reference, in characters; a longer one is not followed."""
NOTHING: Final[Schema] = {}


class Record(dict[str, Any]):
    """An object of structured content: its members are keys and attributes.

    A member that has the name of a dict's method (`items`) is a key only.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(
                f"the result has no member {name!r}; it has {', '.join(self) or 'none'}"
            ) from None

    @override
    def __repr__(self) -> str:
        return f"Record({super().__repr__()})"


def shaped(structured: Any, schema: Schema | None) -> Any:
    """Return structured content as Python values by its schema.

    Without a schema unchanged, but unwrapped if it is wrapped.
    """
    looks_wrapped = isinstance(structured, dict) and structured.keys() == {MEMBER}
    if schema is None:
        return structured[MEMBER] if looks_wrapped else structured
    built = _build(structured, schema, schema)
    return built[MEMBER] if looks_wrapped and wraps(schema) else built


def _build(value: Any, schema: Schema, root: Schema) -> Any:
    schema = _resolved(value, schema, root)
    match value:
        case dict():
            return _object(value, schema, root)
        case list():
            return _array(value, schema, root)
        case str():
            return _text(value, schema)
        case int() if not isinstance(value, bool) and _is_number(schema):
            return _float(value)
        case _:
            return value


def _object(value: dict[str, Any], schema: Schema, root: Schema) -> dict[str, Any]:
    properties, others = _schema(schema.get("properties")), _schema(schema.get("additionalProperties"))
    built = {name: _build(one, _schema(properties.get(name, others)), root) for name, one in value.items()}
    return Record(built) if properties else built


def _array(value: list[Any], schema: Schema, root: Schema) -> Any:
    first = schema.get("prefixItems")
    first = first if isinstance(first, list) else []
    others = _schema(schema.get("items"))
    built = [
        _build(one, _schema(first[number]) if number < len(first) else others, root)
        for number, one in enumerate(value)
    ]
    if first:
        return tuple(built)
    if schema.get("uniqueItems") is not True:
        return built
    try:
        return set(built)
    except TypeError:
        return built


def _text(value: str, schema: Schema) -> Any:
    kind = FORMATS.get(schema["format"]) if isinstance(schema.get("format"), str) else None
    if kind is None:
        return value
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return value


def _float(value: int) -> float | int:
    try:
        return float(value)
    except OverflowError:
        return value


# Which schema a value has


def _resolved(value: Any, schema: Schema, root: Schema) -> Schema:
    """Follow references and alternatives to the schema for this value."""
    for _ in range(HOPS):
        if isinstance(reference := schema.get("$ref"), str):
            schema = _referred(reference, root)
        elif isinstance(choices := schema.get("anyOf") or schema.get("oneOf"), list):
            fitting = (one for one in choices[:CHOICES] if _fits(value, _schema(one), root))
            schema = _schema(next(fitting, NOTHING))
        elif isinstance(parts := schema.get("allOf"), list) and len(parts) == 1:
            schema = _schema(parts[0])
        else:
            return schema
    return NOTHING


def _fits(value: Any, schema: Schema, root: Schema) -> bool:
    """True if a value has the type of a schema and its required members. Members are not checked further."""
    if isinstance(reference := schema.get("$ref"), str):
        schema = _referred(reference, root)
    if "const" in schema:
        return bool(value == schema["const"])
    kinds = _kinds(schema)
    if kinds and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
        return False
    if not isinstance(value, dict):
        return True
    required, properties = schema.get("required"), _schema(schema.get("properties"))
    # A value with n members cannot have n + 1 required ones: checking so many is enough.
    needed = required[: len(value) + 1] if isinstance(required, list) else []
    if not all(isinstance(name, str) and name in value for name in needed):
        return False
    constants = ((one, _schema(properties.get(name))) for name, one in value.items())
    return all(one == said["const"] for one, said in constants if "const" in said)


def _is_number(schema: Schema) -> bool:
    kinds = _kinds(schema)
    return float in kinds and set(kinds) <= {int, float, type(None)}


def _kinds(schema: Schema) -> tuple[type, ...]:
    """Return the Python types for the types of a schema; empty if it names none."""
    named = schema.get("type")
    names = named if isinstance(named, list) else [named]
    return tuple(kind for name in names[:HOPS] if isinstance(name, str) for kind in TYPES.get(name, ()))


def _referred(reference: str, root: Schema) -> Schema:
    """Return the part of the schema that a local reference names."""
    place: Any = root
    if not reference.startswith("#") or len(reference) > REFERENCE:
        return NOTHING
    for step in reference[1:].split("/")[1:HOPS]:
        place = _schema(place).get(step.replace("~1", "/").replace("~0", "~"))
    return _schema(place)


def _schema(value: Any) -> Schema:
    return value if isinstance(value, Mapping) else NOTHING
