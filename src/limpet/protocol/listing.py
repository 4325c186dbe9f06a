"""The lists of a server, and its description of itself: tools, resources, prompts, implementations, models."""

from typing import Any, Literal

from msgspec import field

from limpet.protocol.content import Annotations, Icon, Leaf, Meta


class Implementation(Leaf, frozen=True, kw_only=True):
    """The name and version of a client or server, and how to show it."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: list[Icon] | None = None


class ToolAnnotations(Leaf, frozen=True, kw_only=True):
    """Hints about a tool's behaviour; clients may not rely on them."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolExecution(Leaf, frozen=True, kw_only=True):
    """How a tool can be called."""

    task_support: Literal["forbidden", "optional", "required"] | None = None


class Listed(Leaf, frozen=True, kw_only=True):
    """The members that everything in a list has."""

    name: str
    title: str | None = None
    description: str | None = None
    icons: list[Icon] | None = None
    meta: Meta | None = field(default=None, name="_meta")


class Tool(Listed, frozen=True, kw_only=True):
    """A tool, as `tools/list` describes it."""

    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    annotations: ToolAnnotations | None = None
    execution: ToolExecution | None = None


class Resource(Listed, frozen=True, kw_only=True):
    """A resource, as `resources/list` describes it."""

    uri: str
    mime_type: str | None = None
    size: int | None = None
    annotations: Annotations | None = None


class ResourceTemplate(Listed, frozen=True, kw_only=True):
    """A resource template, as `resources/templates/list` describes it."""

    uri_template: str
    mime_type: str | None = None
    annotations: Annotations | None = None


class PromptArgument(Leaf, frozen=True, kw_only=True):
    """An argument of a prompt."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool | None = None


class Prompt(Listed, frozen=True, kw_only=True):
    """A prompt, as `prompts/list` describes it."""

    arguments: list[PromptArgument] | None = None


class Root(Leaf, frozen=True, kw_only=True):
    """A place of the file system that a client works in."""

    uri: str
    name: str | None = None
    meta: Meta | None = field(default=None, name="_meta")


class ModelHint(Leaf, frozen=True, kw_only=True):
    """A part of the name of a model."""

    name: str | None = None


class ModelPreferences(Leaf, frozen=True, kw_only=True):
    """Which model a sampling request prefers."""

    hints: list[ModelHint] | None = None
    cost_priority: float | None = None
    speed_priority: float | None = None
    intelligence_priority: float | None = None


class ToolChoice(Leaf, frozen=True, kw_only=True):
    """Whether the model may or must call tools."""

    mode: Literal["auto", "required", "none"] | None = None
