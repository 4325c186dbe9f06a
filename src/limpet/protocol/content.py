"""The content of results and messages: content blocks, resource contents, sampling blocks.

`type` distinguishes the blocks; `text` or `blob` distinguishes resource contents. `older.py` defines the blocks that a
client of an older revision receives instead.
"""

from typing import Any, Literal

from msgspec import Struct, field

Role = Literal["user", "assistant"]
"""The author of a message."""
Meta = dict[str, Any]
"""The `_meta` member of a request, result or component."""


class Leaf(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Wire data without reference cycles, so the garbage collector need not track it."""


class Icon(Leaf, frozen=True, kw_only=True):
    """An image that represents a component or an implementation."""

    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: Literal["light", "dark"] | None = None


class Annotations(Leaf, frozen=True, kw_only=True):
    """Hints for the client: the audience of the content, its importance, and the time of its last change."""

    audience: list[Role] | None = None
    priority: float | None = None
    last_modified: str | None = None


class ResourceContents(Leaf, frozen=True, kw_only=True):
    """The contents of a resource: exactly one of `text` and `blob` (base64) is set."""

    uri: str
    mime_type: str | None = None
    meta: Meta | None = field(default=None, name="_meta")
    text: str | None = None
    blob: str | None = None


class TextResourceContents(ResourceContents, frozen=True, kw_only=True):
    """The contents of a resource as text."""

    text: str


class BlobResourceContents(ResourceContents, frozen=True, kw_only=True):
    """The contents of a resource as base64."""

    blob: str


class Block(Leaf, frozen=True, kw_only=True, tag_field="type"):
    """A content block; its class decides `type`."""

    meta: Meta | None = field(default=None, name="_meta")


class TextContent(Block, frozen=True, kw_only=True, tag="text"):
    """A text."""

    text: str
    annotations: Annotations | None = None


class ImageContent(Block, frozen=True, kw_only=True, tag="image"):
    """An image: base64 data and its MIME type."""

    data: str
    mime_type: str
    annotations: Annotations | None = None


class AudioContent(Block, frozen=True, kw_only=True, tag="audio"):
    """Audio: base64 data and its MIME type."""

    data: str
    mime_type: str
    annotations: Annotations | None = None


class ResourceLink(Block, frozen=True, kw_only=True, tag="resource_link"):
    """A reference to a resource that the client may read."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: list[Icon] | None = None
    annotations: Annotations | None = None


class EmbeddedResource(Block, frozen=True, kw_only=True, tag="resource"):
    """A resource with its contents, inside a result or message."""

    resource: ResourceContents
    annotations: Annotations | None = None


ContentBlock = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource
"""Any block of content."""


class ToolUseContent(Block, frozen=True, kw_only=True, tag="tool_use"):
    """In sampling: the model asks for a tool call."""

    id: str
    name: str
    input: dict[str, Any]


class ToolResultContent(Block, frozen=True, kw_only=True, tag="tool_result"):
    """In sampling: the result of the tool."""

    tool_use_id: str
    content: list[ContentBlock]
    structured_content: dict[str, Any] | None = None
    is_error: bool = False


SamplingBlock = TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent
"""Any block of a sampling message."""


class PromptMessage(Leaf, frozen=True, kw_only=True):
    """One message of a prompt."""

    role: Role
    content: ContentBlock


class SamplingMessage(Leaf, frozen=True, kw_only=True):
    """One message of a sampling request: one block or several."""

    role: Role
    content: SamplingBlock | list[SamplingBlock]
    meta: Meta | None = field(default=None, name="_meta")
