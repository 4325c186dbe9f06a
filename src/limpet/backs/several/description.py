"""The descriptions of several servers as one: capabilities and instructions. Pure.

A capability of one member is a capability of the whole. Lists change whenever a member comes or goes, so `listChanged`
is always declared. A member that has not answered yet may have everything: a client reads them once, at the start, and
would not ask later.

A member at which each user signs in has no lists before that, so its user could not find out that a sign-in is needed.
The instructions say it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from limpet.errors import McpError

UNKNOWN: Final[Mapping[str, Any]] = {
    "capabilities": {
        "tools": {},
        "prompts": {},
        "resources": {"subscribe": True},
        "logging": {},
        "completions": {},
    }
}
"""The description of a member that has not answered."""
_CHANGE: Final = ("tools", "prompts", "resources")


def merged_capabilities(described: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the capabilities of all; of two values for one member, the first."""
    merged: dict[str, Any] = {}
    for one in described:
        capabilities = one.get("capabilities")
        merged = _united(merged, capabilities if isinstance(capabilities, dict) else {})
    return {
        name: {**value, "listChanged": True} if name in _CHANGE and isinstance(value, dict) else value
        for name, value in merged.items()
    }


def _united(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        name: _united(first[name], value)
        if isinstance(first[name], dict) and isinstance(value, dict)
        else first[name]
        for name, value in second.items()
        if name in first
    }
    return {**second, **first, **both}


def joined_instructions(
    own: object, others: Mapping[str, Mapping[str, Any]], pages: Mapping[str, str]
) -> str | None:
    """Return the instructions of the whole server, then those of each member under its name; None: there are none.

    `pages`: by name of a member, the page at which this user must sign in before its components are listed.
    """
    parts = [own] if isinstance(own, str) and own else []
    for name, described in others.items():
        text = described.get("instructions")
        told = [text.strip()] if isinstance(text, str) and text.strip() else []
        if name in pages:
            told.insert(
                0,
                f"Its tools, resources and prompts are missing until the user has signed in at {pages[name]}",
            )
        if told:
            parts.append("\n\n".join((f"## {name}", *told)))
    return "\n\n".join(parts) or None


def page_of(error: McpError) -> str | None:
    """Return the page at which a user must sign in before a member answers; None: it failed for another reason."""
    match error.data:
        case {"elicitations": [{"url": str(url)}, *_]}:
            return url
        case _:
            return None
