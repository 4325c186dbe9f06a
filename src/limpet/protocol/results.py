"""The results of every request between a server and a client, of both eras."""

from typing import Any, Final, Literal

from msgspec import Struct, field
from msgspec.json import Decoder

from limpet.protocol.content import (
    ContentBlock,
    Leaf,
    Meta,
    PromptMessage,
    ResourceContents,
    Role,
    SamplingBlock,
    TextContent,
)
from limpet.protocol.listing import Implementation, Prompt, Resource, ResourceTemplate, Root, Tool


class Result(Leaf, frozen=True, kw_only=True):
    """The members that every result may have; alone it is the empty result."""

    meta: Meta | None = field(default=None, name="_meta")


class CacheableResult(Result, frozen=True, kw_only=True):
    """A result with caching hints: a time to live and a sharing scope. Only 2026-07-28 has these members."""

    ttl_ms: int | None = None
    cache_scope: Literal["public", "private"] | None = None


class InputRequiredResult(Result, frozen=True, kw_only=True):
    """The result of 2026-07-28 that asks for input first."""

    input_requests: dict[str, Any] | None = None
    request_state: str | None = None


# Results of a server


class InitializeResult(Result, frozen=True, kw_only=True):
    """The result of `initialize`."""

    protocol_version: str
    capabilities: dict[str, Any]
    server_info: Implementation
    instructions: str | None = None


class DiscoverResult(CacheableResult, frozen=True, kw_only=True):
    """The result of `server/discover`."""

    supported_versions: list[str]
    capabilities: dict[str, Any]
    instructions: str | None = None


class CallToolResult(Result, frozen=True, kw_only=True):
    """The result of `tools/call`."""

    content: list[ContentBlock]
    structured_content: dict[str, Any] | None = None
    is_error: bool = False


class ListToolsResult(CacheableResult, frozen=True, kw_only=True):
    """The result of `tools/list`: one page."""

    tools: list[Tool]
    next_cursor: str | None = None


class ListResourcesResult(CacheableResult, frozen=True, kw_only=True):
    """The result of `resources/list`: one page."""

    resources: list[Resource]
    next_cursor: str | None = None


class ListResourceTemplatesResult(CacheableResult, frozen=True, kw_only=True):
    """The result of `resources/templates/list`: one page."""

    resource_templates: list[ResourceTemplate]
    next_cursor: str | None = None


class ListPromptsResult(CacheableResult, frozen=True, kw_only=True):
    """The result of `prompts/list`: one page."""

    prompts: list[Prompt]
    next_cursor: str | None = None


class ReadResourceResult(CacheableResult, frozen=True, kw_only=True):
    """The result of `resources/read`."""

    contents: list[ResourceContents]


class GetPromptResult(Result, frozen=True, kw_only=True):
    """The result of `prompts/get`."""

    messages: list[PromptMessage]
    description: str | None = None


class Completion(Leaf, frozen=True, kw_only=True):
    """Values that a client may offer its user, at most 100 of `total`."""

    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(Result, frozen=True, kw_only=True):
    """The result of `completion/complete`."""

    completion: Completion


# Results of a client


class CreateMessageResult(Result, frozen=True, kw_only=True):
    """The result of `sampling/createMessage`."""

    role: Role
    content: SamplingBlock | list[SamplingBlock]
    model: str
    stop_reason: str | None = None

    @property
    def text(self) -> str:
        """The text of all text blocks, joined."""
        blocks = self.content if isinstance(self.content, list) else [self.content]
        return "".join(block.text for block in blocks if isinstance(block, TextContent))


class ElicitResult(Result, frozen=True, kw_only=True):
    """The result of `elicitation/create`."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


class ListRootsResult(Result, frozen=True, kw_only=True):
    """The result of `roots/list`."""

    roots: list[Root]


# Encoded results


class _Flagged(Struct):
    is_error: bool = field(name="isError", default=False)


_decode_flag: Final = Decoder(_Flagged).decode


def is_tool_error(result: bytes) -> bool:
    """True if an encoded result says `isError`. Only a result that may say so is decoded.

    `find` and not `in`, which for bytes first makes and drops an exception: ten times the time.
    """
    find = result.find
    if find(b'"isError"') < 0:
        return False
    return (find(b'"isError":true') >= 0 or find(b'"isError": true') >= 0) and _decode_flag(result).is_error
