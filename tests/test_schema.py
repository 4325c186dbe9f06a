"""The judge is judged: good messages pass, each kind of bad one is named with its path, and nothing is missed."""

import json
from typing import Any

import pytest

from tests.schema import VERSIONS, Receive, Recorder, Scope, Send, validate
from tests.support import async_test

TOOL: dict[str, Any] = {"name": "echo", "inputSchema": {"type": "object"}}


def result(value: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": value}


@pytest.mark.parametrize("version", VERSIONS)
def test_good_messages_pass(version: str) -> None:
    validate(result({"tools": [TOOL]}), version, answers="tools/list")
    validate(result({}), version, answers="ping")
    validate(json.dumps(result({"content": []})).encode(), version, answers="tools/call")
    validate({"jsonrpc": "2.0", "id": "a", "error": {"code": -32600, "message": "no"}}, version)
    validate({"jsonrpc": "2.0", "error": {"code": -32600, "message": "no"}}, version)
    validate({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}, version)
    validate({"jsonrpc": "2.0", "id": 1, "method": "roots/list"}, version)
    validate({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, version, sender="client")


BAD: dict[str, tuple[Any, str | None, str]] = {
    "a member is missing": (result({"tools": [{"name": "echo"}]}), "tools/list", r"tools\[0\].*inputSchema"),
    "a member has the wrong type": (result({"content": [{"type": "text", "text": 1}]}), "tools/call", r"content\[0\]"),
    "an inner schema is none": (
        result({"tools": [{**TOOL, "inputSchema": {"type": "object", "required": 7}}]}), "tools/list", "echo.inputSchema|required"),
    "bytes are not base64": (
        result({"contents": [{"uri": "a:b", "blob": "?"}]}), "resources/read", r"contents\[0\]"),
    "a URI has no scheme": (result({"contents": [{"uri": "b", "text": ""}]}), "resources/read", r"contents\[0\]"),
    "an empty result is not empty": (result({"ok": True}), "ping", "ok"),
    "nobody knows what it answers": (result({}), None, "method it answers"),
    "a null id": ({"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "no"}}, None, "id"),
    "an error without a code": ({"jsonrpc": "2.0", "id": 1, "error": {"message": "no"}}, None, "error.*code"),
    "result and error at once": ({**result({}), "error": {"code": 1, "message": "no"}}, "ping", "both"),
    "a client's method": ({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, None, "not a request that a server"),
    "no such method": ({"jsonrpc": "2.0", "method": "notifications/none"}, None, "no such method"),
    "params are wrong": (
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}, None, "progressToken"),
    "not JSON-RPC": ({"method": "ping", "id": 1}, None, "jsonrpc"),
    "an array": ([result({})], "ping", "not one message"),
}  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("why", BAD)
def test_a_bad_message_is_named_with_its_path(why: str, version: str) -> None:
    message, answers, complaint = BAD[why]
    with pytest.raises(AssertionError, match=complaint):
        validate(message, version, answers=answers)


def test_what_a_revision_does_not_have_yet_is_a_violation() -> None:
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "elicitation/create",
        "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}},
    }
    validate(message, "2025-06-18")
    with pytest.raises(AssertionError, match="no such method"):
        validate(message, "2025-03-26")


# The recorder


def scripted(*chunks: bytes, kind: bytes = b"application/json") -> Any:
    """Return an ASGI application that reads its request and answers with these bytes."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return app


async def call(app: Any, message: object, version: str = "2025-11-25") -> bytes:
    """Send one message and return the response's body."""
    got: list[bytes] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(message).encode()}

    async def send(event: Any) -> None:
        got.append(event.get("body", b""))

    scope = {"type": "http", "headers": [(b"mcp-protocol-version", version.encode())]}
    await app(scope, receive, send)
    return b"".join(got)


PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@async_test
async def test_a_json_body_in_pieces_is_one_message_and_passes_through_unchanged() -> None:
    recorder = Recorder(scripted(b'{"jsonrpc":"2.0",', b'"id":1,"result":{}}'))
    assert await call(recorder, PING) == b'{"jsonrpc":"2.0","id":1,"result":{}}'
    assert recorder.validate_all() == 1
    assert recorder.methods_seen() == {"ping"}


@async_test
async def test_server_sent_events_cut_anywhere_are_messages_and_comments_are_none() -> None:
    stream = (
        b": hello\n\nid: 1\nretry: 5\ndata: \n\n"
        b'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n'
        b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'
    )
    recorder = Recorder(
        scripted(*(stream[at : at + 7] for at in range(0, len(stream), 7)), kind=b"text/event-stream")
    )
    await call(recorder, PING)
    assert recorder.validate_all() == 2
    assert recorder.methods_seen() == {"ping", "notifications/tools/list_changed"}


@async_test
async def test_a_violation_is_reported_with_revision_and_method() -> None:
    recorder = Recorder(scripted(b'{"jsonrpc":"2.0","id":1,"result":{"tools":[{}]}}'))
    await call(recorder, {**PING, "method": "tools/list"}, "2025-06-18")
    with pytest.raises(AssertionError, match=r"2025-06-18, tools/list: ListToolsResult\.tools\[0\]"):
        recorder.validate_all()


@async_test
async def test_an_answer_to_nobody_is_a_violation() -> None:
    recorder = Recorder(scripted(b'{"jsonrpc":"2.0","id":"1","result":{}}'))
    await call(recorder, PING)
    with pytest.raises(AssertionError, match="can only be judged"):
        recorder.validate_all()


def test_a_recorder_that_saw_nothing_proves_nothing() -> None:
    with pytest.raises(AssertionError, match="nothing was sent"):
        Recorder(scripted()).validate_all()
