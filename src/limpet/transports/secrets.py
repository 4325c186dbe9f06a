"""Remove the secrets of our requests from the texts of a server: some repeat a request in their answer."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from limpet.transports.http import place_of

HIDDEN: Final = "[hidden]"
_LEAST: Final = 6
"""Shorter values are not secrets; replacing them would make a text unreadable."""


def hiding(url: str, headers: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that removes the secrets of a URL, and the values of headers, from a text."""
    secrets = sorted(set(_secrets(url, headers)), key=len, reverse=True)

    def hide(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, HIDDEN)
        return text

    return hide


def _secrets(url: str, headers: Mapping[str, str]) -> Iterable[str]:
    parts = urlsplit(url)
    made = place_of(url).headers.get("authorization", "")
    query = [value for _, value in parse_qsl(parts.query)]
    for value in (*headers.values(), *query, parts.password or "", made):
        # `Bearer TOKEN`: the server may repeat the token alone.
        yield from (part for part in (value, value.partition(" ")[2]) if len(part) >= _LEAST)
