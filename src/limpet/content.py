"""Content that tools, prompts and resources return: media, messages, results, and the protocol's own blocks."""

from limpet.protocol.types import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from limpet.server.functions.content import (
    AssistantMessage,
    Audio,
    File,
    Image,
    Media,
    Message,
    ToolResult,
    UserMessage,
)

__all__ = [
    "Annotations",
    "AssistantMessage",
    "Audio",
    "AudioContent",
    "BlobResourceContents",
    "ContentBlock",
    "EmbeddedResource",
    "File",
    "Image",
    "ImageContent",
    "Media",
    "Message",
    "ResourceLink",
    "TextContent",
    "TextResourceContents",
    "ToolResult",
    "UserMessage",
]
