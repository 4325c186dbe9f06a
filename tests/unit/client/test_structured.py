"""Structured content built by the output schema of its tool."""

import datetime as dt
import uuid
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from limpet import Client, Server
from limpet.client.structured import Record, shaped
from tests.support import async_test

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)
KEYWORDS = st.sampled_from(
    [
        "type",
        "properties",
        "items",
        "prefixItems",
        "anyOf",
        "allOf",
        "$ref",
        "required",
        "format",
        "const",
        "result",
    ]
)
SCHEMAS = st.recursive(
    JSON | st.sampled_from(["object", "array", "#", "#/properties", "date-time", ["number", "null"]]),
    lambda inner: st.dictionaries(KEYWORDS, inner, max_size=5) | st.lists(inner, max_size=3),
    max_leaves=20,
)


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    born: dt.date


class Trip(BaseModel):
    at: dt.datetime
    took: dt.timedelta
    id: uuid.UUID
    cost: float
    seats: set[int]
    place: tuple[float, str]
    pets: list[Annotated[Cat | Dog, Field(discriminator="kind")]]
    next: "Trip | None" = None
    tags: dict[str, dt.date]


@dataclass
class Answer:
    result: int


class Verdict(TypedDict):
    result: str


TRIP = Trip(
    at=dt.datetime(2026, 7, 28, 12, tzinfo=dt.UTC),
    took=dt.timedelta(hours=1),
    id=uuid.UUID(int=7),
    cost=5.0,
    seats={1, 2},
    place=(1.5, "Oslo"),
    pets=[Cat(lives=9), Dog(born=dt.date(2020, 2, 29))],
    tags={"seen": dt.date(2026, 1, 1)},
)


def zoo() -> Server:
    server = Server("zoo")

    @server.tool
    async def greet() -> str:
        return "hi"

    @server.tool
    async def trip() -> Trip:
        return TRIP.model_copy(update={"next": TRIP})

    @server.tool
    async def when() -> dt.datetime:
        return TRIP.at

    @server.tool
    async def maybe() -> Dog | None:
        return Dog(born=dt.date(2020, 2, 29))

    @server.tool
    async def answer() -> Answer:
        return Answer(5)

    @server.tool
    async def verdict() -> Verdict:
        return {"result": "good"}

    return server


@pytest.mark.parametrize("version", ["sessionless", "sessions"])
@async_test
async def test_data_is_built_from_the_output_schema(version: str) -> None:
    async with Client(zoo(), protocol_version=version) as client:
        built = (await client.call_tool("trip")).data
        for one in (built, built.next):
            assert (one.at, one.took, one.id) == (TRIP.at, TRIP.took, TRIP.id)
            assert (one.cost, type(one.cost), one.seats, one.place) == (5.0, float, {1, 2}, (1.5, "Oslo"))
            assert (one.pets[0].lives, one.pets[1].born) == (9, dt.date(2020, 2, 29))
            assert one.tags == {"seen": dt.date(2026, 1, 1)}
        assert built.next.next is None
        assert built["cost"] == built.cost
        assert (await client.call_tool("when")).data == TRIP.at
        assert (await client.call_tool("greet")).data == "hi"
        assert (await client.call_tool("maybe")).data.born == dt.date(2020, 2, 29)


@async_test
async def test_an_object_that_has_a_member_called_result_is_not_unwrapped() -> None:
    async with Client(zoo()) as client:
        assert (await client.call_tool("answer")).data.result == 5
        assert (await client.call_tool("verdict")).data == {"result": "good"}
        started = await client.start_tool("answer")
        assert started.data == {"result": 5}  # type: ignore[union-attr]


def test_without_a_schema_content_is_as_it_came() -> None:
    assert shaped({"result": "2026-01-01"}, None) == "2026-01-01"
    assert shaped({"a": 1}, None) == {"a": 1}


def test_a_wrapped_value_of_the_official_sdk_is_known_by_its_title() -> None:
    schema = {"title": "addOutput", "type": "object", "properties": {"result": {"type": "integer"}}}
    assert shaped({"result": 5}, schema) == 5
    assert shaped({"result": 5}, schema | {"title": "Answer"}) == {"result": 5}


def test_content_that_does_not_fit_the_schema_stays_unchanged() -> None:
    schema = {
        "properties": {
            "day": {"format": "date"},
            "far": {"$ref": "https://example.com/schema"},
            "loop": {"$ref": "#/properties/loop"},
            "huge": {"type": "number"},
        }
    }
    came = {"day": "tomorrow", "far": "x", "loop": "y", "huge": 10**400, "other": 1}
    assert shaped(came, schema) == came


def test_the_error_for_a_missing_member_lists_the_present_ones() -> None:
    with pytest.raises(AttributeError, match="no member 'b'; it has a"):
        _ = Record(a=1).b
    assert repr(Record(a=1)) == "Record({'a': 1})"


@given(JSON, SCHEMAS)
def test_no_schema_makes_it_fail(value: Any, schema: Any) -> None:
    shaped(value, schema if isinstance(schema, dict) else {"properties": schema})
