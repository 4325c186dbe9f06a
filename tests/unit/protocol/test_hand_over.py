"""Tickets as models copy them, and output schemas that allow a ticket."""

from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator

from limpet.protocol.hand_over import (
    TICKET_KEY,
    collect_tool,
    new_ticket,
    read_ticket,
    ticket_of,
    ticket_result,
    told,
    with_ticket,
    without_ticket,
)
from limpet.protocol.wrapping import wrapped, wraps
from limpet.testing import SeededRandom

TICKET: Final[Any] = {"status": "running", "ticket": "a" * 32, "collect": "collect"}
SCHEMAS: Final[dict[str, tuple[dict[str, Any], Any, Any]]] = {
    "definitions": (
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/A"}},
            "required": ["a"],
            "$defs": {"A": {"type": "integer"}},
        },
        {"a": 1},
        {"a": "x"},
    ),
    "old definitions": (
        {"type": "object", "properties": {"a": {"$ref": "#/definitions/A"}}, "required": ["a"], "definitions": {"A": {"type": "integer"}}},
        {"a": 1},
        {"a": "x"},
    ),
    "the root": (
        {"type": "object", "properties": {"next": {"$ref": "#"}, "n": {"type": "integer"}}, "required": ["n"]},
        {"n": 1, "next": {"n": 2}},
        {"n": 1, "next": {"n": "x"}},
    ),
    "a place in the root": (
        {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/properties/a"}}, "required": ["a"]},
        {"a": 1, "b": 2},
        {"a": 1, "b": "x"},
    ),
    "a definition that refers to the root": (
        {"type": "object", "properties": {"n": {"type": "integer"}, "all": {"$ref": "#/$defs/All"}}, "required": ["n"], "$defs": {"All": {"type": "array", "items": {"$ref": "#"}}}},
        {"n": 1, "all": [{"n": 2}]},
        {"n": 1, "all": [{}]},
    ),
    "data": (
        {"type": "object", "properties": {"a": {"const": {"$ref": "#"}}}, "required": ["a"]},
        {"a": {"$ref": "#"}},
        {"a": 1},
    ),
    "its own address": (
        {"$id": "https://example.test/s", "type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "required": ["a"], "$defs": {"A": {"type": "integer"}}},
        {"a": 1},
        {"a": "x"},
    ),
    "a wrapped value": (wrapped({"type": "string"}), {"result": "x"}, {"result": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_with_a_ticket_allows_its_own_results_and_tickets_and_nothing_else(name: str) -> None:
    own, good, bad = SCHEMAS[name]
    schema = with_ticket(own)
    Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    validator = Draft202012Validator(schema)
    assert validator.is_valid(good)
    assert validator.is_valid(TICKET)
    assert not validator.is_valid(bad)
    assert not validator.is_valid({**TICKET, "ticket": "short"})


def test_a_schema_that_is_no_object_keeps_its_type_open() -> None:
    schema = with_ticket({"type": "array"})
    assert "type" not in schema
    assert Draft202012Validator(schema).is_valid([])


def test_our_client_finds_the_own_schema_again() -> None:
    own = wrapped({"type": "string"})
    assert wraps(without_ticket(with_ticket(own)))
    assert without_ticket(own) is own


@pytest.mark.parametrize("seed", range(20))
def test_a_ticket_survives_capitals_spaces_and_quotes(seed: int) -> None:
    ticket = new_ticket(SeededRandom(seed))
    for form in (ticket, ticket.upper(), f" {ticket}\n", f'"{ticket}".', f"{ticket[:16]} {ticket[16:]}"):
        assert read_ticket(form) == ticket
    assert read_ticket(ticket + "~aB_-c") == ticket + "~aB_-c"


@pytest.mark.parametrize(
    "given", [None, 5, "", "a" * 31, "a" * 33, "1" * 32, "a" * 32 + "~", "a" * 10_000, ["a"]]
)
def test_other_values_are_no_tickets(given: object) -> None:
    assert read_ticket(given) is None


def test_a_client_reads_the_ticket_of_a_result() -> None:
    result = ticket_result("work", "a" * 32, "collect", "3 of 10", 3_600)
    found = ticket_of({"_meta": result.meta})
    assert found is not None
    assert (found.ticket, found.collect) == ("a" * 32, "collect")
    assert Draft202012Validator(with_ticket({"type": "object", "required": ["x"]})).is_valid(
        result.structured_content
    )
    others: tuple[Any, ...] = ({}, {"_meta": None}, {"_meta": {"io.limpet/ticket": 5}}, [], None)
    assert [ticket_of(other) for other in others] == [None] * 5


def test_the_tool_has_a_valid_schema() -> None:
    Draft202012Validator.check_schema(collect_tool("collect", 36)["inputSchema"])


@pytest.mark.parametrize("result", [None, [], {}, {"_meta": 1}, {"_meta": {TICKET_KEY: 7}}])
def test_a_result_without_a_ticket_is_the_one_of_the_call(result: object) -> None:
    assert ticket_of(result) is None


def test_a_text_of_collect_may_be_an_error() -> None:
    assert [told("x", is_error=flag).is_error for flag in (False, True)] == [False, True]
