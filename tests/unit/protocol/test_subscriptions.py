"""The filter of a subscription, decoded and encoded."""

import json
from typing import Any

import pytest

from limpet.errors import InvalidParams
from limpet.protocol.sessionless import TASKS
from limpet.protocol.subscriptions import (
    Change,
    Filter,
    acknowledged_message,
    all_changes,
    change_message,
    completed_message,
    decode_change,
    dropped_message,
    encode_change,
    list_kinds,
    read_filter,
)
from tests.schema import validate

EVERYTHING: dict[str, Any] = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["a://1", "b://2"],
    "taskIds": ["t"],
}


def read(limit: int = 10, **wanted: object) -> Filter:
    return read_filter({"notifications": wanted}, limit, 100)


def test_a_filter_travels_there_and_back() -> None:
    assert read(**EVERYTHING).to_wire() == EVERYTHING


def test_missing_false_and_null_members_of_a_filter_mean_no_and_unknown_ones_are_ignored() -> None:
    wanted = read(toolsListChanged=False, promptsListChanged=None, resourceSubscriptions=[], later={"x": 1})
    assert wanted.keys == []
    assert wanted.to_wire() == {}


def test_a_name_given_twice_is_one() -> None:
    assert read(resourceSubscriptions=["a://1", "a://1"]).keys == [("resource", "a://1")]


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"notifications": None},
        {"notifications": ["toolsListChanged"]},
        {"notifications": {"toolsListChanged": 1}},
        {"notifications": {"resourceSubscriptions": "a://1"}},
        {"notifications": {"resourceSubscriptions": [1]}},
        {"notifications": {"taskIds": {"a": 1}}},
        {"notifications": {"resourceSubscriptions": [str(n) for n in range(16)]}},
        {"notifications": {"resourceSubscriptions": ["x" * 101]}},
        {"notifications": {"resourceSubscriptions": ["a" * 40, "ü" * 31]}},
    ],
)
def test_a_malformed_or_too_large_filter_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(InvalidParams):
        read_filter(params, 10, 100)


@pytest.mark.parametrize(
    ("capabilities", "honoured"),
    [
        ({}, {}),
        ({"tools": {}}, {}),
        ({"tools": {"listChanged": False}}, {}),
        ({"tools": {"listChanged": True}}, {"toolsListChanged": True}),
        (
            {"resources": {"subscribe": True}},
            {"resourceSubscriptions": EVERYTHING["resourceSubscriptions"]},
        ),
        ({"resources": {"listChanged": True}}, {"resourcesListChanged": True}),
        ({"extensions": {TASKS: {}}}, {"taskIds": ["t"]}),
    ],
)
def test_a_filter_is_reduced_to_declared_capabilities(
    capabilities: dict[str, Any], honoured: dict[str, Any]
) -> None:
    assert read(**EVERYTHING).within(capabilities).to_wire() == honoured


@pytest.mark.parametrize("subscription", [7, "7"])
def test_every_message_carries_the_subscription_as_it_was_typed(subscription: int | str) -> None:
    messages = [
        acknowledged_message(subscription, read(**EVERYTHING)),
        change_message(subscription, Change("tools")),
        change_message(subscription, Change("prompts")),
        change_message(subscription, Change("resources")),
        change_message(subscription, Change("resource", "a://1")),
    ]
    for message in messages:
        validate(message, "2026-07-28")
        meta = json.loads(message)["params"]["_meta"]
        assert meta == {"io.modelcontextprotocol/subscriptionId": subscription}
    last = json.loads(completed_message(subscription))
    validate(last, "2026-07-28", answers="subscriptions/listen")
    assert last["id"] == subscription
    assert last["result"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": subscription}


def test_a_task_notification_has_all_members_of_the_task() -> None:
    message = json.loads(change_message(1, Change("task", "t", {"status": "working", "ttlMs": 5})))
    assert message["method"] == "notifications/tasks"
    assert message["params"] == {
        "_meta": {"io.modelcontextprotocol/subscriptionId": 1},
        "taskId": "t",
        "status": "working",
        "ttlMs": 5,
    }


def test_a_server_reports_changes_of_the_lists_that_it_has() -> None:
    assert list_kinds({"tools": {}, "logging": {}, "resources": {}}) == ["tools", "resources"]
    changes = all_changes(["tools"], ["file:///a"])
    assert changes == [Change("tools"), Change("resource", "file:///a")]
    for principal in (None, "ada"):
        assert [decode_change(encode_change(change, principal)) for change in changes] == [
            (change, principal) for change in changes
        ]


def test_a_subscription_that_ends_alone_says_why() -> None:
    message = json.loads(dropped_message(3, "the list is gone"))
    assert message["method"] == "notifications/cancelled"
    assert (message["params"]["requestId"], message["params"]["reason"]) == (3, "the list is gone")
