"""The results of calls as types."""

from typing import Any, Generic, TypeVar, cast

import msgspec

from limpet.client.structured import shaped
from limpet.errors import BadAnswer
from limpet.protocol.content import ContentBlock, Meta, TextContent

T = TypeVar("T")


class ToolCallResult(Generic[T]):
    """A tool's result. `data` is its structured content as the requested type, or as its output schema says."""

    __slots__ = ("content", "data", "is_error", "meta", "structured_content")

    def __init__(
        self, content: list[ContentBlock], structured: Any, data: T, meta: Meta, *, is_error: bool
    ) -> None:
        self.content: list[ContentBlock] = content
        self.structured_content: Any = structured
        self.data: T = data
        self.meta: Meta = meta
        self.is_error: bool = is_error

    def __repr__(self) -> str:
        others = [type(block).__name__ for block in self.content if not isinstance(block, TextContent)]
        value = self.data if self.data is not None or (others and not self.text) else self.text or None
        shown = [*(["error"] if self.is_error else ()), f"{value!r:.200}", *others]
        return f"<ToolCallResult {' '.join(shown)}>"

    @property
    def text(self) -> str:
        """The text of all text blocks, joined by line breaks."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))


class InputNeeded(msgspec.Struct, frozen=True, kw_only=True):
    """The input that the server asks for before it continues (2026-07-28), with `auto_input=False`.

    Call again with the same arguments, `responses` by the same keys, and this object as `after`.
    """

    requests: dict[str, dict[str, Any]]
    """Method and params by key."""
    state: str | None
    """The server's `requestState`; it is sent back unchanged."""


class _Result(msgspec.Struct, rename="camel"):
    content: list[ContentBlock] = []
    structured_content: Any = None
    is_error: bool = False
    meta: Meta = msgspec.field(default_factory=dict, name="_meta")


def tool_call_result(result: Any, shape: type[T] | None) -> ToolCallResult[T]:
    """Read the result of `tools/call`.

    Raises:
        BadAnswer: it is not a valid tool result, or its data do not fit the requested type.
    """
    read = typed(result, _Result, "tools/call")
    data: Any = None
    if not read.is_error:
        data = shaped(read.structured_content, None) if shape is None else _data(read, shape)
    return ToolCallResult(
        read.content, read.structured_content, cast("T", data), read.meta, is_error=read.is_error
    )


def typed(result: Any, shape: type[T], method: str) -> T:
    """Read a result as a type.

    Raises:
        BadAnswer: it does not fit the type.
    """
    try:
        return msgspec.convert(result, shape)
    except msgspec.ValidationError as error:
        raise BadAnswer(f"the result of {method} is not valid: {error}") from None


def _data(read: _Result, shape: type[T]) -> T:
    structured = read.structured_content
    if structured is None:
        text = "".join(block.text for block in read.content if isinstance(block, TextContent))
        if shape is str:
            return cast("T", text)
        try:
            structured = msgspec.json.decode(text)
        except msgspec.DecodeError:
            raise BadAnswer(
                f"the result has no structured content, and its text is not the JSON of a {shape}"
            ) from None
    inner = shaped(structured, None)
    try:
        return _convert(structured, shape)
    except ValueError as error:
        if inner is structured:
            raise BadAnswer(f"the result's data does not fit {shape}: {error}") from None
    try:
        return _convert(inner, shape)
    except ValueError as error:
        raise BadAnswer(f"the result's data does not fit {shape}: {error}") from None


def _convert(value: Any, shape: type[T]) -> T:
    # A pydantic model validates itself; msgspec validates everything else.
    validate = getattr(shape, "model_validate", None)
    if validate is not None:
        return cast("T", validate(value))
    return msgspec.convert(value, shape)
