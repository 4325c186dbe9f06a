"""Options by keyword: they override settings, or are checked against the TypedDict that lists them."""

import difflib
from collections.abc import Collection, Mapping
from typing import Any, Final, TypedDict

from msgspec.structs import replace

from holdfast.auth.scopes import needs_of
from holdfast.config import Eras, Settings
from holdfast.core.eras import with_eras
from holdfast.errors import ConfigError
from holdfast.protocol.types import Icon, Meta

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


def overlaid(
    settings: Settings, eras: Eras | None, eras_by_client: Mapping[str, Eras] | None, **given: Any
) -> Settings:
    """Return the settings with these members replaced; None keeps the member of the settings.

    Raises:
        ConfigError: one of them is invalid.
    """
    settings = replace(settings, **{name: value for name, value in given.items() if value is not None})
    return with_eras(settings, eras, eras_by_client)


def check_options(options: Mapping[str, object], kind: type, taker: str) -> None:
    """Refuse an unknown option, which would otherwise be ignored.

    Raises:
        TypeError: the option is unknown; the message has the nearest name.
    """
    known = kind.__annotations__
    for name in options.keys() - known.keys():
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        raise TypeError(f"{taker} has no option {name!r}; {hint}")


def needs_and_tags(options: ComponentOptions, component: str) -> dict[str, Any]:
    """Return the needs and the tags of a component, as the fields of its entry in the catalog.

    Raises:
        ConfigError: a scope or a tag is invalid.
    """
    needs = needs_of(options.get("scopes", ()), component, hidden=options.get("hidden", False))
    return {"needs": needs, "tags": checked_tags(options.get("tags", NO_TAGS), component)}


def checked_tags(tags: Any, place: str) -> frozenset[str]:
    """Return tags as a set.

    Raises:
        ConfigError: they are not a collection of texts.
    """
    if isinstance(tags, str) or not all(isinstance(tag, str) and tag for tag in tags):
        raise ConfigError(f'{place}: tags are texts, as in {{"admin", "beta"}}, not {tags!r}')
    return frozenset(tags)
