"""Parse the header `WWW-Authenticate` of a refusal. Pure. It never raises: the header may contain anything."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

SCHEMES: Final = ("dpop", "bearer")
"""The schemes that mean OAuth, in lower case."""
LONGEST: Final = 16 * 1024
"""Characters of a header that are read; the rest is ignored."""

_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - a grammar's name
_QUOTED: Final = r'"(?:[^"\\]|\\.)*"'
_PARAMETER: Final = rf"(?P<name>{_TOKEN})\s*=\s*(?P<value>{_QUOTED}|{_TOKEN})"
_ITEM: Final = re.compile(
    rf"[\s,]*(?:(?P<scheme>{_TOKEN})(?=\s*(?:,|$)|\s+{_TOKEN}\s*=|\s+[A-Za-z0-9])(?!\s*=)\s*|{_PARAMETER}|(?P<other>[^,]+))"
)


class OAuthChallenge(Struct, frozen=True):
    """One challenge: its scheme in lower case, and its parameters by lower-case name."""

    scheme: str
    parameters: Mapping[str, str]

    @property
    def error(self) -> str:
        return self.parameters.get("error", "")

    @property
    def scopes(self) -> tuple[str, ...]:
        return tuple(self.parameters.get("scope", "").split())

    @property
    def resource_metadata(self) -> str:
        return self.parameters.get("resource_metadata", "")


NOTHING: Final = OAuthChallenge("", {})


def oauth_challenge(headers: Mapping[str, Sequence[str]]) -> OAuthChallenge:
    """Return the challenge for OAuth; of several, the one with the most parameters."""
    found = [
        demand
        for value in headers.get("www-authenticate", ())
        for demand in parse(value[:LONGEST])
        if demand.scheme in SCHEMES
    ]
    return max(found, key=lambda demand: len(demand.parameters), default=NOTHING)


def parse(value: str) -> Iterator[OAuthChallenge]:
    """Yield the challenges of one header; parts that do not fit the grammar are skipped."""
    scheme, parameters = "", dict[str, str]()
    for item in _ITEM.finditer(value):
        if item["scheme"]:
            if scheme:
                yield OAuthChallenge(scheme, parameters)
            scheme, parameters = item["scheme"].lower(), {}
        elif item["name"]:
            # The first one counts: a second parameter with the same name is a mistake or an attack.
            parameters.setdefault(item["name"].lower(), _plain(item["value"]))
    if scheme:
        yield OAuthChallenge(scheme, parameters)


def _plain(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
