"""The parameters of a sampling ask, made from the arguments of `ctx.sample`."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, TypedDict

from msgspec.structs import replace

from limpet.errors import CapabilityMissing
from limpet.protocol.content import SamplingBlock
from limpet.protocol.types import (
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
from limpet.server.functions.content import Audio, Image, Message, block_of, message_of
from limpet.server.functions.options import check_options
from limpet.server.functions.registered_function import RegisteredFunction

IncludeContext = Literal["none", "thisServer", "allServers"]
Choice = Literal["auto", "required", "none"]


class SamplingOptions(TypedDict, total=False):
    """The options of `ctx.sample` and `Want.sample`."""

    max_tokens: int
    """The most tokens that the model generates; 1024 by default."""
    system_prompt: str
    """The system prompt that the server prefers."""
    temperature: float
    """The sampling temperature."""
    stop_sequences: list[str]
    """Texts that end the generation."""
    model_preferences: ModelPreferences | str | Sequence[str]
    """Which model to prefer; names are sent as hints."""
    include_context: IncludeContext
    """Which servers' context the client includes."""
    tools: Iterable[Tool | Callable[..., Any]]
    """Tools that the model may call. A function gets the schema that it would have as a tool; the author calls it."""
    tool_choice: ToolChoice | Choice
    """Whether the model may or must call tools."""
    metadata: dict[str, Any]
    """Further values for the provider of the model."""


DEFAULT_TOKENS = 1024
BLOCKS: Final = (TextContent, ImageContent, AudioContent, ToolUseContent, ToolResultContent)
CARRIERS: Final = (*BLOCKS, Image, Audio)
"""The types that a message for the model can hold besides text."""


def sampling_params(messages: object, options: SamplingOptions) -> CreateMessageParams:
    """Build the parameters.

    Raises:
        TypeError: an option is unknown, or a message has an invalid type.
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
    """Convert the argument of `ctx.sample` to messages; content without a role is the user's.

    Raises:
        TypeError: it is not a text, a message, a block or a list of them. Other objects are not converted to
            JSON text: the model would read it as if a person had written it.
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
    """Check that the client declared the capabilities that the parameters need.

    Raises:
        CapabilityMissing: a capability is missing; the message names it.
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
    # Before 2025-11-25 every client with sampling could include context.
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
