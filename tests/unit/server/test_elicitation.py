"""Forms: the valid types, and the refusal of all others."""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, TypedDict

import pytest
from pydantic import BaseModel, Field

from limpet.errors import AskError, CapabilityMissing
from limpet.server.context.elicitation import answer, form, form_for
from tests.schema import LATEST, validate


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Everything(BaseModel):
    text: str = Field("a", title="Text", description="Some text", min_length=1, max_length=9, pattern="a+")
    whole: int = Field(1, ge=0, le=10)
    real: float = 0.5
    flag: bool = True
    colour: Colour = Colour.RED
    size: Literal["s", "m"] = "s"
    only: Literal["x"] = "x"
    many: list[Colour] = Field(default=[Colour.RED], min_length=1)
    sizes: list[Literal["s", "m"]] = []
    maybe: str | None = None
    when: Annotated[str, Field(json_schema_extra={"format": "date"})] = "2025-01-01"
    odd: Annotated[str, Field(json_schema_extra={"format": "colour"})] = "red"


def requested(schema: dict[str, Any]) -> dict[str, Any]:
    validate(
        {"jsonrpc": "2.0", "id": 1, "method": "elicitation/create",
         "params": {"message": "m", "requestedSchema": schema}},
        LATEST,
    )  # fmt: skip
    properties: dict[str, Any] = schema["properties"]
    return properties


def test_every_kind_of_field_becomes_an_allowed_schema() -> None:
    properties = requested(form(Everything).schema)
    assert properties["text"] == {
        "type": "string", "title": "Text", "description": "Some text",
        "minLength": 1, "maxLength": 9, "default": "a",
    }  # fmt: skip
    assert properties["whole"]["maximum"] == 10
    assert properties["colour"]["enum"] == ["red", "blue"]
    assert properties["colour"]["default"] == "red"
    assert properties["only"]["enum"] == ["x"]
    assert properties["many"]["items"]["enum"] == ["red", "blue"]
    assert properties["many"]["minItems"] == 1
    assert properties["maybe"] == {"type": "string", "title": "Maybe"}
    assert properties["when"]["format"] == "date"
    assert "format" not in properties["odd"]


def test_an_answer_is_read_as_the_shape() -> None:
    read = answer(form(Everything), {"colour": "blue", "many": ["blue"]})
    assert isinstance(read, Everything)
    assert (read.colour, read.many, read.text) == (Colour.BLUE, [Colour.BLUE], "a")
    with pytest.raises(AskError, match="does not fit"):
        answer(form(Everything), {"text": "b"})


@dataclass
class Point:
    x: int
    label: str = ""


class Names(TypedDict):
    first: str


def test_dataclasses_and_typed_dicts_are_shapes_too() -> None:
    assert form(Point).schema["required"] == ["x"]
    assert answer(form(Point), {"x": 1}) == Point(1)
    assert answer(form(Names), {"first": "a"}) == {"first": "a"}


@pytest.mark.parametrize(
    ("shape", "entry", "value", "wrong"),
    [
        (bool, {"type": "boolean"}, True, "perhaps"),
        (int, {"type": "integer"}, 3, "three"),
        (str, {"type": "string"}, "tea", 1),
        (["red", "blue"], {"type": "string", "enum": ["red", "blue"]}, "blue", "green"),
        (Literal["s", "m"], {"type": "string", "enum": ["s", "m"]}, "m", "xl"),
        (list[Literal["s", "m"]], {"type": "array", "items": {"type": "string", "enum": ["s", "m"]}}, ["m"], "m"),
    ],
)  # fmt: skip
def test_one_value_is_a_form_with_one_field(shape: Any, entry: Any, value: Any, wrong: Any) -> None:
    made = form(shape)
    assert requested(made.schema) == {"value": {"title": "Value", **entry}}
    assert made.schema["required"] == ["value"]
    assert answer(made, {"value": value}) == value
    for content in ({"value": wrong}, {}, None):
        with pytest.raises(AskError, match="does not fit"):
            answer(made, content)


def test_an_enum_is_a_form_with_one_field() -> None:
    made = form(Colour)
    assert made.schema["properties"]["value"]["enum"] == ["red", "blue"]
    assert answer(made, {"value": "blue"}) is Colour.BLUE


def test_a_ready_schema_is_sent_as_it_is() -> None:
    schema = {
        "type": "object",
        "properties": {
            "sessions": {"type": "string", "enum": ["a"], "enumNames": ["A"]},
            "titled": {"type": "string", "oneOf": [{"const": "a", "title": "A"}]},
            "many": {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}},
        },
    }
    requested(schema)
    assert form(schema).schema is schema
    assert answer(form(schema), {"sessions": "a"}) == {"sessions": "a"}


TITLED = {
    "type": "object",
    "properties": {
        "plain": {"type": "string"},
        "titled": {"type": "string", "title": "T", "oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]},
    },
    "required": ["plain"],
}


def test_titled_choices_are_written_in_the_form_of_older_revisions() -> None:
    assert form_for("2025-11-25", TITLED) is TITLED
    assert form_for("2025-06-18", TITLED) == {
        "type": "object",
        "properties": {
            "plain": {"type": "string"},
            "titled": {"type": "string", "title": "T", "enum": ["a", "b"], "enumNames": ["A", "b"]},
        },
        "required": ["plain"],
    }


def test_a_multiple_choice_is_not_sent_to_revisions_without_it() -> None:
    several = {
        "type": "object",
        "properties": {"many": {"type": "array", "items": {"type": "string", "enum": ["a"]}}},
    }
    with pytest.raises(CapabilityMissing, match="'many'"):
        form_for("2025-06-18", several)


class Nested(BaseModel):
    inner: Point


class Listed(BaseModel):
    items: list[str]


class Numbers(BaseModel):
    number: Literal[1, 2]


class Either(BaseModel):
    either: int | str


@pytest.mark.parametrize(("shape", "field"), [(Nested, "inner"), (Listed, "items"), (Numbers, "number"), (Either, "either")])  # fmt: skip
def test_a_nested_field_is_refused_by_name(shape: Any, field: str) -> None:
    with pytest.raises(TypeError, match=f"{field!r} cannot be in a form"):
        form(shape)


@pytest.mark.parametrize("shape", [{"type": "string"}, {"type": "object"}, dict[str, str], []])
def test_a_type_without_named_fields_is_refused_as_a_form(shape: Any) -> None:
    with pytest.raises(TypeError, match="is not a form"):
        form(shape)


def test_the_form_of_a_class_is_made_once() -> None:
    assert form(Everything) is form(Everything)


def test_a_class_that_is_complete_later_gets_its_form_then() -> None:
    class Late(BaseModel):
        value: "Missing"  # type: ignore[name-defined] # noqa: F821 - the class is not complete yet

    with pytest.raises(TypeError, match="no JSON schema"):
        form(Late)
    Late.model_rebuild(_types_namespace={"Missing": str})
    assert form(Late).schema["properties"]["value"]["type"] == "string"
