"""URLs of stores on the command line: checked, and shown without secrets."""

import contextlib
from urllib.parse import urlsplit

from limpet.errors import ConfigError
from limpet.stores.base import Store
from limpet.stores.sqlite_address import parse
from limpet.stores.urls import SCHEMES


def shown(store: Store | str, namespace: str) -> str:
    """Return a text for a server's store: the file of an SQLite store, else its URL without secrets."""
    if not isinstance(store, str):
        return repr(store)
    if store.partition(":")[0] == "sqlite":
        return f"SQLite file {parse(store, namespace).path}"
    return redacted(store)


def redacted(url: str) -> str:
    """Return a store's URL without user, password and query."""
    scheme, separator, place = url.partition("://")
    # A password may contain any character, also @ and /: split at the last one.
    _, at, host = place.rpartition("@")
    return f"{scheme}{separator}{'***@' if at else ''}{host.partition('?')[0]}"


def check(url: str) -> None:
    """Refuse an invalid URL of a store, without showing a possible password.

    Raises:
        ConfigError: the URL is not valid.
    """
    scheme, colon, _ = url.partition(":")
    if not colon or scheme not in SCHEMES:
        named = f"{scheme}:" if colon else redacted(url)
        known = ", ".join(f"{scheme}:" for scheme in SCHEMES)
        raise ConfigError(f"--store {named} is not the URL of a store: it must begin with one of {known}")
    with contextlib.suppress(ValueError):
        _ = urlsplit(url).port
        return
    if "," not in url:
        raise ConfigError(f"--store {redacted(url)}: the port is not a number")
