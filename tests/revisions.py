"""Which members came after which revision of the protocol: the part of the schema check that `mcp-types` does not have.

The package checks every revision with sessions against 2025-11-25. This table names the members that a message of an
earlier revision may not hold yet: `SINCE[revision]` maps a type to the members that the revision added, and to
`ALL` where the revision added the type itself (a kind of content, for instance). Methods need no row: the package
knows which revision has which method.

The forms of an elicitation are checked here for every revision, because the package accepts any field in them.
"""

from typing import Any, Final

ALL: Final = frozenset({"*"})
"""The whole type came later."""

SINCE: Final[dict[str, dict[str, frozenset[str]]]] = {
    "2025-06-18": {
        "Annotations": frozenset({"lastModified"}),
        "AudioContent": frozenset({"_meta"}),
        "BlobResourceContents": frozenset({"_meta"}),
        "CallToolResult": frozenset({"structuredContent"}),
        "ClientCapabilities": frozenset({"elicitation"}),
        "CompleteRequestParams": frozenset({"context"}),
        "EmbeddedResource": frozenset({"_meta"}),
        "ImageContent": frozenset({"_meta"}),
        "Implementation": frozenset({"title"}),
        "Prompt": frozenset({"_meta", "title"}),
        "PromptArgument": frozenset({"title"}),
        "PromptReference": frozenset({"title"}),
        "Resource": frozenset({"_meta", "title"}),
        "ResourceLink": ALL,
        "ResourceTemplate": frozenset({"_meta", "title"}),
        "Root": frozenset({"_meta"}),
        "TextContent": frozenset({"_meta"}),
        "TextResourceContents": frozenset({"_meta"}),
        "Tool": frozenset({"_meta", "outputSchema", "title"}),
    },
    "2025-11-25": {
        "CallToolRequestParams": frozenset({"task"}),
        "ClientCapabilities": frozenset({"tasks"}),
        "CreateMessageRequestParams": frozenset({"task", "toolChoice", "tools"}),
        "Elicitation": frozenset({"form", "url"}),
        "ElicitRequestFormParams": frozenset({"mode", "task"}),
        "ElicitRequestURLParams": ALL,
        "Icon": ALL,
        "Implementation": frozenset({"description", "icons", "websiteUrl"}),
        "Prompt": frozenset({"icons"}),
        "RequestedSchema": frozenset({"$schema"}),
        "Resource": frozenset({"icons"}),
        "ResourceLink": frozenset({"icons"}),
        "ResourceTemplate": frozenset({"icons"}),
        "Sampling": frozenset({"context", "tools"}),
        "SamplingMessage": frozenset({"_meta"}),
        "ServerCapabilities": frozenset({"tasks"}),
        "Tool": frozenset({"execution", "icons"}),
        "ToolResultContent": ALL,
        "ToolUseContent": ALL,
    },
}
EXTENSIONS: Final = {"SubscriptionFilter": frozenset({"taskIds"})}
"""Members that an extension of the protocol adds; the extension for tasks adds this one."""
SINGLE: Final = {"SamplingMessage": "content", "CreateMessageResult": "content"}
"""Members that hold one block before 2025-11-25, and since then one or a list of blocks."""


def later(version: str, kind: str) -> frozenset[str]:
    """Return the members of a type that a revision does not have yet; `ALL` if it lacks the type."""
    return frozenset().union(*(types.get(kind, ()) for since, types in SINCE.items() if since > version))


def _field(kind: str, required: str = "", **members: Any) -> dict[str, Any]:
    text = {"type": "string"}
    properties = {"type": {"const": kind}, "title": text, "description": text, **members}
    return {
        "properties": properties,
        "required": ["type", *required.split()],
        "additionalProperties": False,
    }


_TEXT: Final[Any] = {"type": "string"}
_TEXTS: Final[Any] = {"type": "array", "items": _TEXT}
_COUNT: Final[Any] = {"type": "integer", "minimum": 0}
_NUMBER: Final[Any] = {"type": "number"}
_TITLED: Final[Any] = {
    "type": "array",
    "items": {
        "properties": {"const": _TEXT, "title": _TEXT},
        "required": ["const", "title"],
        "additionalProperties": False,
    },
}
_FORMAT: Final[Any] = {"enum": ["email", "uri", "date", "date-time"]}


def _several(**items: Any) -> dict[str, Any]:
    allowed = {"properties": items, "required": list(items), "additionalProperties": False}
    return _field("array", "items", items=allowed, minItems=_COUNT, maxItems=_COUNT, default=_TEXTS)


def _plain_fields(**default: Any) -> list[dict[str, Any]]:
    """Return the fields that every revision with forms has; `default` came to most of them in 2025-11-25."""
    text: Any = {"default": _TEXT} if default else {}
    number: Any = {"default": _NUMBER} if default else {}
    return [
        _field("string", minLength=_COUNT, maxLength=_COUNT, format=_FORMAT, **text),
        _field("string", "enum", enum=_TEXTS, enumNames=_TEXTS, **text),
        _field("number", minimum=_NUMBER, maximum=_NUMBER, **number),
        _field("integer", minimum=_NUMBER, maximum=_NUMBER, **number),
        _field("boolean", default={"type": "boolean"}),
    ]


def form_field(version: str) -> dict[str, Any]:
    """Return a JSON schema of the fields that a form of this revision may have."""
    if version < "2025-11-25":
        return {"anyOf": _plain_fields()}
    several = [_several(type={"const": "string"}, enum=_TEXTS), _several(anyOf=_TITLED)]
    titled = _field("string", "oneOf", oneOf=_TITLED, default=_TEXT)
    return {"anyOf": [*_plain_fields(default=True), titled, *several]}
