"""Return values that are not of the declared type: the error names the tool, the field and the type."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest
from pydantic import BaseModel, Field

from limpet import Client, ConfigError, Context, Image, Server, ToolError, ToolResult
from limpet.content import ImageContent, TextContent
from tests.support import async_test


class Place(BaseModel):
    name: str
    lat: float = 0.0


@dataclass
class Forecast:
    city: str
    days: list[str]


class Menu(TypedDict):
    soup: str
    price: int


class Point(msgspec.Struct):
    x: int


@dataclass
class Limited:
    """Limits that pydantic does not check for an object that the author has made."""

    count: Annotated[int, Field(ge=0)]
    name: Annotated[str, Field(max_length=3)] = ""


class Holder(BaseModel):
    anything: Any = None
    limited: Limited | None = None


@dataclass
class OpenHolder:
    anything: Any


class Mood(StrEnum):
    FINE = "fine"


def returning(annotation: Any, value: object, **options: Any) -> Server:
    """Return a server with one tool, `t`, which declares one type and returns a value."""
    server = Server("s", **options)

    def t() -> Any:
        return value() if callable(value) else value

    t.__annotations__["return"] = annotation
    server.add_tool(t)
    return server


WRONG = [
    (int, "three", "tool t: it does not return int: ", "'three'"),
    (float, "x", "tool t: it does not return float: ", "'x'"),
    (str, 3, "tool t: it does not return str: ", "returned 3"),
    (list[int], [1, "x"], "tool t: it does not return list[int]: [1]: ", "'x'"),
    (dict[str, int], {"a": "x"}, "tool t: it does not return dict[str, int]: a: ", "'x'"),
    (
        Forecast,
        Forecast("Oslo", ["sun", 3]),  # type: ignore[list-item]
        "tool t: it does not return Forecast: days: ",
        "of type str; returned 3",
    ),
    (list[Forecast], [Forecast(3, [])], "tool t: it does not return list[Forecast]: city: ", "type str"),  # type: ignore[arg-type]
    (Place, Place.model_construct(name=3), "tool t: it does not return Place: name: ", "type str"),
    (Place, {"lat": 1}, "tool t: it does not return Place: name: ", "missing"),
    (Menu, {"soup": "pea"}, "tool t: it does not return Menu: price: ", "missing"),
    (Point, Point("a"), "tool t: it does not return Point: ", "$.x"),  # type: ignore[arg-type]
    (Literal["a", "b"], "c", "tool t: it does not return Literal['a', 'b']: ", "'c'"),
    (
        Annotated[int, Field(ge=1)],
        0,
        "tool t: it does not return Annotated[int, ",
        "greater than or equal to 1",
    ),
    (Place | None, 3, "tool t: it does not return Place | None: ", "returned 3"),
    (Limited, Limited(-1), "tool t: it does not return Limited: count: ", "-1 is below the minimum 0"),
    (list[Limited], [Limited(1, "long")], "tool t: it does not return list[Limited]: [0].name: ", "than 3"),
    (Holder, Holder(limited=Limited(-2)), "tool t: it does not return Holder: limited: ", "fits none of"),
]


@pytest.mark.parametrize(("annotation", "value", "said", "given"), WRONG)
@async_test
async def test_a_return_value_of_another_type_fails_and_names_tool_field_and_type(
    annotation: Any, value: object, said: str, given: str
) -> None:
    async with Client(returning(annotation, value)) as client:
        with pytest.raises(ToolError) as raised:
            await client.call_tool("t")
        assert f"WrongResult: {said}" in str(raised.value)
        assert given in str(raised.value)


@pytest.mark.parametrize(
    ("annotation", "value", "structured"),
    [
        (int, True, {"result": True}),
        (float, 3, {"result": 3}),
        (str, Mood.FINE, {"result": "fine"}),
        (int, "3", {"result": 3}),
        (list[int], (1, 2), {"result": [1, 2]}),
        (list[int], {1}, {"result": [1]}),
        (Place, {"name": "x"}, {"name": "x", "lat": 0.0}),
        (Forecast, {"city": "Oslo", "days": []}, {"city": "Oslo", "days": []}),
        (Menu, {"soup": "pea", "price": 1}, {"soup": "pea", "price": 1}),
        (Point, Point(1), {"x": 1}),
        (dict[str, Any], {"a": None}, {"a": None}),
    ],
)
@async_test
async def test_a_value_that_can_become_the_declared_type_is_converted(
    annotation: Any, value: object, structured: object
) -> None:
    async with Client(returning(annotation, value)) as client:
        assert (await client.call_tool("t")).structured_content == structured


NAN: list[tuple[Any, object, str]] = [
    (float, math.nan, "tool t: nan is a float"),
    (Any, math.inf, "tool t: inf is a float"),
    (Any, {"a": [1.0, -math.inf]}, "tool t: a[1]: -inf is a float"),
    (dict[str, float], {"a": math.nan}, "tool t: a: nan"),
    (dict[str, Any], {"a": {"b": math.nan}}, "tool t: a.b: nan"),
    (list[float], [math.nan], "tool t: [0]: nan"),
    (Place, Place(name="x", lat=math.nan), "tool t: lat: nan"),
    (Holder, Holder(anything=math.nan), "tool t: anything: nan"),
    (Holder, Holder(anything={"a": [{"b": math.inf}]}), "tool t: anything.a[0].b: inf"),
    (OpenHolder, OpenHolder(Holder(anything=math.nan)), "tool t: anything.anything: nan"),
    (ToolResult, ToolResult(content="x", structured={"a": math.nan}), "tool t: a: nan"),
    (ToolResult, ToolResult(structured={"a": math.nan}), "tool t: a: nan"),
]


@pytest.mark.parametrize(("annotation", "value", "said"), NAN)
@async_test
async def test_a_number_that_json_does_not_have_is_an_error(
    annotation: Any, value: object, said: str
) -> None:
    async with Client(returning(annotation, value)) as client:
        with pytest.raises(ToolError) as raised:
            await client.call_tool("t")
    assert said in str(raised.value)


@async_test
async def test_null_and_the_word_null_are_no_such_number() -> None:
    async with Client(returning(Any, {"a": None, "b": "null", "c": [0.5, [None]]})) as client:
        assert (await client.call_tool("t")).data == {"a": None, "b": "null", "c": [0.5, [None]]}


PUTS: list[tuple[Any, Callable[[Any], object], str]] = [
    (Any, lambda file: file, ""),
    (int, lambda file: file, ""),
    (list[str], lambda file: file, ""),
    (dict[str, Any], lambda file: {"file": file}, "file: "),
    (dict[str, Any], lambda file: {"a": {"b": [1, file]}}, r"a\.b\[1\]: "),
    (Any, lambda file: {"a": {"b": [1, file]}}, r"a\.b\[1\]: "),
    (Any, lambda file: Holder(anything=[file]), r"anything\[0\]: "),
    (Holder, lambda file: Holder(anything={"a": file}), r"anything\.a: "),
    (OpenHolder, lambda file: OpenHolder(Holder(anything=file)), r"anything\.anything: "),
]


@pytest.mark.parametrize(("annotation", "put", "place"), PUTS)
@async_test
async def test_an_open_file_is_an_error_at_any_depth(
    annotation: Any, put: Callable[[Any], object], place: str, tmp_path: Path
) -> None:
    def opened() -> object:
        file = TemporaryFile("w+", dir=tmp_path)  # noqa: SIM115 - the mistake of the author
        files.append(file)
        return put(file)

    files: list[Any] = []
    async with Client(returning(annotation, opened)) as client:
        with pytest.raises(ToolError, match=f"tool t: {place}\\w+ is an open file; return its content"):
            await client.call_tool("t")
    files[0].close()


@async_test
async def test_a_list_of_objects_may_contain_images() -> None:
    for annotation in (list[object], list[Any], tuple[object, ...]):
        async with Client(returning(annotation, ["Soup", Image(b"x"), 3])) as client:
            result = await client.call_tool("t")
            assert [type(block) for block in result.content] == [TextContent, ImageContent, TextContent]
            assert result.structured_content is None


@async_test
async def test_a_tool_with_an_output_schema_returns_an_object() -> None:
    server = Server("s")
    server.add_tool(lambda: "x", name="t", output_schema={"type": "object"})
    async with Client(server) as client:
        with pytest.raises(
            ToolError, match="tool t: it does not return dict, which its output_schema describes"
        ):
            await client.call_tool("t")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({}, "x: missing, but required"),
        ({"x": "three"}, "x: should be of type integer; returned 'three'"),
        ({"x": 1.5}, "x: should be of type integer; returned 1.5"),
        ({"x": True}, "x: should be of type integer; returned True"),
        ({"x": 11}, "x: 11 is above the maximum 10"),
        ({"x": 1, "mood": "bad"}, "mood: should be one of 'fine', None; returned 'bad'"),
        ({"x": 1, "code": "1a"}, "code: '1a' does not match ^[a-z]+$"),
        ({"x": 1, "pair": ["a", "b"]}, "pair[1]: should be of type number; returned 'b'"),
        ({"x": 1, "other": 1}, "other: is not allowed"),
        ({"x": 1, "tree": {"next": {"next": 3}}}, "tree.next.next: should be of type object; returned 3"),
        ({"x": 2.0, "mood": None, "code": "a", "pair": ["a", 1, 2], "tree": {"next": {}}, "odd": 3}, ""),
    ],
)
@async_test
async def test_a_result_fits_the_given_output_schema(value: dict[str, Any], said: str) -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Tree"}}}
    schema = {
        "type": "object",
        "required": ["x"],
        "additionalProperties": False,
        "properties": {
            "x": {"type": "integer", "maximum": 10},
            "mood": {"enum": ["fine", None]},
            "code": {"type": "string", "pattern": "^[a-z]+$"},
            "pair": {"prefixItems": [{"type": "string"}], "items": {"type": "number"}},
            "tree": {"$ref": "#/$defs/Tree"},
            "odd": {"anyOf": [{"type": "string", "pattern": "(?<bad"}, {"multipleOf": 1.5}], "not": {}},
        },
        "$defs": {"Tree": tree},
    }
    server = Server("s")
    server.add_tool(lambda: value, name="t", output_schema=schema)
    async with Client(server, raise_on_error=False) as client:
        result = await client.call_tool("t")
    prefix = "WrongResult: tool t: its result does not fit its output_schema: "
    assert (result.text if result.is_error else "") == (said and f"{prefix}{said}")


@async_test
async def test_a_parameter_named_ctx_is_the_context_without_an_annotation() -> None:
    server = Server("s")

    async def t(ctx, city: str):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        assert isinstance(ctx, Context)
        return city

    server.add_tool(t)
    async with Client(server) as client:
        (listed,) = await client.list_tools()
        assert list(listed.input_schema["properties"]) == ["city"]
        assert (await client.call_tool("t", {"city": "Oslo"})).text == "Oslo"


def test_a_parameter_named_ctx_with_another_annotation_is_an_argument() -> None:
    server = Server("s")

    def t(ctx: int) -> int:
        return ctx

    server.add_tool(t)
    assert list(server.tools.entries["t"].listed.input_schema["properties"]) == ["ctx"]


@pytest.mark.parametrize("name", ["", " "])
def test_a_server_without_a_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r'as in Server\("weather"\)'):
        Server(name)
