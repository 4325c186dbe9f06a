"""Components and results in the terminal.

Every text of a server is shown as it is: no markup, no control characters.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from limpet.cli.using.plain import plain
from limpet.cli.using.schemas import choices_of, kinds_of, properties_of, required_of
from limpet.content import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from limpet.types import Prompt, Resource, ResourceContents, ResourceTemplate, Tool, ToolAnnotations

_HINTS: Final = {
    "read_only_hint": "read-only",
    "destructive_hint": "destructive",
    "idempotent_hint": "idempotent",
    "open_world_hint": "open world",
}
_DEEPEST: Final = 6
"""How many levels of a schema are shown."""


def tree(
    title: str,
    tools: list[Tool],
    resources: list[Resource],
    templates: list[ResourceTemplate],
    prompts: list[Prompt],
) -> Tree:
    """Return all components of a server as a tree."""
    root = Tree(Text(plain(title), style="bold"))
    kinds: tuple[tuple[str, Sequence[Any], Callable[[Tree, Any], None]], ...] = (
        ("tools", tools, _add_tool),
        ("resources", resources, _add_resource),
        ("resource templates", templates, _add_resource),
        ("prompts", prompts, _add_prompt),
    )
    for name, found, add in kinds:
        if found:
            branch = root.add(Text(f"{name} ({len(found)})", style="bold cyan"))
            for one in found:
                add(branch, one)
    if not root.children:
        root.add("The server has no tools, resources or prompts.")
    return root


def _add_tool(branch: Tree, tool: Tool) -> None:
    node = _node(branch, tool.name, tool.title, tool.description, _hints(tool.annotations))
    _add_schema(node, tool.input_schema)
    if tool.output_schema:
        _add_schema(node.add(Text("returns", style="italic")), tool.output_schema)


def _add_resource(branch: Tree, resource: Resource | ResourceTemplate) -> None:
    uri = resource.uri if isinstance(resource, Resource) else resource.uri_template
    _node(branch, uri, resource.title or resource.name, resource.description, resource.mime_type or "")


def _add_prompt(branch: Tree, prompt: Prompt) -> None:
    node = _node(branch, prompt.name, prompt.title, prompt.description, "")
    for argument in prompt.arguments or ():
        _leaf(node, argument.name, "string", argument.description, required=bool(argument.required))


def _node(branch: Tree, name: str, title: str | None, description: str | None, note: str) -> Tree:
    label = Text(plain(name), style="bold green")
    if title and title != name:
        label.append(f"  {plain(title)}", style="not bold")
    if note:
        label.append(f"  [{plain(note)}]", style="not bold yellow")
    node = branch.add(label)
    if description:
        node.add(Text(plain(description.strip()), style="dim"))
    return node


def _hints(annotations: ToolAnnotations | None) -> str:
    return ", ".join(text for name, text in _HINTS.items() if getattr(annotations, name, None))


def _add_schema(node: Tree, schema: Mapping[str, Any], depth: int = 0) -> None:
    required = required_of(schema)
    for name, member in properties_of(schema).items():
        kind = " or ".join(sorted(kinds_of(member))) or "any"
        if choices := choices_of(member):
            kind = " | ".join(map(str, choices))
        leaf = _leaf(node, name, kind, member.get("description"), required=name in required, default=member)
        items = member.get("items") if isinstance(member.get("items"), Mapping) else member
        if depth < _DEEPEST and isinstance(items, Mapping):
            _add_schema(leaf, items, depth + 1)


def _leaf(
    node: Tree,
    name: str,
    kind: str,
    description: object,
    *,
    required: bool,
    default: Mapping[str, Any] | None = None,
) -> Tree:
    label = Text(plain(name), style="green").append(f": {plain(kind)}", style="default")
    if default is not None and "default" in default:
        label.append(f" = {plain(msgspec.json.encode(default['default']).decode())}", style="default")
    elif not required:
        label.append(" (optional)", style="dim")
    if description:
        label.append(f"  {plain(description)}", style="dim")
    return node.add(label)


def show_blocks(console: Console, blocks: list[ContentBlock]) -> None:
    """Print the content of a result."""
    for block in blocks:
        match block:
            case TextContent():
                console.print(Text(plain(block.text)))
            case ImageContent() | AudioContent():
                kind = "image" if isinstance(block, ImageContent) else "audio"
                console.print(
                    Text(f"[{kind} {plain(block.mime_type)}, {_bytes(block.data)}]", style="yellow")
                )
            case ResourceLink():
                console.print(Text(f"[link {plain(block.uri)}]", style="yellow"))
            case EmbeddedResource():
                show_contents(console, block.resource)


def show_contents(console: Console, contents: ResourceContents) -> None:
    """Print the contents of a resource."""
    if contents.text is not None:
        console.print(Text(plain(contents.text)))
    else:
        kind = contents.mime_type or "application/octet-stream"
        console.print(Text(f"[{plain(kind)}, {_bytes(contents.blob or '')}]", style="yellow"))


def _bytes(base64: str) -> str:
    return f"{len(base64) * 3 // 4 - base64[-2:].count('='):,} bytes"
