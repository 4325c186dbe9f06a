"""The parameters of every request and notification between a server and a client of the session eras."""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import field

from limpet.protocol.content import Leaf, Meta, SamplingMessage
from limpet.protocol.listing import Implementation, ModelPreferences, Tool, ToolChoice
from limpet.wire.jsonrpc import RequestId

ProgressToken = int | str
"""The value by which a client recognises progress notifications."""
LoggingLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
"""The severity of a log message, from `debug` to `emergency`."""
LOGGING_LEVELS: dict[LoggingLevel, int] = {
    "debug": 0,
    "info": 1,
    "notice": 2,
    "warning": 3,
    "error": 4,
    "critical": 5,
    "alert": 6,
    "emergency": 7,
}
"""The rank of each level: a client that set `warning` gets levels of rank 3 and higher."""


def progress_token(meta: Mapping[str, Any] | None) -> ProgressToken | None:
    """Return the token for progress notifications; None if the sender wants none.

    Notifications that wait are bounded by their bytes.
    """
    token = meta.get("progressToken") if meta else None
    return token if type(token) in (int, str) else None


class Params(Leaf, frozen=True, kw_only=True):
    meta: Meta | None = field(default=None, name="_meta")

    @property
    def progress_token(self) -> ProgressToken | None:
        """The token for progress notifications; None if the sender wants none."""
        return progress_token(self.meta)


LONGEST_REASON: int = 200


def cancellation_reason(params: Mapping[str, Any]) -> str:
    """Return the reason that a `notifications/cancelled` gives, for a log line; empty if it gives none."""
    reason = params.get("reason")
    return reason[:LONGEST_REASON] if isinstance(reason, str) else ""


# Sent by a client


class InitializeParams(Params, frozen=True, kw_only=True):
    """The parameters of `initialize`."""

    protocol_version: str
    capabilities: dict[str, Any]
    client_info: Implementation


class ListParams(Params, frozen=True, kw_only=True):
    """The parameters of the list methods."""

    cursor: str | None = None


class CallToolParams(Params, frozen=True, kw_only=True):
    """The parameters of `tools/call`."""

    name: str
    arguments: dict[str, Any] | None = None


class ReadResourceParams(Params, frozen=True, kw_only=True):
    """The parameters of `resources/read`, `resources/subscribe` and `resources/unsubscribe`."""

    uri: str


class GetPromptParams(Params, frozen=True, kw_only=True):
    """The parameters of `prompts/get`."""

    name: str
    arguments: dict[str, str] | None = None


class PromptReference(Leaf, frozen=True, kw_only=True, tag_field="type", tag="ref/prompt"):
    """A prompt, by its name."""

    name: str
    title: str | None = None


class ResourceReference(Leaf, frozen=True, kw_only=True, tag_field="type", tag="ref/resource"):
    """A resource template, by its text."""

    uri: str


class CompletionArgument(Leaf, frozen=True, kw_only=True):
    """The argument to complete, and the text that the user has typed."""

    name: str
    value: str


class CompletionContext(Leaf, frozen=True, kw_only=True):
    """The values of the other arguments."""

    arguments: dict[str, str] | None = None


class CompleteParams(Params, frozen=True, kw_only=True):
    """The parameters of `completion/complete`."""

    ref: PromptReference | ResourceReference
    argument: CompletionArgument
    context: CompletionContext | None = None


class SetLevelParams(Params, frozen=True, kw_only=True):
    """The parameters of `logging/setLevel`."""

    level: LoggingLevel


# Sent by both sides


class CancelledParams(Params, frozen=True, kw_only=True):
    """The parameters of `notifications/cancelled`."""

    request_id: RequestId | None = None
    reason: str | None = None


class ProgressParams(Leaf, frozen=True, kw_only=True):
    """The parameters of `notifications/progress`."""

    progress_token: ProgressToken
    progress: int | float
    total: int | float | None = None
    message: str | None = None
    meta: Meta | None = field(default=None, name="_meta")


# Sent by a server


class LoggingMessageParams(Params, frozen=True, kw_only=True):
    """The parameters of `notifications/message`."""

    level: LoggingLevel
    data: Any
    logger: str | None = None


class ResourceUpdatedParams(Params, frozen=True, kw_only=True):
    """The parameters of `notifications/resources/updated`."""

    uri: str


class CreateMessageParams(Params, frozen=True, kw_only=True):
    """The parameters of `sampling/createMessage`."""

    messages: list[SamplingMessage]
    max_tokens: int
    system_prompt: str | None = None
    temperature: float | None = None
    stop_sequences: list[str] | None = None
    model_preferences: ModelPreferences | None = None
    include_context: Literal["none", "thisServer", "allServers"] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    metadata: dict[str, Any] | None = None


class ElicitFormParams(Params, frozen=True, kw_only=True):
    """The parameters of `elicitation/create` for a form."""

    message: str
    requested_schema: dict[str, Any]
    mode: Literal["form"] | None = None
    """Left out by default: clients before 2025-11-25 know only forms, and no `mode`."""


class ElicitURLParams(Params, frozen=True, kw_only=True, tag_field="mode", tag="url"):
    """The parameters of `elicitation/create` for a page."""

    message: str
    url: str
    elicitation_id: str


class ElicitationCompleteParams(Params, frozen=True, kw_only=True):
    """The parameters of `notifications/elicitation/complete`."""

    elicitation_id: str
