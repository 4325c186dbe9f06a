"""The forms of a URI in which it is compared with the rows of a table of scopes. Pure.

The server that gets a URI may understand it in many spellings, and a row must fit all of them. So a URI is compared in
several forms, and it is enough if one of them fits: a form that fits by mistake demands one more scope, which is safe.
Rows are written in the same forms.

    every URI                 without percent-encoding (once, twice, three times decoded), in lower case, with the
                              letters of Unicode in their plain form (NFKC), with single slashes, with and without its
                              query, its fragment and the parameters of its path, with `..` resolved
    http, https, ws, wss,     the same with the canonical form of the host (`hosts.canonical_host`) and of the port,
    ftp                       without user
    file                      without a host that is this machine
    other schemes             also without user

A URI that has no certain canonical form is not compared at all (ValueError): control characters, an encoding of
encodings, a host or a port that programs read differently. Its request must be refused.
"""

import posixpath
import re
from collections.abc import Iterator
from typing import Final
from unicodedata import normalize
from urllib.parse import unquote

from limpet.auth.hosts import Zone, canonical_host, zone_of

_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}
"""The schemes whose URIs always name a host, with any number of slashes before it, and their ports."""
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*):", re.IGNORECASE)
_WRAPPING: Final = re.compile(r"^<?(url:)?|>$", re.IGNORECASE)
"""Python's own library accepts this around a URI."""
_AUTHORITY: Final = re.compile(r"([^/?#]*)(.*)", re.DOTALL)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SLASHES: Final = re.compile(r"[/\\]+")
_QUERY: Final = re.compile("[?#]")
_PARAMETERS: Final = re.compile(";[^/]*")
_PORT: Final = re.compile("[0-9]{0,8}")
_HIGHEST_PORT: Final = 65_535
_DECODINGS: Final = 3
"""How often a URI is decoded: a server may decode one that its client has encoded twice."""
_EXPANSION: Final = 4
"""How many times longer the plain form of Unicode may be. A few characters become eighteen."""
_UNCERTAIN: Final = "the URI has no certain canonical form"


def uri_forms(uri: str) -> set[str]:
    """Return the forms of a URI.

    Raises:
        ValueError: it has no certain canonical form.
    """
    if uri != uri.strip():
        raise ValueError(_UNCERTAIN)
    found: set[str] = set()
    for _ in range(_DECODINGS + 1):
        if _CONTROL.search(uri):
            raise ValueError(_UNCERTAIN)
        decoded = unquote(uri)
        for text in _in_plain_letters(_WRAPPING.sub("", uri)):
            # A server may look for the query before it decodes the URI or after it, so both are tried.
            for part in (text, _QUERY.split(text, maxsplit=1)[0]):
                found |= _forms(part, is_last=decoded == uri)
        if decoded == uri:
            return found
        uri = decoded
    raise ValueError(_UNCERTAIN)


def row_forms(row: str) -> set[str]:
    """Return the forms of a row, in which a `*` stands for any characters.

    Raises:
        ValueError: its host has no certain canonical form.
    """
    for _ in range(_DECODINGS):
        row = unquote(row)
    found = {_plain(text) for text in _in_plain_letters(row)}
    for text in _in_plain_letters(row):
        found |= {_plain(head + rest) for head, rest in _heads(text, is_last=True)}
    # What is below a path needs a scope: then the path itself needs it too.
    return found | {form[:-2] for form in found if form.endswith("/*")}


def _in_plain_letters(text: str) -> set[str]:
    if text.isascii():
        return {text}
    plain = normalize("NFKC", text)
    if len(plain) > _EXPANSION * len(text):
        raise ValueError(_UNCERTAIN)
    return {text, plain}


def _forms(text: str, *, is_last: bool) -> set[str]:
    whole = _plain(text)
    found = {whole, _resolved(whole)}
    for head, rest in _heads(text, is_last=is_last):
        path = _plain(rest)
        resolved = posixpath.normpath(path).rstrip("/") if path else path
        found |= {head + path, head + resolved, head + _PARAMETERS.sub("", resolved)}
    return found


def _plain(text: str) -> str:
    return _SLASHES.sub("/", text.replace(" ", "")).casefold().rstrip("/")


def _resolved(plain: str) -> str:
    scheme, colon, rest = plain.partition(":")
    return f"{scheme}{colon}{posixpath.normpath(rest) if rest else rest}"


def _heads(text: str, *, is_last: bool) -> Iterator[tuple[str, str]]:
    """Yield scheme and authority of a URI in their canonical forms, and the rest.

    `is_last`: nothing in it can be decoded any more.

    Raises:
        ValueError: there is none.
    """
    text = text.replace("\\", "/")
    named = _SCHEME.match(text)
    if named is None:
        if text.startswith("//"):
            raise ValueError(_UNCERTAIN)
        return
    scheme, rest = named[1].lower(), text[named.end() :]
    if scheme not in _PORTS and not rest.startswith("//"):
        return
    authority, tail = _AUTHORITY.fullmatch(rest.lstrip("/") if scheme != "file" else rest[2:]).groups()  # type: ignore[union-attr]
    if "%" in authority and not is_last:
        return
    for name in _authorities(scheme, authority):
        yield f"{scheme}:/{name}" if name else f"{scheme}:", tail


def _authorities(scheme: str, authority: str) -> list[str]:
    user, at, place = authority.rpartition("@")
    if scheme in _PORTS:
        if at and "@" in user:
            raise ValueError(_UNCERTAIN)
        return [_host_and_port(scheme, place)]
    if scheme == "file":
        host = place.strip("[]")
        return ["" if host and zone_of(host) is Zone.HERE else authority.casefold()]
    return [place.casefold()] if at else []


def _host_and_port(scheme: str, place: str) -> str:
    if place.startswith("["):
        host, bracket, port = place[1:].partition("]")
        if not bracket or (port and port[0] != ":") or ":" not in host:
            raise ValueError(_UNCERTAIN)
    else:
        host, colon, port = place.partition(":")
        port = colon + port
    if "*" in place:
        # A row for several hosts or ports.
        return place.casefold()
    name, number = canonical_host(host), port[1:]
    if name is None or _PORT.fullmatch(number) is None or int(number or 0) > _HIGHEST_PORT:
        raise ValueError(_UNCERTAIN)
    return f"{name}:{int(number)}" if number and int(number) != _PORTS[scheme] else name
