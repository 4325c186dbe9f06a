"""The schema check is tested: good messages pass, each kind of bad one is named with its path."""

import json
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from tests.revisions import ALL, SINCE, SINGLE, later
from tests.schema import CALLS, FORMATS, MODERN, RESULTS, VERSIONS, Receive, Recorder, Scope, Send, validate
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
    "an inner schema is invalid": (
        result({"tools": [{**TOOL, "inputSchema": {"type": "object", "required": 7}}]}), "tools/list", "echo.inputSchema|required"),
    "bytes are not base64": (
        result({"contents": [{"uri": "a:b", "blob": "?"}]}), "resources/read", r"contents\[0\]"),
    "a URI has no scheme": (result({"contents": [{"uri": "b", "text": ""}]}), "resources/read", r"contents\[0\]"),
    "an empty result is not empty": (result({"ok": True}), "ping", "ok"),
    "the request that it answers is unknown": (result({}), None, "method it answers"),
    "a null id": ({"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "no"}}, None, "id"),
    "an error without a code": ({"jsonrpc": "2.0", "id": 1, "error": {"message": "no"}}, None, "error.*code"),
    "result and error at once": ({**result({}), "error": {"code": 1, "message": "no"}}, "ping", "both"),
    "a client's method": ({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, None, "not a request that a server"),
    "no such method": ({"jsonrpc": "2.0", "method": "notifications/none"}, None, "no such method"),
    "params are wrong": (
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}, None, "progressToken"),
    "not JSON-RPC": ({"method": "ping", "id": 1}, None, "jsonrpc"),
    "an array": ([result({})], "ping", "not one message"),
    "an error with more members": (
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no", "hint": ""}}, None, "other members"),
    "a response with more members": ({**result({}), "params": {}}, "ping", "other members"),
    "an id that is a truth value": ({"jsonrpc": "2.0", "id": True, "error": {"code": 1, "message": "no"}}, None, "no id"),
}  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("why", BAD)
def test_a_bad_message_is_named_with_its_path(why: str, version: str) -> None:
    message, answers, complaint = BAD[why]
    with pytest.raises(AssertionError, match=complaint):
        validate(message, version, answers=answers)


def test_a_member_of_a_later_revision_is_a_violation() -> None:
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "elicitation/create",
        "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}},
    }
    validate(message, "2025-06-18")
    with pytest.raises(AssertionError, match="no such method"):
        validate(message, "2025-03-26")


def models(kind: Any, found: dict[str, set[str]]) -> dict[str, set[str]]:
    """Gather the names and the members of a type and of all types in it."""
    if isinstance(kind, type) and issubclass(kind, BaseModel) and not get_args(kind):
        members = {field.alias or name for name, field in kind.model_fields.items()}
        if kind.__name__ not in found:
            found[kind.__name__] = members
            for field in kind.model_fields.values():
                models(field.annotation, found)
    for part in get_args(kind):
        models(part, found)
    return found


def test_every_row_of_our_table_names_a_type_and_members_that_exist() -> None:
    known: dict[str, set[str]] = {}
    for table in (*CALLS.values(), *RESULTS.values()):
        for (_, version), kind in table.items():
            if version == VERSIONS[-1]:
                models(kind, known)
    rows = {(kind, member) for types in SINCE.values() for kind, added in types.items() for member in added}
    rows |= set(SINGLE.items()) | {
        (kind, member) for kind, _, member in (key.partition(".") for key in FORMATS)
    }
    assert {kind for kind, _ in rows} <= known.keys()
    assert {(kind, member) for kind, member in rows if member not in known[kind] | ALL} == set()


def place(kind: str, value: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Return a message that a server sends with such a value in it, and the method that it answers."""
    content = {"TextContent", "ImageContent", "AudioContent", "EmbeddedResource", "ResourceLink"}
    if kind in content:
        return result({"content": [value]}), "tools/call"
    listed = {
        "Tool": "tools",
        "Prompt": "prompts",
        "Resource": "resources",
        "ResourceTemplate": "resourceTemplates",
    }
    if kind in listed:
        method = "resources/templates/list" if kind == "ResourceTemplate" else f"{listed[kind]}/list"
        return result({listed[kind]: [value]}), method
    if kind == "Implementation":
        said = {"protocolVersion": "x", "capabilities": {}, "serverInfo": value}
        return result(said), "initialize"
    if kind == "CallToolResult":
        return result(value), "tools/call"
    if kind in {"TextResourceContents", "BlobResourceContents"}:
        return result({"contents": [value]}), "resources/read"
    if kind == "SamplingMessage":
        asked = {"messages": [value], "maxTokens": 1}
        return {"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": asked}, None
    assert kind == "ElicitRequestFormParams", kind
    return {"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": value}, None


TEXT: dict[str, Any] = {"type": "text", "text": ""}
ICON = {"src": "https://x/y.png"}
SAMPLES: dict[str, dict[str, Any]] = {
    "TextContent": TEXT,
    "ImageContent": {"type": "image", "data": "AA==", "mimeType": "image/png"},
    "AudioContent": {"type": "audio", "data": "AA==", "mimeType": "audio/wav"},
    "EmbeddedResource": {"type": "resource", "resource": {"uri": "a:b", "text": ""}},
    "ResourceLink": {"type": "resource_link", "uri": "a:b", "name": "b"},
    "Tool": TOOL,
    "Prompt": {"name": "p"},
    "Resource": {"uri": "a:b", "name": "b"},
    "ResourceTemplate": {"uriTemplate": "a:{b}", "name": "b"},
    "Implementation": {"name": "n", "version": "1"},
    "CallToolResult": {"content": []},
    "TextResourceContents": {"uri": "a:b", "text": ""},
    "BlobResourceContents": {"uri": "a:b", "blob": ""},
    "SamplingMessage": {"role": "user", "content": TEXT},
    "ElicitRequestFormParams": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}},
}
VALUES: dict[str, Any] = {
    "_meta": {"k": 1},
    "title": "T",
    "description": "d",
    "icons": [ICON],
    "execution": {"taskSupport": "optional"},
    "outputSchema": {"type": "object"},
    "structuredContent": {},
    "websiteUrl": "https://x",
    "mode": "form",
    "task": {"ttl": 1},
}
FIRST = {"ResourceLink": 1, "ElicitRequestFormParams": 1}
"""The first revision that has the type, where it is not the oldest."""
ADDED = [
    (kind, member, since)
    for since, types in SINCE.items()
    for kind, members in types.items()
    for member in sorted(members - ALL)
    if kind in SAMPLES
]


@pytest.mark.parametrize(("kind", "member", "since"), ADDED)
def test_a_member_passes_from_its_revision_on_and_fails_before(kind: str, member: str, since: str) -> None:
    message, answers = place(kind, {**SAMPLES[kind], member: VALUES[member]})
    for version in VERSIONS[FIRST.get(kind, 0) :]:
        if version >= since:
            validate(message, version, answers=answers)
        else:
            with pytest.raises(AssertionError, match=f"{member}: this member of {kind} came after {version}"):
                validate(message, version, answers=answers)


@pytest.mark.parametrize("version", [*VERSIONS, MODERN])
@pytest.mark.parametrize("kind", SAMPLES)
def test_an_unknown_member_fails_at_every_depth(kind: str, version: str) -> None:
    if version == MODERN and kind in {"Implementation", "SamplingMessage", "ElicitRequestFormParams"}:
        kind = "CallToolResult"
    message, answers = place(kind, {**SAMPLES[kind], "colour": "red"})
    if version == MODERN:
        message["result"]["resultType"] = "complete"
        if answers != "tools/call":
            message["result"] |= {"ttlMs": 0, "cacheScope": "private"}
    with pytest.raises(AssertionError, match=r"has no member 'colour'|came after|no such method"):
        validate(message, version, answers=answers)


LATER_KINDS: dict[str, tuple[Any, str]] = {
    "ResourceLink": (place("ResourceLink", SAMPLES["ResourceLink"]), "2025-06-18"),
    "ToolUseContent": (
        place(
            "SamplingMessage",
            {"role": "user", "content": {"type": "tool_use", "id": "1", "name": "t", "input": {}}},
        ),
        "2025-11-25",
    ),
    "a list": (place("SamplingMessage", {"role": "user", "content": [TEXT]}), "2025-11-25"),
}


@pytest.mark.parametrize("kind", LATER_KINDS)
def test_a_kind_of_content_passes_from_its_revision_on_and_fails_before(kind: str) -> None:
    (message, answers), since = LATER_KINDS[kind]
    for version in VERSIONS:
        if version >= since:
            validate(message, version, answers=answers)
        else:
            with pytest.raises(AssertionError, match=f"{kind} came after {version}"):
                validate(message, version, answers=answers)


def test_an_undefined_kind_of_content_fails() -> None:
    for version in VERSIONS:
        with pytest.raises(AssertionError, match=r"content\[0\]"):
            validate(result({"content": [{"type": "video", "data": ""}]}), version, answers="tools/call")


@pytest.mark.parametrize("wrong", ["1", 1.5, None, True])
def test_a_value_is_not_converted_before_it_is_judged(wrong: object) -> None:
    message = result({"resources": [{"uri": "a:b", "name": "b", "size": wrong}]})
    if wrong is None:
        message = result({"resources": [{"uri": None, "name": "b"}]})
    with pytest.raises(AssertionError, match=r"resources\[0\]\.(size|uri)"):
        validate(message, "2025-11-25", answers="resources/list")


FIELDS: dict[str, tuple[Any, str | None]] = {
    "text": ({"type": "string", "title": "T", "minLength": 1, "format": "email"}, "2025-06-18"),
    "number": ({"type": "number", "minimum": 1.5}, "2025-06-18"),
    "a choice": ({"type": "string", "enum": ["a"], "enumNames": ["A"]}, "2025-06-18"),
    "yes or no": ({"type": "boolean", "default": True}, "2025-06-18"),
    "text with a default": ({"type": "string", "default": "x"}, "2025-11-25"),
    "a choice with titles": ({"type": "string", "oneOf": [{"const": "a", "title": "A"}]}, "2025-11-25"),
    "several": ({"type": "array", "items": {"type": "string", "enum": ["a"]}}, "2025-11-25"),
    "several with titles": (
        {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}},
        "2025-11-25",
    ),
    "an object": ({"type": "object", "properties": {}}, None),
    "a list of numbers": ({"type": "array", "items": {"type": "number"}}, None),
    "a pattern": ({"type": "string", "pattern": "a+"}, None),
    "no type": ({"title": "T"}, None),
    "another format": ({"type": "string", "format": "ipv4"}, None),
}


@pytest.mark.parametrize("name", FIELDS)
def test_a_form_has_the_fields_of_its_revision(name: str) -> None:
    field, since = FIELDS[name]
    schema = {"type": "object", "properties": {"f": field}}
    message, _ = place("ElicitRequestFormParams", {"message": "?", "requestedSchema": schema})
    for version in VERSIONS[1:]:
        if since is not None and version >= since:
            validate(message, version)
        else:
            with pytest.raises(AssertionError, match="is no field of a form"):
                validate(message, version)


MODERN_BAD: dict[str, tuple[Any, str | None, str]] = {
    "no resultType": (result({"content": []}), "tools/call", "resultType"),
    "a list that asks for input": (
        result({"resultType": "input_required", "requestState": "s", "tools": []}), "tools/list", "cannot ask"),
    "asks for nothing": (result({"resultType": "input_required"}), "tools/call", "but for none"),
    "asks in other words": (
        result({"resultType": "input_required", "inputRequests": {"a": {"method": "ping"}}}), "tools/call", "inputRequests"),
    "a request of the server": ({"jsonrpc": "2.0", "id": 1, "method": "roots/list"}, None, "no such method"),
    "a version error without data": (
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -32022, "message": "no"}}, None, "data"),
    "a version error without versions": (
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -32022, "message": "no", "data": {"requested": "x"}}}, None, "supported"),
    "a capability error without one": (
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -32021, "message": "no", "data": {}}}, None, "requiredCapabilities"),
}  # fmt: skip


@pytest.mark.parametrize("why", MODERN_BAD)
def test_a_bad_message_of_the_revision_without_sessions_is_named(why: str) -> None:
    message, answers, complaint = MODERN_BAD[why]
    with pytest.raises(AssertionError, match=complaint):
        validate(message, MODERN, answers=answers)


def test_a_revision_lacks_everything_that_came_after_it() -> None:
    assert later("2025-03-26", "Tool") == {"_meta", "outputSchema", "title", "execution", "icons"}
    assert later("2025-06-18", "Tool") == {"execution", "icons"}
    assert later("2025-11-25", "Tool") == later(MODERN, "Tool") == frozenset()


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
async def test_events_cut_at_any_byte_are_parsed_and_comments_are_not_messages() -> None:
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
async def test_a_response_without_a_request_is_a_violation() -> None:
    recorder = Recorder(scripted(b'{"jsonrpc":"2.0","id":"1","result":{}}'))
    await call(recorder, PING)
    with pytest.raises(AssertionError, match="can only be judged"):
        recorder.validate_all()


def test_a_recorder_without_messages_fails() -> None:
    with pytest.raises(AssertionError, match="nothing was sent"):
        Recorder(scripted()).validate_all()
