"""Forms for the user: from a model, dataclass, TypedDict, value or JSON schema to the flat schema of clients.

A form has only texts, numbers, booleans and choices, and no nested objects: the specification allows no more. Further
rules of an annotation (a pattern, the check of a custom type) are not sent, but the answer is checked against them.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, Generic, Literal, TypeVar

from msgspec import Struct

from limpet.errors import AskError, CapabilityMissing
from limpet.protocol.types import ElicitURLParams

T = TypeVar("T")
Schema = dict[str, Any]
Action = Literal["accept", "decline", "cancel"]

_COMMON: Final = {"type", "title", "description", "default"}
KEYWORDS: Final = {
    "string": {*_COMMON, "minLength", "maxLength", "format", "enum", "enumNames", "oneOf"},
    "number": {*_COMMON, "minimum", "maximum"},
    "integer": {*_COMMON, "minimum", "maximum"},
    "boolean": _COMMON,
    "array": {*_COMMON, "minItems", "maxItems", "items"},
}
"""The keywords that the specification allows for a property of each type."""
OLDER_FORMS: Final = frozenset({"2025-03-26", "2025-06-18"})
"""Revisions whose forms have no lists, name the titles of choices in `enumNames`, and have few defaults."""
ITEMS: Final = {"type", "enum", "anyOf"}
"""The keywords that the specification allows for the items of a list."""
SINGLE: Final = "value"
"""The field of a form that has one value, as FastMCP names it."""
FORMATS: Final = {"email", "uri", "date", "date-time"}


UrlElicitation = ElicitURLParams
"""A page to open, as `UrlElicitationRequired` takes it: message, url, elicitation_id."""


class Elicited(Struct, Generic[T], frozen=True):
    """The user's answer to an elicitation."""

    action: Action
    """`accept`, `decline` or `cancel`."""
    data: T | None = None
    """The filled-in form if the action is `accept`, else None."""
    elicitation_id: str = ""
    """The id of a URL elicitation, for `session.elicitation_complete`."""

    @property
    def is_accepted(self) -> bool:
        return self.action == "accept"


class Form(Struct, Generic[T], frozen=True):
    """The schema of a form, and the function that reads its answer."""

    schema: Schema
    read: Callable[[Mapping[str, Any]], T]


def form(shape: Any) -> Form[Any]:
    """Return the form of a model, dataclass, TypedDict or JSON schema.

    Or of one value, such as `bool` or `["red", "blue"]`.

    Raises:
        TypeError: the shape is not flat; the message names the field and the types that are allowed.
    """
    if isinstance(shape, list):
        if not shape:
            raise TypeError("an empty list is not a form: it is a list of texts to choose from")
        return _form_of_type(Literal[tuple(shape)])
    if isinstance(shape, dict):
        _check_object(shape, "the schema")
        for name, entry in shape["properties"].items():
            _check(name, entry)
        return Form(shape, dict)
    return _form_of_class(shape) if isinstance(shape, type) else _form_of_type(shape)


def _form_of_type(shape: Any) -> Form[Any]:
    # Deferred: pydantic is loaded only once a form needs it.
    from limpet.server.functions.schema import form_of  # noqa: PLC0415

    described, read = form_of(shape)
    definitions = described.get("$defs", {})
    if described.get("type") != "object":
        entry = _flat(SINGLE, {"title": "Value", **described}, definitions)
        one: Schema = {"type": "object", "properties": {SINGLE: entry}, "required": [SINGLE]}
        return Form(one, lambda content: read(content.get(SINGLE)))
    _check_object(described, getattr(shape, "__name__", str(shape)))
    properties = {name: _flat(name, entry, definitions) for name, entry in described["properties"].items()}
    schema: Schema = {"type": "object", "properties": properties}
    if required := [name for name in described.get("required", ()) if name in properties]:
        schema["required"] = required
    return Form(schema, read)


@lru_cache(maxsize=256)
def _form_of_class(shape: type) -> Form[Any]:
    """Return the form of a class, made once: pydantic needs a millisecond for it, ten times the rest of an ask."""
    return _form_of_type(shape)


def form_for(version: str, schema: Schema) -> Schema:
    """Return the schema of a form in the format of the client's revision.

    Raises:
        CapabilityMissing: the form has a list, and the revision has no lists.
    """
    if version not in OLDER_FORMS:
        return schema
    properties = {name: _in_older_words(name, entry) for name, entry in schema["properties"].items()}
    return {**schema, "properties": properties}


def _in_older_words(name: str, entry: Schema) -> Schema:
    if entry["type"] == "array":
        raise CapabilityMissing(
            f"the client cannot show field {name!r}: a choice of several needs protocol 2025-11-25"
        )
    if entry["type"] != "boolean":
        entry = {key: value for key, value in entry.items() if key != "default"}
    choices = entry.get("oneOf")
    if not choices or any("const" not in choice for choice in choices):
        return entry
    values = [choice["const"] for choice in choices]
    titles = [choice.get("title", choice["const"]) for choice in choices]
    return {**{key: entry[key] for key in entry if key != "oneOf"}, "enum": values, "enumNames": titles}


def answer(form: Form[T], content: Mapping[str, Any] | None) -> T:
    """Read the form that the user filled in.

    Raises:
        AskError: the answer does not match the form.
    """
    try:
        return form.read(content or {})
    except ValueError as error:
        raise AskError(f"the client's answer does not fit the form: {error}") from error


def _check_object(schema: Schema, title: str) -> None:
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        raise TypeError(f"{title} is not a form: a form is an object with named properties")


def _flat(name: str, entry: Schema, definitions: Schema) -> Schema:
    """Return a property with the allowed keywords only."""
    entry = _resolved(entry, definitions)
    if "const" in entry and "enum" not in entry:
        entry["enum"] = [entry.pop("const")]
    if "type" not in entry and all(isinstance(value, str) for value in entry.get("enum", [None])):
        entry["type"] = "string"
    if entry.get("type") == "array":
        items = _resolved(entry.get("items", {}), definitions)
        entry["items"] = {key: value for key, value in items.items() if key in ITEMS}
    _check(name, entry)
    kept = {key: value for key, value in entry.items() if key in KEYWORDS[entry["type"]]}
    if kept.get("format") not in FORMATS:
        kept.pop("format", None)
    if kept.get("default", ...) is None:
        del kept["default"]
    return kept


def _resolved(entry: Schema, definitions: Schema) -> Schema:
    """Resolve a reference, and treat `X | None` as an optional X."""
    choices = [item for item in entry.get("anyOf", ()) if item.get("type") != "null"]
    if len(choices) == 1:
        entry = {**choices[0], **{key: value for key, value in entry.items() if key != "anyOf"}}
    name = str(entry.get("$ref", "")).removeprefix("#/$defs/")
    if name in definitions:
        entry = {**definitions[name], **{key: value for key, value in entry.items() if key != "$ref"}}
    return dict(entry)


def _check(name: str, entry: Schema) -> None:
    kind = entry.get("type")
    if kind not in KEYWORDS:
        raise TypeError(
            f"field {name!r} cannot be in a form: a form holds str, int, float, bool, "
            "enums or Literals of str, and lists of those enums"
        )
    if kind == "array" and not _is_choice(entry.get("items")):
        raise TypeError(f"field {name!r} cannot be in a form: a list in a form is a choice among fixed texts")
    if kind != "string" and "enum" in entry:
        raise TypeError(f"field {name!r} cannot be in a form: the choices of an enum must be texts")


def _is_choice(items: object) -> bool:
    if not isinstance(items, dict):
        return False
    values = items.get("enum") or [
        choice.get("const") for choice in items.get("anyOf") or items.get("oneOf") or [{}]
    ]
    return all(isinstance(value, str) for value in values)
