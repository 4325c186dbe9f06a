"""The parameters of a sampling ask, from what authors find natural to write."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, TypedDict

from msgspec.structs import replace

from holdfast.errors import CapabilityMissing
from holdfast.protocol.content import SamplingBlock
from holdfast.protocol.types import (
    AudioContent,
    ClientCapabilities,
    CreateMessageParams,
    ImageContent,
    ModelHint,
    ModelPreferences,
    PromptMessage,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
)
from holdfast.server.functions.content import Audio, Image, Message, block_of, message_of
from holdfast.server.functions.options import check_options
from holdfast.server.functions.registered_function import RegisteredFunction

IncludeContext = Literal["none", "thisServer", "allServers"]
Choice = Literal["auto", "required", "none"]


class SamplingOptions(TypedDict, total=False):
    """What an ask for a completion may say besides its messages."""

    max_tokens: int
    system_prompt: str
    temperature: float
    stop_sequences: list[str]
    model_preferences: ModelPreferences | str | Sequence[str]
    """A name or names are taken as hints."""
    include_context: IncludeContext
    tools: Iterable[Tool | Callable[..., Any]]
    """Functions are described as they would be as tools; calling them stays with the author."""
    tool_choice: ToolChoice | Choice
    metadata: dict[str, Any]


DEFAULT_TOKENS = 1024
BLOCKS: Final = (TextContent, ImageContent, AudioContent, ToolUseContent, ToolResultContent)
CARRIERS: Final = (*BLOCKS, Image, Audio)
"""What a message for the model can carry, besides plain text."""


def sampling_params(messages: object, options: SamplingOptions) -> CreateMessageParams:
    """Build the parameters.

    Raises:
        TypeError: an option, or a message, is none.
    """
    check_options(options, SamplingOptions, "sampling")
    tools, choice = options.get("tools"), options.get("tool_choice")
    return CreateMessageParams(
        messages=to_sampling(messages),
        max_tokens=options.get("max_tokens", DEFAULT_TOKENS),
        system_prompt=options.get("system_prompt"),
        temperature=options.get("temperature"),
        stop_sequences=options.get("stop_sequences"),
        model_preferences=_preferences(options.get("model_preferences")),
        include_context=options.get("include_context"),
        tools=[_tool(item) for item in tools] if tools is not None else None,
        tool_choice=ToolChoice(mode=choice) if isinstance(choice, str) else choice,
        metadata=options.get("metadata"),
    )


def to_sampling(value: object) -> list[SamplingMessage]:
    """Turn what an author gives to sample from into messages; what has no role is the user's.

    Raises:
        TypeError: it is not text, a message, a block or a list of them. Nothing else is turned into text:
            the model would read the Python object's JSON as if a person had written it.
    """
    if isinstance(value, SamplingMessage):
        return [value]
    if isinstance(value, PromptMessage):
        return [_message(Message(value.content, value.role))]
    if isinstance(value, (list, tuple)) and not any(_is_block(item) for item in value):
        return [message for item in value for message in to_sampling(item)]
    if isinstance(value, dict) and value.keys() - {"_meta"} == {"role", "content"}:
        return [replace(_message(message_of(value, SamplingBlock)), meta=value.get("_meta"))]
    return [_message(value if isinstance(value, Message) else Message(value))]


def _message(message: Message) -> SamplingMessage:
    items = message.content if isinstance(message.content, (list, tuple)) else [message.content]
    blocks = [_block(item) for item in items]
    return SamplingMessage(role=message.role, content=blocks[0] if len(blocks) == 1 else blocks)


def _is_block(item: object) -> bool:
    return isinstance(item, CARRIERS) or (isinstance(item, dict) and "type" in item)


def _block(item: object) -> Any:
    if isinstance(item, str):
        return TextContent(text=str(item))
    if isinstance(item, BLOCKS):
        return item
    if isinstance(item, (Image, Audio)):
        return item.block()
    if isinstance(item, dict) and "type" in item:
        return block_of(item, SamplingBlock)
    raise TypeError(
        f"ctx.sample takes text, images, audio and tool blocks, not {type(item).__name__}; write a text, a "
        'SamplingMessage, a Message, {"role": "user", "content": "…"}, or a list of them'
    )


def check_sampling(can: ClientCapabilities, params: CreateMessageParams, version: str) -> None:
    """Refuse what this client did not say it can do.

    Raises:
        CapabilityMissing: says which capability is missing.
    """
    if can.sampling is None:
        raise CapabilityMissing(
            "the client cannot sample: it did not declare the capability `sampling`", {"sampling": {}}
        )
    if (params.tools is not None or params.tool_choice is not None) and not can.samples_with_tools:
        raise CapabilityMissing(
            "the client cannot sample with tools: it did not declare `sampling.tools`",
            {"sampling": {"tools": {}}},
        )
    # Before 2025-11-25 every client that samples was taken to include context.
    wants_context = params.include_context in ("thisServer", "allServers")
    if wants_context and version >= "2025-11-25" and not can.samples_with_context:
        raise CapabilityMissing(
            "the client cannot include context: it did not declare `sampling.context`",
            {"sampling": {"context": {}}},
        )


def _preferences(given: ModelPreferences | str | Sequence[str] | None) -> ModelPreferences | None:
    if given is None or isinstance(given, ModelPreferences):
        return given
    names = [given] if isinstance(given, str) else given
    return ModelPreferences(hints=[ModelHint(name=name) for name in names])


def _tool(item: Tool | Callable[..., Any]) -> Tool:
    if isinstance(item, Tool):
        return item
    function = RegisteredFunction(item)
    return Tool(
        name=function.name, description=function.description or None, input_schema=function.input_schema
    )
