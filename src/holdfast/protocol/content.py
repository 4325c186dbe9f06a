"""What results and messages carry: content blocks, resource contents, sampling blocks.

Blocks are told apart by `type`; resource contents by having `text` or `blob`. A client is never
sent a block that its revision's schema forbids: `content_for` says the same thing in older words.
"""

from typing import Any, Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

Role = Literal["user", "assistant"]
Meta = dict[str, Any]


class Leaf(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Wire data that can hold no cycle."""


class Icon(Leaf, frozen=True, kw_only=True):
    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: Literal["light", "dark"] | None = None


class Annotations(Leaf, frozen=True, kw_only=True):
    audience: list[Role] | None = None
    priority: float | None = None
    last_modified: str | None = None


class ResourceContents(Leaf, frozen=True, kw_only=True):
    """What reading a resource gives: exactly one of `text` and `blob` (base64) is set."""

    uri: str
    mime_type: str | None = None
    meta: Meta | None = field(default=None, name="_meta")
    text: str | None = None
    blob: str | None = None


class TextResourceContents(ResourceContents, frozen=True, kw_only=True):
    text: str


class BlobResourceContents(ResourceContents, frozen=True, kw_only=True):
    blob: str


class Block(Leaf, frozen=True, kw_only=True, tag_field="type"):
    """A content block; its class decides `type`."""

    meta: Meta | None = field(default=None, name="_meta")


class TextContent(Block, frozen=True, kw_only=True, tag="text"):
    text: str
    annotations: Annotations | None = None


class ImageContent(Block, frozen=True, kw_only=True, tag="image"):
    data: str
    mime_type: str
    annotations: Annotations | None = None


class AudioContent(Block, frozen=True, kw_only=True, tag="audio"):
    data: str
    mime_type: str
    annotations: Annotations | None = None


class ResourceLink(Block, frozen=True, kw_only=True, tag="resource_link"):
    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: list[Icon] | None = None
    annotations: Annotations | None = None


class EmbeddedResource(Block, frozen=True, kw_only=True, tag="resource"):
    resource: ResourceContents
    annotations: Annotations | None = None


ContentBlock = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource


class ToolUseContent(Block, frozen=True, kw_only=True, tag="tool_use"):
    """In sampling: the model wants a tool called."""

    id: str
    name: str
    input: dict[str, Any]


class ToolResultContent(Block, frozen=True, kw_only=True, tag="tool_result"):
    """In sampling: what the tool gave."""

    tool_use_id: str
    content: list[ContentBlock]
    structured_content: dict[str, Any] | None = None
    is_error: bool = False


SamplingBlock = TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent


class PromptMessage(Leaf, frozen=True, kw_only=True):
    role: Role
    content: ContentBlock


class SamplingMessage(Leaf, frozen=True, kw_only=True):
    role: Role
    content: SamplingBlock | list[SamplingBlock]
    meta: Meta | None = field(default=None, name="_meta")


NO_LINKS: Final = frozenset({"2024-11-05", "2025-03-26"})
"""Revisions whose schemas know no `resource_link` block. Members they do not know are allowed everywhere."""


def content_for(version: str, blocks: list[ContentBlock]) -> list[ContentBlock]:
    """Return the blocks as a client of this revision may be sent them; the same object where nothing changes."""
    if version not in NO_LINKS or not any(isinstance(block, ResourceLink) for block in blocks):
        return blocks
    return [_without_link(block) for block in blocks]


def messages_for(version: str, messages: list[PromptMessage]) -> list[PromptMessage]:
    """Do for a prompt's messages what `content_for` does for blocks."""
    if version not in NO_LINKS:
        return messages
    return [replace(message, content=_without_link(message.content)) for message in messages]


def _without_link(block: ContentBlock) -> ContentBlock:
    if not isinstance(block, ResourceLink):
        return block
    label = block.title or block.name
    text = f"{label}: {block.uri}" if not block.description else f"{label}: {block.uri}\n{block.description}"
    return TextContent(text=text, annotations=block.annotations, meta=block.meta)
