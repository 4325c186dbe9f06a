"""The wire types against the official types: our messages fit every revision that we support."""

import json
from typing import Any, Final

import msgspec
import pytest

from limpet.errors import MissingCapability
from limpet.protocol import older, types
from limpet.protocol.older import fit
from limpet.protocol.results import is_tool_error
from limpet.protocol.sessionless import TASKS
from limpet.protocol.tasks import Progress, check_tasks, progress_of, without_extension
from limpet.protocol.types import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ClientCapabilities,
    CompleteResult,
    Completion,
    ContentBlock,
    CreateMessageParams,
    CreateMessageResult,
    ElicitFormParams,
    ElicitResult,
    ElicitURLParams,
    EmbeddedResource,
    GetPromptResult,
    Icon,
    ImageContent,
    Implementation,
    InitializeParams,
    InitializeResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListRootsResult,
    ListToolsResult,
    LoggingMessageParams,
    ModelHint,
    ModelPreferences,
    ProgressParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceResult,
    Resource,
    ResourceLink,
    ResourceTemplate,
    Root,
    SamplingMessage,
    ServerCapabilities,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
    ToolChoice,
    ToolExecution,
    ToolResultContent,
    ToolUseContent,
)
from tests import revisions
from tests.schema import validate

ALL: Final = ("2025-03-26", "2025-06-18", "2025-11-25")
SINCE_LINKS: Final = ALL[1:]
LATEST: Final = ALL[2:]


ICON = Icon(src="https://x/y.png", mime_type="image/png", sizes=["48x48"], theme="dark")
NOTES = Annotations(audience=["user"], priority=0.5, last_modified="2026-01-02T00:00:00Z")
META = {"k": 1}
TEXT = TextContent(text="", annotations=NOTES, meta=META)
IMAGE = ImageContent(data="AA==", mime_type="image/png")
AUDIO = AudioContent(data="AA==", mime_type="audio/wav", annotations=NOTES)
LINK = ResourceLink(
    uri="x://y", name="y", title="Y", description="why", mime_type="a/b", size=3, icons=[ICON], meta=META
)
TEXTS = TextResourceContents(uri="x://y", mime_type="text/plain", text="", meta=META)
BLOB = BlobResourceContents(uri="x://y", blob="")
BLOCKS: list[ContentBlock] = [
    TEXT,
    IMAGE,
    AUDIO,
    EmbeddedResource(resource=TEXTS, annotations=NOTES),
    EmbeddedResource(resource=BLOB),
]
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
TOOL = Tool(
    name="t",
    title="T",
    description="d",
    input_schema=SCHEMA,
    output_schema=SCHEMA,
    annotations=ToolAnnotations(title="T", read_only_hint=True, destructive_hint=False),
    execution=ToolExecution(task_support="forbidden"),
    icons=[ICON],
    meta=META,
)
US = Implementation(name="n", version="1", title="N", website_url="https://x", description="d", icons=[ICON])
SAYS = SamplingMessage(role="user", content=TEXT)

SAMPLES: Final = [
    ("CallToolResult", CallToolResult(content=BLOCKS, structured_content={}, is_error=True, meta=META), ALL),
    ("CallToolResult", CallToolResult(content=[]), ALL),
    ("CallToolResult", CallToolResult(content=[LINK]), ALL),
    ("ListToolsResult", ListToolsResult(tools=[TOOL], next_cursor="c"), ALL),
    (
        "ListResourcesResult",
        ListResourcesResult(
            resources=[Resource(uri="x://y", name="y", size=1, annotations=NOTES, icons=[ICON], meta=META)]
        ),
        ALL,
    ),
    (
        "ListResourceTemplatesResult",
        ListResourceTemplatesResult(
            resource_templates=[ResourceTemplate(uri_template="x://{y}", name="y", mime_type="a/b")]
        ),
        ALL,
    ),
    (
        "ListPromptsResult",
        ListPromptsResult(
            prompts=[
                Prompt(name="p", title="P", arguments=[PromptArgument(name="a", title="A", required=True)])
            ]
        ),
        ALL,
    ),
    ("ReadResourceResult", ReadResourceResult(contents=[TEXTS, BLOB]), ALL),
    (
        "GetPromptResult",
        GetPromptResult(
            description="d", messages=[PromptMessage(role="user", content=item) for item in BLOCKS]
        ),
        ALL,
    ),
    ("CompleteResult", CompleteResult(completion=Completion(values=["a"], total=1, has_more=False)), ALL),
    (
        "InitializeResult",
        InitializeResult(
            protocol_version="2025-11-25",
            capabilities=ServerCapabilities(tools={"listChanged": True}).to_wire(),
            server_info=US,
            instructions="i",
        ),
        ALL,
    ),
    ("SamplingMessage", SAYS, ALL),
    (
        "SamplingMessage",
        SamplingMessage(
            role="assistant",
            content=[
                ToolUseContent(id="1", name="t", input={}),
                ToolResultContent(tool_use_id="1", content=BLOCKS, structured_content={}),
            ],
        ),
        LATEST,
    ),
    (
        "CreateMessageRequestParams",
        CreateMessageParams(
            messages=[SAYS],
            max_tokens=10,
            system_prompt="s",
            temperature=0.5,
            stop_sequences=["x"],
            model_preferences=ModelPreferences(hints=[ModelHint(name="m")], cost_priority=0.0),
            include_context="none",
            tools=[TOOL],
            tool_choice=ToolChoice(mode="auto"),
            metadata={},
        ),
        LATEST,
    ),
    ("ElicitRequestFormParams", ElicitFormParams(message="m", requested_schema=SCHEMA, mode="form"), LATEST),
    ("ElicitRequestFormParams", ElicitFormParams(message="m", requested_schema=SCHEMA), LATEST),
    ("ElicitRequestURLParams", ElicitURLParams(message="m", url="https://x", elicitation_id="1"), LATEST),
    ("LoggingMessageNotificationParams", LoggingMessageParams(level="info", data=None, logger="l"), LATEST),
    (
        "ProgressNotificationParams",
        ProgressParams(progress_token=1, progress=1, total=2, message="m"),
        LATEST,
    ),
    ("ListRootsResult", ListRootsResult(roots=[Root(uri="file:///x", name="x")]), ALL),
    ("ElicitResult", ElicitResult(action="accept", content={"a": "b"}), SINCE_LINKS),
    (
        "CreateMessageResult",
        CreateMessageResult(role="assistant", content=TEXT, model="m", stop_reason="endTurn"),
        ALL,
    ),
    (
        "InitializeRequestParams",
        InitializeParams(protocol_version="2025-11-25", capabilities={"roots": {}}, client_info=US),
        LATEST,
    ),
]
CASES: Final = [(version, name, value) for name, value, versions in SAMPLES for version in versions]


RESULTS: Final = {
    "CallToolResult": "tools/call",
    "ListToolsResult": "tools/list",
    "ListResourcesResult": "resources/list",
    "ListResourceTemplatesResult": "resources/templates/list",
    "ListPromptsResult": "prompts/list",
    "ReadResourceResult": "resources/read",
    "GetPromptResult": "prompts/get",
    "CompleteResult": "completion/complete",
    "InitializeResult": "initialize",
}
CLIENT_RESULTS: Final = {
    "ListRootsResult": "roots/list",
    "ElicitResult": "elicitation/create",
    "CreateMessageResult": "sampling/createMessage",
}
PARAMS: Final = {
    "CreateMessageRequestParams": "sampling/createMessage",
    "ElicitRequestFormParams": "elicitation/create",
    "ElicitRequestURLParams": "elicitation/create",
    "LoggingMessageNotificationParams": "notifications/message",
    "ProgressNotificationParams": "notifications/progress",
}


def judge(version: str, name: str, value: Any) -> None:
    """Check a message that holds the value against the schema."""
    if name in RESULTS:
        validate({"jsonrpc": "2.0", "id": 1, "result": value}, version, answers=RESULTS[name])
    elif name in CLIENT_RESULTS:
        answer = {"jsonrpc": "2.0", "id": 1, "result": value}
        validate(answer, version, answers=CLIENT_RESULTS[name], sender="client")
    elif name == "SamplingMessage":
        judge(version, "CreateMessageRequestParams", {"messages": [value], "maxTokens": 1})
    elif name == "InitializeRequestParams":
        first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": value}
        validate(first, version, sender="client")
    else:
        message = {"jsonrpc": "2.0", "method": PARAMS[name], "params": value}
        validate(message if "Notification" in name else {**message, "id": 1}, version)


@pytest.mark.parametrize(("version", "name", "value"), CASES, ids=[f"{case[1]}-{case[0]}" for case in CASES])
def test_encoded_messages_fit_the_revision_and_decode_to_the_same_value(
    version: str, name: str, value: Any
) -> None:
    encoded = msgspec.json.encode(fit(version, value))
    judge(version, name, json.loads(encoded))
    assert msgspec.json.encode(msgspec.json.decode(encoded, type=type(value))) == encoded


# Older revisions


@pytest.mark.parametrize("version", ALL[:2])
def test_members_of_later_revisions_are_left_out(version: str) -> None:
    ours = {
        (kind.__name__, name)
        for kind, members in older.LATER[version].items()
        for name in members
        if kind is not types.ResourceContents and (version, kind) != ("2025-03-26", ResourceLink)
    }
    encoded = {kind.__name__: dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
               for kind in older.LATER[version]}  # fmt: skip
    wire = {(kind, encoded[kind][name]) for kind, name in ours}
    judged = {
        (kind, member)
        for since, kinds in revisions.SINCE.items()
        if since > version
        for kind, members in kinds.items()
        if kind in {name for name, _ in ours}
        for member in members
    }
    assert wire == judged


def test_a_resource_link_becomes_text_before_2025_06_18() -> None:
    result = CallToolResult(content=[TEXT, LINK])
    judged = json.loads(msgspec.json.encode(result))
    with pytest.raises(AssertionError, match="ResourceLink came after 2025-03-26"):
        judge("2025-03-26", "CallToolResult", {"content": judged["content"][1:]})
    said = fit("2025-03-26", result).content[1]
    assert said == TextContent(text="Y: x://y\nwhy")
    prompt = fit("2025-03-26", GetPromptResult(messages=[PromptMessage(role="user", content=LINK)]))
    assert prompt.messages == [PromptMessage(role="user", content=said)]


def test_the_newest_revision_gets_the_very_same_object() -> None:
    result = CallToolResult(content=[TEXT, LINK], structured_content={}, meta=META)
    assert fit("2025-11-25", result) is result
    assert fit("2026-07-28", result) is result
    plain = CallToolResult(content=[TextContent(text="")])
    assert fit("2025-03-26", plain) is plain


# Reading


def test_resource_contents_are_distinguished_by_their_members() -> None:
    read = msgspec.json.decode(
        b'{"contents":[{"uri":"a:b","text":""},{"uri":"a:c","blob":"AA=="}]}', type=ReadResourceResult
    )
    assert [(item.text, item.blob) for item in read.contents] == [("", None), (None, "AA==")]


def test_a_sampling_answer_joins_its_texts() -> None:
    one = CreateMessageResult(role="assistant", model="m", content=TextContent(text="a"))
    many = CreateMessageResult(
        role="assistant", model="m", content=[TextContent(text="a"), IMAGE, TextContent(text="b")]
    )
    assert (one.text, many.text) == ("a", "ab")


@pytest.mark.parametrize(
    ("meta", "token"),
    [
        (None, None),
        ({}, None),
        ({"progressToken": 0}, 0),
        ({"progressToken": "x" * 257}, "x" * 257),
        ({"progressToken": True}, None),
    ],
)
def test_the_progress_token_is_read_from_meta(meta: dict[str, Any] | None, token: object) -> None:
    assert types.CallToolParams(name="t", meta=meta).progress_token == token


def test_completion_references_are_distinguished_by_type() -> None:
    params: dict[str, Any] = {"argument": {"name": "a", "value": ""}}
    prompt = msgspec.convert({**params, "ref": {"type": "ref/prompt", "name": "p"}}, types.CompleteParams)
    resource = msgspec.convert({**params, "ref": {"type": "ref/resource", "uri": "u"}}, types.CompleteParams)
    assert prompt.ref == types.PromptReference(name="p")
    assert resource.ref == types.ResourceReference(uri="u")


def test_capabilities_keep_unknown_members() -> None:
    wire = {"sampling": {"tools": {}}, "experimental": {"x": {}}, "new": {"y": 1}}
    read = ClientCapabilities.from_wire(wire)
    assert read.to_wire() == wire
    assert read.extra == {"new": {"y": 1}}
    assert ClientCapabilities.from_wire({"sampling": 3, "roots": {}}) == ClientCapabilities(roots={})


@pytest.mark.parametrize(
    ("wire", "form", "url"),
    [
        ({}, False, False),
        ({"elicitation": {}}, True, False),
        ({"elicitation": {"form": {}}}, True, False),
        ({"elicitation": {"url": {}}}, False, True),
        ({"elicitation": {"form": {}, "url": {}}}, True, True),
    ],
)
def test_an_empty_elicitation_capability_means_forms(wire: dict[str, Any], form: bool, url: bool) -> None:
    read = ClientCapabilities.from_wire(wire)
    assert (read.elicits_form, read.elicits_url) == (form, url)


def test_sampling_extras_are_declared_one_by_one() -> None:
    plain = ClientCapabilities.from_wire({"sampling": {}})
    rich = ClientCapabilities.from_wire({"sampling": {"tools": {}, "context": {}}})
    assert (plain.samples_with_tools, plain.samples_with_context) == (False, False)
    assert (rich.samples_with_tools, rich.samples_with_context) == (True, True)


def test_logging_levels_are_ranked_by_severity() -> None:
    assert min(types.LOGGING_LEVELS, key=types.LOGGING_LEVELS.__getitem__) == "debug"
    assert types.LOGGING_LEVELS["warning"] < types.LOGGING_LEVELS["error"] < types.LOGGING_LEVELS["emergency"]


@pytest.mark.parametrize(
    ("result", "failed"),
    [
        (b'{"isError":true}', True),
        (b'{"isError": true,"content":[]}', True),
        (b'{"isError":false}', False),
        (b'{"content":[]}', False),
        (b'{"content":[{"text":"isError"}]}', False),
        (b'{"structuredContent":{"isError":true}}', False),
    ],
)
def test_an_encoded_result_says_itself_whether_its_tool_failed(result: bytes, failed: bool) -> None:
    assert is_tool_error(result) is failed


def test_only_a_valid_notification_of_progress_has_one() -> None:
    message = b'{"method":"notifications/progress","params":{"progressToken":1,"progress":2,"total":4,"message":"m"}}'
    assert progress_of(message) == Progress(2, 4, "m")
    assert progress_of(message.replace(b'"progress":2', b'"progress":"2"')) is None
    assert progress_of(message.replace(b"notifications/progress", b"notifications/message")) is None


def test_tasks_need_the_extension_of_the_client() -> None:
    declared: dict[str, Any] = {"extensions": {TASKS: {}, "other": {}}}
    check_tasks(declared)
    assert without_extension(declared) == {"extensions": {"other": {}}}
    for lacking in ({}, {"extensions": {TASKS: True}}, {"extensions": 1}):
        with pytest.raises(MissingCapability):
            check_tasks(lacking)
        assert without_extension(lacking) == lacking
