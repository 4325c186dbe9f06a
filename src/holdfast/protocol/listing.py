"""What a server lists and introduces itself with: tools, resources, prompts, implementations, models."""

from typing import Any, Literal

from msgspec import field

from holdfast.protocol.content import Annotations, Icon, Leaf, Meta


class Implementation(Leaf, frozen=True, kw_only=True):
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
    task_support: Literal["forbidden", "optional", "required"] | None = None


class Listed(Leaf, frozen=True, kw_only=True):
    """What everything that is listed has."""

    name: str
    title: str | None = None
    description: str | None = None
    icons: list[Icon] | None = None
    meta: Meta | None = field(default=None, name="_meta")


class Tool(Listed, frozen=True, kw_only=True):
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    annotations: ToolAnnotations | None = None
    execution: ToolExecution | None = None


class Resource(Listed, frozen=True, kw_only=True):
    uri: str
    mime_type: str | None = None
    size: int | None = None
    annotations: Annotations | None = None


class ResourceTemplate(Listed, frozen=True, kw_only=True):
    uri_template: str
    mime_type: str | None = None
    annotations: Annotations | None = None


class PromptArgument(Leaf, frozen=True, kw_only=True):
    name: str
    title: str | None = None
    description: str | None = None
    required: bool | None = None


class Prompt(Listed, frozen=True, kw_only=True):
    arguments: list[PromptArgument] | None = None


class Root(Leaf, frozen=True, kw_only=True):
    uri: str
    name: str | None = None
    meta: Meta | None = field(default=None, name="_meta")


class ModelHint(Leaf, frozen=True, kw_only=True):
    name: str | None = None


class ModelPreferences(Leaf, frozen=True, kw_only=True):
    hints: list[ModelHint] | None = None
    cost_priority: float | None = None
    speed_priority: float | None = None
    intelligence_priority: float | None = None


class ToolChoice(Leaf, frozen=True, kw_only=True):
    mode: Literal["auto", "required", "none"] | None = None
