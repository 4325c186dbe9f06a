"""Messages of one era in the form of the other, and the bounded queue of notifications."""

import json
from typing import Any

import pytest

from limpet.backs.proxy.translation import (
    SessionlessForm,
    client_info,
    error_for,
    for_sessions,
    input_required,
    request_params,
    without_subscription,
    without_tasks,
)
from limpet.errors import McpError
from limpet.protocol.sessionless import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    LEVEL_KEY,
    SERVER_KEY,
    SUBSCRIPTION_KEY,
    TASKS,
    VERSION_KEY,
)
from limpet.protocol.subscriptions import Change, change_message


def test_what_a_client_says_of_itself_its_token_retries_and_tasks_do_not_reach_the_server() -> None:
    own = {VERSION_KEY: "2026-07-28", CLIENT_KEY: {}, CAPABILITIES_KEY: {}, LEVEL_KEY: "info"}
    params = {
        "name": "x",
        "requestState": "s",
        "inputResponses": {},
        "task": {"ttl": 1},
        "_meta": {**own, "progressToken": 1, "com.example/trace": "kept"},
    }
    assert request_params("tools/call", params) == {"name": "x", "_meta": {"com.example/trace": "kept"}}
    assert request_params("tools/call", {"name": "x", "_meta": own}) == {"name": "x"}
    plain = {"name": "x"}
    assert request_params("tools/call", plain) is plain
    answers = {"taskId": "t", "inputResponses": {}}
    assert request_params("tasks/update", {**answers, "_meta": own}) == answers


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b" { } ",
        b'{"tools":[]}',
        b'{"tools":[],"_meta":{"a":1}}',
        b'{"resultType":"x"}',
        b'{"tools":[],"ttlMs":5,"cacheScope":"public"}',
        b'{"cacheScope":"public"}',
    ],
)
def test_a_result_of_2025_gets_every_member_that_2026_requires(body: bytes) -> None:
    members = json.loads(SessionlessForm({"name": "s"}).of("tools/list", body), object_pairs_hook=list)
    assert len(dict(members)) == len(members), "a member twice"
    result = json.loads(SessionlessForm({"name": "s"}).of("tools/list", body))
    own = json.loads(body)
    meta = {**own.get("_meta", {}), SERVER_KEY: {"name": "s"}}
    assert result == {"ttlMs": 0, "cacheScope": "private", **own, "resultType": "complete", "_meta": meta}
    assert ("ttlMs" in json.loads(SessionlessForm({"name": "s"}).of("tools/call", body))) == ("ttlMs" in own)


def test_a_result_of_2026_loses_the_members_that_2025_does_not_know() -> None:
    result = b'{"resultType":"complete","ttlMs":5,"cacheScope":"public","tools":[{"name":"a"}]}'
    assert json.loads(for_sessions(result)) == {"tools": [{"name": "a"}]}


def test_only_a_result_of_the_kind_input_required_asks() -> None:
    assert input_required(b'{"content":[{"type":"text","text":"input_required"}]}') is None
    asked = input_required(
        b'{"resultType":"input_required","requestState":"s","inputRequests":{"a":{"method":"m"}}}'
    )
    assert asked is not None
    assert (asked.state, asked.requests) == ("s", {"a": {"method": "m"}})


def test_a_client_without_a_name_gets_the_members_that_2025_requires() -> None:
    assert client_info({}) == {"name": "unknown", "version": "unknown"}
    assert client_info({"name": "a", "version": "1", "title": "A"}) == {
        "name": "a",
        "version": "1",
        "title": "A",
    }


@pytest.mark.parametrize(
    ("method", "code", "translated"),
    [("resources/read", -32002, -32602), ("resources/read", -32603, -32603), ("tools/call", -32002, -32002)],
)
def test_only_the_error_for_a_missing_resource_has_another_code_in_2026(
    method: str, code: int, translated: int
) -> None:
    error = error_for(method, McpError(code, "not here", {"uri": "memo://x"}))
    assert (error.code, error.message, error.data) == (translated, "not here", {"uri": "memo://x"})


def test_a_change_loses_the_subscription_of_the_server_and_gets_that_of_the_client() -> None:
    params = {"uri": "memo://x", "odd": 1, "_meta": {SUBSCRIPTION_KEY: 7, "odd": 2}}
    assert without_subscription(params) == {"uri": "memo://x", "odd": 1, "_meta": {"odd": 2}}
    assert without_subscription({"_meta": {SUBSCRIPTION_KEY: 7}}) == {}
    change = Change("resource", "memo://x", {"odd": 1, "_meta": {"odd": 2}})
    sent = json.loads(change_message("mine", change))["params"]
    assert sent == {"uri": "memo://x", "odd": 1, "_meta": {"odd": 2, SUBSCRIPTION_KEY: "mine"}}


def test_tasks_are_declared_only_between_a_client_and_a_server_of_2026() -> None:
    declared: dict[str, Any] = {"tasks": {}, "tools": {}, "extensions": {TASKS: {}, "other": {}}}
    without: dict[str, Any] = {"tools": {}, "extensions": {"other": {}}}
    whole: dict[str, Any] = {"tools": {}, "extensions": {TASKS: {}, "other": {}}}
    assert without_tasks(declared) == without
    assert without_tasks(declared, extension=True) == whole
