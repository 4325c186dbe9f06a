"""Every wire type of both eras, by its name in the specification."""

from typing import Any, Self, TypeVar

from msgspec import Struct, field

from limpet.protocol.content import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    Icon,
    ImageContent,
    Meta,
    PromptMessage,
    ResourceContents,
    ResourceLink,
    Role,
    SamplingBlock,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    ToolResultContent,
    ToolUseContent,
)
from limpet.protocol.listing import (
    Implementation,
    ModelHint,
    ModelPreferences,
    Prompt,
    PromptArgument,
    Resource,
    ResourceTemplate,
    Root,
    Tool,
    ToolAnnotations,
    ToolChoice,
    ToolExecution,
)
from limpet.protocol.params import (
    LOGGING_LEVELS,
    CallToolParams,
    CancelledParams,
    CompleteParams,
    CompletionArgument,
    CompletionContext,
    CreateMessageParams,
    ElicitationCompleteParams,
    ElicitFormParams,
    ElicitURLParams,
    GetPromptParams,
    InitializeParams,
    ListParams,
    LoggingLevel,
    LoggingMessageParams,
    ProgressParams,
    ProgressToken,
    PromptReference,
    ReadResourceParams,
    ResourceReference,
    ResourceUpdatedParams,
    SetLevelParams,
)
from limpet.protocol.results import (
    CacheableResult,
    CallToolResult,
    CompleteResult,
    Completion,
    CreateMessageResult,
    DiscoverResult,
    ElicitResult,
    GetPromptResult,
    InitializeResult,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListRootsResult,
    ListToolsResult,
    ReadResourceResult,
    Result,
)
from limpet.wire.jsonrpc import RequestId

# The capabilities that each side declares. Unknown members are kept unchanged.

Members = dict[str, Any]
C = TypeVar("C", bound="Capabilities")


class Capabilities(Struct, frozen=True, kw_only=True):
    """The known members, and `extra` with all others."""

    experimental: Members | None = None
    tasks: Members | None = None
    extra: Members = field(default_factory=dict)

    @classmethod
    def from_wire(cls, members: Members) -> Self:
        """Read a capabilities object. A member that is not an object counts as absent."""
        names = {*cls.__struct_fields__} - {"extra"}
        known = {name: value for name, value in members.items() if name in names and isinstance(value, dict)}
        return cls(**known, extra={name: value for name, value in members.items() if name not in names})

    def to_wire(self) -> Members:
        names = (name for name in self.__struct_fields__ if name != "extra")
        known = {name: value for name in names if (value := getattr(self, name)) is not None}
        return {**known, **self.extra}


class ClientCapabilities(Capabilities, frozen=True, kw_only=True):
    """The capabilities that a client declares."""

    roots: Members | None = None
    sampling: Members | None = None
    elicitation: Members | None = None

    @property
    def samples_with_tools(self) -> bool:
        return self.sampling is not None and "tools" in self.sampling

    @property
    def samples_with_context(self) -> bool:
        return self.sampling is not None and "context" in self.sampling

    @property
    def elicits_form(self) -> bool:
        # Before 2025-11-25 an empty object declared forms, and it still does.
        return self.elicitation is not None and ("form" in self.elicitation or "url" not in self.elicitation)

    @property
    def elicits_url(self) -> bool:
        return self.elicitation is not None and "url" in self.elicitation


class ServerCapabilities(Capabilities, frozen=True, kw_only=True):
    """The capabilities that a server declares."""

    tools: Members | None = None
    resources: Members | None = None
    prompts: Members | None = None
    completions: Members | None = None
    logging: Members | None = None


__all__ = [
    "LOGGING_LEVELS",
    "Annotations",
    "AudioContent",
    "BlobResourceContents",
    "CacheableResult",
    "CallToolParams",
    "CallToolResult",
    "CancelledParams",
    "ClientCapabilities",
    "CompleteParams",
    "CompleteResult",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "ContentBlock",
    "CreateMessageParams",
    "CreateMessageResult",
    "DiscoverResult",
    "ElicitFormParams",
    "ElicitResult",
    "ElicitURLParams",
    "ElicitationCompleteParams",
    "EmbeddedResource",
    "GetPromptParams",
    "GetPromptResult",
    "Icon",
    "ImageContent",
    "Implementation",
    "InitializeParams",
    "InitializeResult",
    "InputRequiredResult",
    "ListParams",
    "ListPromptsResult",
    "ListResourceTemplatesResult",
    "ListResourcesResult",
    "ListRootsResult",
    "ListToolsResult",
    "LoggingLevel",
    "LoggingMessageParams",
    "Meta",
    "ModelHint",
    "ModelPreferences",
    "ProgressParams",
    "ProgressToken",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
    "PromptReference",
    "ReadResourceParams",
    "ReadResourceResult",
    "RequestId",
    "Resource",
    "ResourceContents",
    "ResourceLink",
    "ResourceReference",
    "ResourceTemplate",
    "ResourceUpdatedParams",
    "Result",
    "Role",
    "Root",
    "SamplingBlock",
    "SamplingMessage",
    "ServerCapabilities",
    "SetLevelParams",
    "TextContent",
    "TextResourceContents",
    "Tool",
    "ToolAnnotations",
    "ToolChoice",
    "ToolExecution",
    "ToolResultContent",
    "ToolUseContent",
]
