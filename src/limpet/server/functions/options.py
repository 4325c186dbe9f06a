"""Options by keyword, checked against the TypedDict that lists them."""

import difflib
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypedDict

from limpet.auth.scopes import needs_of
from limpet.errors import ConfigError
from limpet.protocol.types import Icon, Meta
from limpet.server.functions.signature import place_of

NO_TAGS: Final = frozenset[str]()


class ComponentOptions(TypedDict, total=False):
    """The options that tools, resources and prompts share."""

    name: str
    """The name; the function's name by default."""
    title: str
    """A name for people."""
    description: str
    """The description; the function's docstring by default."""
    icons: list[Icon]
    """Images that represent the component."""
    meta: Meta
    """The `_meta` of the component in its list."""
    scopes: Collection[str]
    """The scopes that a principal needs to use the component, besides those of the server."""
    hidden: bool
    """True: the component does not exist for principals without these scopes. False: it is listed, and refused."""
    tags: Collection[str]
    """Names of groups: `server.disable(tags=…)` hides all components of a group. Clients do not see them."""
    enabled: bool
    """False hides the component until `enable_tool`, `enable_resource` or `enable_prompt`."""


HINTS: Final = {
    f"{word}{end}": f"{ours}_hint"
    for ours, words in {
        "read_only": ("readOnly", "read_only"),
        "destructive": ("destructive",),
        "idempotent": ("idempotent",),
        "open_world": ("openWorld", "open_world"),
    }.items()
    for word in words
    for end in ("Hint", "_hint", "")
}
"""Members of the annotations of a tool, as other frameworks and ours spell them."""


def check_options(options: Mapping[str, object], kind: type, taker: str) -> None:
    """Refuse an unknown option, which would otherwise be ignored.

    Raises:
        TypeError: the option is unknown; the message has the nearest name.
    """
    known = kind.__annotations__
    for name in options.keys() - known.keys():
        if (hint := HINTS.get(name)) and hint not in known:
            raise TypeError(
                f"{taker} has no option {name!r}; use annotations=ToolAnnotations({hint}={options[name]!r})"
            )
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        raise TypeError(f"{taker} has no option {name!r}; {hint}")


def needs_and_tags(options: ComponentOptions, component: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Return the needs, the tags and the place of a component, as the fields of its entry in the catalog.

    Raises:
        ConfigError: a scope or a tag is invalid.
    """
    needs = needs_of(options.get("scopes", ()), component, hidden=options.get("hidden", False))
    tags = checked_tags(options.get("tags", NO_TAGS), component)
    return {"needs": needs, "tags": tags, "place": place_of(function)}


def checked_tags(tags: Any, place: str) -> frozenset[str]:
    """Return tags as a set.

    Raises:
        ConfigError: they are not a collection of texts.
    """
    if isinstance(tags, str) or not all(isinstance(tag, str) and tag for tag in tags):
        raise ConfigError(f'{place}: tags are texts, as in {{"admin", "beta"}}, not {tags!r}')
    return frozenset(tags)
