"""The names and URIs that components of an included server have in the including server."""

from collections.abc import Callable

Rename = Callable[[str], str]


def prefixed_name(prefix: str | None) -> Rename:
    """Return the function that renames tools and prompts: `prefix_name`."""
    return (lambda name: f"{prefix}_{name}") if prefix else (lambda name: name)


def prefixed_uri(prefix: str | None) -> Rename:
    """Return the function that renames URIs: the prefix becomes the first part after the scheme."""
    if not prefix:
        return lambda uri: uri

    def rename(uri: str) -> str:
        scheme, slashes, rest = uri.partition("://")
        if slashes:
            return f"{scheme}://{prefix}/{rest}"
        scheme, _, rest = uri.partition(":")
        return f"{scheme}:{prefix}/{rest}"

    return rename
