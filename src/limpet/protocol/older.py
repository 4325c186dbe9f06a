"""Adapt our messages to an older revision.

A client never receives a member or a kind of content that is newer than the revision of its session. `LATER` names
them. `fit` leaves the members out, and turns a link to a resource into text if the revision has no links. Nothing
necessary is lost: all of these members are optional, and a tool that returns a plain value also sends it as text.
"""

from typing import Any, Final, TypeVar

from msgspec.structs import replace

from limpet.protocol.content import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    Leaf,
    ResourceContents,
    ResourceLink,
    SamplingMessage,
    TextContent,
    TextResourceContents,
)
from limpet.protocol.listing import (
    Implementation,
    Prompt,
    PromptArgument,
    Resource,
    ResourceTemplate,
    Root,
    Tool,
)
from limpet.protocol.results import CallToolResult

T = TypeVar("T")
Members = dict[type[Leaf], frozenset[str]]

_SINCE_2025_11_25: Final[Members] = {
    Implementation: frozenset({"description", "website_url", "icons"}),
    Prompt: frozenset({"icons"}),
    Resource: frozenset({"icons"}),
    ResourceLink: frozenset({"icons"}),
    ResourceTemplate: frozenset({"icons"}),
    SamplingMessage: frozenset({"meta"}),
    Tool: frozenset({"execution", "icons"}),
}
_META: Final = frozenset({"meta"})
_SINCE_2025_06_18: Final[Members] = {
    Annotations: frozenset({"last_modified"}),
    AudioContent: _META,
    BlobResourceContents: _META,
    CallToolResult: frozenset({"structured_content"}),
    EmbeddedResource: _META,
    ImageContent: _META,
    Implementation: frozenset({"title"}),
    Prompt: frozenset({"meta", "title"}),
    PromptArgument: frozenset({"title"}),
    Resource: frozenset({"meta", "title"}),
    ResourceContents: _META,
    ResourceTemplate: frozenset({"meta", "title"}),
    Root: _META,
    TextContent: _META,
    TextResourceContents: _META,
    Tool: frozenset({"meta", "output_schema", "title"}),
}
LATER: Final[dict[str, Members]] = {
    "2025-06-18": _SINCE_2025_11_25,
    "2025-03-26": {
        kind: _SINCE_2025_11_25.get(kind, frozenset()) | _SINCE_2025_06_18.get(kind, frozenset())
        for kind in {**_SINCE_2025_11_25, **_SINCE_2025_06_18}
    },
}
"""The members that a revision does not have, by their names in our types."""
NO_LINKS: Final = frozenset({"2025-03-26"})
"""Revisions without `resource_link`."""


def fit(version: str, value: T) -> T:
    """Return a value as a client of this revision may receive it; the same object if nothing changes."""
    later = LATER.get(version)
    fitted: T = value if later is None else _fit(value, later, links=version not in NO_LINKS)
    return fitted


def _fit(value: Any, later: Members, *, links: bool) -> Any:
    if isinstance(value, list):
        items = [_fit(item, later, links=links) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    if not isinstance(value, Leaf):
        return value
    if not links and isinstance(value, ResourceLink):
        value = _as_text(value)
    unknown = later.get(type(value), ())
    changed: dict[str, Any] = {}
    for name in value.__struct_fields__:
        held = getattr(value, name)
        new = None if name in unknown else _fit(held, later, links=links)
        if new is not held:
            changed[name] = new
    return replace(value, **changed) if changed else value


def _as_text(link: ResourceLink) -> TextContent:
    label = link.title or link.name
    text = f"{label}: {link.uri}" if not link.description else f"{label}: {link.uri}\n{link.description}"
    return TextContent(text=text, annotations=link.annotations)
