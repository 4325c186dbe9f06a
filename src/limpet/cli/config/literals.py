"""Secrets that are written out: in a file, which may be in a repository, or as an argument, which others can read."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from msgspec.structs import replace

from limpet.cli.config.variables import expanded, refers
from limpet.cli.options import Options
from limpet.errors import ConfigError
from limpet.stores.postgres_address import SCHEMES

_SECRET: Final = re.compile(r"(?i)(?:^|[-_])(?:api-?key|key|token|secret|password|authorization|cookie)$")
"""The names of headers and variables whose values are secrets."""
_USER: Final = re.compile(r"//[^/?#]*@")
"""The user, and perhaps the password, in a URL."""
_FROM_CLIENT: Final = ("header:", "claim:")
"""A value that comes from each client."""
_PASSWORD: Final = re.compile(r"://[^@/?#]*:[^@]*@|[?&](?:ssl)?password=")
"""A password in a URL of PostgreSQL, also in that of listen=."""
_PAIRS: Final = {"headers": "--header", "env": "--env"}
"""The tables whose values may be secrets, and their options."""


def literals(table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the key of each secret that is written out, and the name in a table of names."""
    for kind in _PAIRS:
        pairs = table.get(kind)
        for name, value in pairs.items() if isinstance(pairs, dict) else ():
            if _SECRET.search(name) and isinstance(value, str) and value and not _is_reference(value):
                yield kind, name
    store, url = table.get("store"), table.get("url")
    if isinstance(store, str) and _has_password(store) and not _is_reference(store):
        yield "store", ""
    if isinstance(url, str) and _USER.search(url) and not _is_reference(url):
        yield "url", ""


def _has_password(url: str) -> bool:
    """Return True if the URL of a store may have a password. PostgreSQL often has a user without one."""
    if url.partition("://")[0] in SCHEMES:
        return bool(_PASSWORD.search(unquote(url)))
    return "@" in url


def _is_reference(text: str) -> bool:
    return refers(text) or text.startswith(_FROM_CLIENT)


def from_arguments(options: Options, target: str | None, named: tuple[str, ...]) -> Options:
    """Return the options with the variables in `--header` and `--env` replaced.

    `named`: those on the command line itself.

    Raises:
        ConfigError: an argument is a secret, or a variable is not set.
    """
    store = options.store if "store" in named else None
    given = {"headers": options.headers, "env": options.env, "store": store, "url": target}
    for kind, name in literals(given):
        raise ConfigError(f"{_ARGUMENTS[kind].format(name)}. Other users of the machine can read arguments")
    return replace(
        options,
        headers=expanded(options.headers, _PAIRS["headers"], {}),
        env=expanded(options.env, _PAIRS["env"], {}),
    )


_ARGUMENTS: Final = {
    "headers": "--header {0} has a secret: put it into a variable and write --header '{0}=${{NAME}}', or use --token-file",
    "env": "--env {0} has a secret: put it into a variable and write --env '{0}=${{NAME}}'",
    "store": "--store has a password{0}: put the URL into the variable LIMPET_STORE and leave out --store",
    "url": "the URL has a user or a password{0}: use --token-file, --token-env, or --header 'Authorization=${{NAME}}'",
}
"""The error for a secret in an argument."""
