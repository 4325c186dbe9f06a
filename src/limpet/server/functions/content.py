"""Conversion of the values that functions return to the protocol: tool results, prompt messages, resource contents.

A plain string takes the shortest path. Objects without a special form become JSON text.
"""

import typing
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path, PurePath
from typing import Any, Final, TypedDict, Unpack
from urllib.parse import quote

import msgspec
from msgspec import Struct
from typing_extensions import override

from limpet.protocol.types import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    Meta,
    PromptMessage,
    ReadResourceResult,
    ResourceContents,
    ResourceLink,
    Role,
    TextContent,
    TextResourceContents,
)
from limpet.server.functions.returned import check_finite, refuse_files

MIME_TYPES: Final = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "svg": "image/svg+xml",
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "ogg": "audio/ogg",
    "flac": "audio/flac",
    "m4a": "audio/mp4",
    "txt": "text/plain",
    "md": "text/markdown",
    "html": "text/html",
    "csv": "text/csv",
    "xml": "application/xml",
    "json": "application/json",
    "pdf": "application/pdf",
    "zip": "application/zip",
}
"""Our own table: the table of the platform differs between machines."""
TEXT_TYPES: Final = ("text/", "application/json", "application/xml", "image/svg+xml")
BINARY: Final = "application/octet-stream"


class MediaOptions(TypedDict, total=False):
    """The options of `Media`."""

    path: str | PurePath | None
    format: str | None
    mime_type: str | None
    annotations: Annotations | None
    meta: Meta | None


class Media:
    """Bytes with a MIME type: given as `data` (bytes, or base64 text), or read from `path` in the constructor."""

    __slots__ = ("_annotations", "_base64", "_meta", "_raw", "mime_type", "name")

    family: typing.ClassVar[str] = "application"
    fallback: typing.ClassVar[str] = BINARY

    def __init__(
        self,
        data: bytes | str | None = None,
        *,
        path: str | PurePath | None = None,
        format: str | None = None,  # noqa: A002  # the word authors know
        mime_type: str | None = None,
        annotations: Annotations | None = None,
        meta: Meta | None = None,
    ) -> None:
        """Use `mime_type`, else look up the `format` ("png") or the suffix of the path.

        Raises:
            ValueError: `data` and `path` are both given, or both are missing.
        """
        if (data is None) == (path is None):
            raise ValueError(f"{type(self).__name__} takes either data or path")
        self.name: str = PurePath(path).name if path is not None else ""
        self._raw = Path(path).read_bytes() if path is not None else data if isinstance(data, bytes) else None
        self._base64 = data if isinstance(data, str) else None
        self.mime_type: str = mime_type or self._guess(format or PurePath(self.name).suffix)
        self._annotations = annotations
        self._meta = meta

    @override
    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.mime_type})"

    def _guess(self, suffix: str) -> str:
        known = suffix.removeprefix(".").lower()
        return MIME_TYPES.get(known) or (f"{self.family}/{known}" if known else self.fallback)

    @property
    def base64(self) -> str:
        return b64encode(self._raw).decode() if self._raw is not None else self._base64 or ""

    def block(self) -> ContentBlock:
        """Return the content block."""
        return EmbeddedResource(
            resource=self.contents(f"file:///{quote(self.name or 'data')}"),
            annotations=self._annotations,
            meta=self._meta,
        )

    def contents(self, uri: str) -> ResourceContents:
        """Return the contents of a resource: text if the MIME type is one of text, else base64."""
        if self._raw is not None and self.mime_type.startswith(TEXT_TYPES):
            try:
                return TextResourceContents(uri=uri, mime_type=self.mime_type, text=self._raw.decode())
            except UnicodeDecodeError:
                pass  # Text in another encoding: send the bytes.
        return BlobResourceContents(uri=uri, mime_type=self.mime_type, blob=self.base64)


class Image(Media):
    """An image for the model."""

    __slots__ = ()
    family = "image"
    fallback = "image/png"

    @override
    def block(self) -> ContentBlock:
        return ImageContent(
            data=self.base64, mime_type=self.mime_type, annotations=self._annotations, meta=self._meta
        )


class Audio(Media):
    """Audio for the model."""

    __slots__ = ()
    family = "audio"
    fallback = "audio/wav"

    @override
    def block(self) -> ContentBlock:
        return AudioContent(
            data=self.base64, mime_type=self.mime_type, annotations=self._annotations, meta=self._meta
        )


class File(Media):
    """A file, sent as an embedded resource. Its URI ends with `name`, or with the name of the path."""

    __slots__ = ()

    def __init__(
        self, data: bytes | str | None = None, *, name: str = "", **options: Unpack[MediaOptions]
    ) -> None:
        super().__init__(data, **options)
        if name:
            self.name = name
            given = options.get("mime_type") or options.get("format")
            self.mime_type: str = self.mime_type if given else self._guess(PurePath(name).suffix)


class ToolResult(Struct, frozen=True, kw_only=True):
    """The complete result of a tool, for cases that a plain return value cannot express."""

    content: Any = None
    """A value or a list of values, as a tool returns them; without it, the structured content as JSON text."""
    structured: Any = None
    """The structured content: an object that can be encoded as JSON."""
    is_error: bool = False
    """True for a failed result."""
    meta: Meta | None = None
    """The `_meta` of the result."""


class Message:
    """A message of a prompt or of sampling: a text, a block, an Image, Audio or File, or a list of them."""

    __slots__ = ("content", "role")

    def __init__(self, content: object, role: Role = "user") -> None:
        if role not in typing.get_args(Role):
            raise TypeError(f"a message's role is user or assistant, not {role!r}")
        self.content: object = content
        self.role: Role = role

    @override
    def __repr__(self) -> str:
        return f"Message({self.content!r}, {self.role!r})"


class UserMessage(Message):
    """A message of the user."""

    __slots__ = ()

    def __init__(self, content: object) -> None:
        super().__init__(content, "user")


class AssistantMessage(Message):
    """A message of the assistant."""

    __slots__ = ()

    def __init__(self, content: object) -> None:
        super().__init__(content, "assistant")


BLOCKS: Final = (TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource)
CARRIERS: Final = (*BLOCKS, Media)
CONTENT_TYPES: Final = (
    *CARRIERS,
    ToolResult,
    CallToolResult,
    ResourceContents,
    PromptMessage,
    Message,
    bytes,
)


LISTS: Final = (list, tuple, set, Sequence, Collection, Iterable)
"""Types whose items may be anything: with `Any` or `object` as items, a list may contain Images."""


def is_content_type(annotation: Any) -> bool:
    """Return True if a return annotation is a content type, alone or in a list or union: then it has no schema."""
    args = typing.get_args(annotation)
    if args:
        is_list = typing.get_origin(annotation) in LISTS
        return any(is_content_type(item) or (is_list and item in (Any, object)) for item in args)
    return isinstance(annotation, type) and issubclass(annotation, CONTENT_TYPES)


# Tools


def to_content(value: object) -> list[ContentBlock]:
    """Convert a return value to content blocks.

    A list with blocks, Images, Audios or Files becomes one or more blocks per item; any other list becomes JSON.
    """
    if type(value) is str:
        return [TextContent(text=value)]
    if value is None:
        return []
    if isinstance(value, (list, tuple)) and any(isinstance(item, CARRIERS) for item in value):
        return [block for item in value for block in to_content(item)]
    return [_block(value)]


def to_result(
    value: object,
    structure: Callable[[object], dict[str, Any] | None] | None = None,
    *,
    wraps_result: bool = False,
) -> CallToolResult:
    """Convert the return value of a tool to its result; `structure` and `wraps_result` are of its function."""
    if type(value) is str:
        # Most tools return text.
        structured = structure(value) if structure is not None else None
        return CallToolResult(content=[TextContent(text=value)], structured_content=structured)
    if isinstance(value, ToolResult):
        return _explicit(value)
    if isinstance(value, CallToolResult):
        return value
    structured = structure(value) if structure is not None else None
    if structured is None:
        return CallToolResult(content=to_content(value))
    # The text has the same value as the structured content, serialised by the declared type.
    plain = structured["result"] if wraps_result else structured
    return CallToolResult(content=to_content(plain), structured_content=structured)


def _explicit(value: ToolResult) -> CallToolResult:
    structured = None if value.structured is None else jsonable(value.structured)
    if structured is not None and value.content is not None:
        check_finite(structured)  # Without content, `to_text` checks it.
    if structured is not None and not isinstance(structured, dict):
        structured = {"result": structured}
    content = structured if value.content is None else value.content
    return CallToolResult(
        content=to_content(content), structured_content=structured, is_error=value.is_error, meta=value.meta
    )


def _block(value: object) -> ContentBlock:
    if isinstance(value, BLOCKS):
        return value
    if isinstance(value, Media):
        return value.block()
    if isinstance(value, bytes):
        return File(value).block()
    if isinstance(value, ResourceContents):
        return EmbeddedResource(resource=value)
    return TextContent(text=to_text(value))


def to_text(value: object) -> str:
    """Return a string unchanged, anything else as JSON. Raises TypeError or WrongResult if it has no JSON form."""
    if isinstance(value, str):
        return str(value)
    text = _encoder.encode(value).decode()
    if "null" in text:  # The encoder writes NaN as null.
        check_finite(jsonable(value))
    return text


def jsonable(value: object) -> Any:
    """Return the value as plain JSON data.

    Raises:
        TypeError: it has no such form.
        WrongResult: it is an open file, or an object with one. pydantic would read it as a list of lines.
    """
    refuse_files(value)
    # Deferred: pydantic is loaded only once something needs it.
    from limpet.server.functions.schema import to_plain  # noqa: PLC0415

    return to_plain(value)


_encoder = msgspec.json.Encoder(enc_hook=jsonable)


# Prompts


def message_of(value: dict[str, Any], blocks: Any) -> Message:
    """Read a message as the protocol writes it: `role`, and `content`, a text, a block or a list of them.

    Raises:
        TypeError: the role is invalid, or a dict in the content is not a block of these kinds.
    """
    content = value["content"]
    items = content if isinstance(content, (list, tuple)) else [content]
    return Message(
        [block_of(item, blocks) if isinstance(item, dict) else item for item in items], value["role"]
    )


def block_of(value: dict[str, Any], blocks: Any) -> Any:
    """Read a block as the protocol writes it, such as `{"type": "text", "text": "…"}`. Raises TypeError."""
    try:
        return msgspec.convert(value, blocks)
    except msgspec.ValidationError as error:
        raise TypeError(f"a dict in a message is a content block such as {_A_BLOCK}: {error}") from None


_A_BLOCK: Final = '{"type": "text", "text": "…"}'


def to_messages(value: object) -> list[PromptMessage]:
    """Turn a prompt's return value into messages; content without a role becomes a message of the user."""
    if isinstance(value, PromptMessage):
        return [value]
    if isinstance(value, Message):
        items = value.content if isinstance(value.content, (list, tuple)) else [value.content]
        return [PromptMessage(role=value.role, content=block) for item in items for block in to_content(item)]
    if isinstance(value, dict) and value.keys() == {"role", "content"}:
        return to_messages(message_of(value, ContentBlock))
    if isinstance(value, (list, tuple)):
        return [message for item in value for message in to_messages(item)]
    return [PromptMessage(role="user", content=block) for block in to_content(value)]


def to_prompt_result(value: object, description: str | None = None) -> GetPromptResult:
    if isinstance(value, GetPromptResult):
        return value
    return GetPromptResult(messages=to_messages(value), description=description)


# Resources


def to_contents(value: object, uri: str, mime_type: str | None = None) -> list[ResourceContents]:
    """Convert the return value of a resource to its contents: text, base64 of bytes, or JSON text."""
    if type(value) is str:
        return [TextResourceContents(uri=uri, mime_type=mime_type, text=value)]
    if isinstance(value, (bytes, bytearray, memoryview)):
        blob = b64encode(value).decode()
        return [BlobResourceContents(uri=uri, mime_type=mime_type or BINARY, blob=blob)]
    if isinstance(value, ResourceContents):
        return [value]
    if isinstance(value, Media):
        return [value.contents(uri)]
    if (
        isinstance(value, (list, tuple))
        and value
        and all(isinstance(item, ResourceContents) for item in value)
    ):
        return list(value)
    text = "" if value is None else to_text(value)
    return [TextResourceContents(uri=uri, mime_type=mime_type or "application/json", text=text)]


def to_read_result(value: object, uri: str, mime_type: str | None = None) -> ReadResourceResult:
    if isinstance(value, ReadResourceResult):
        return value
    return ReadResourceResult(contents=to_contents(value, uri, mime_type))
