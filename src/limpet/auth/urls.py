"""The URLs where metadata may be, and which URLs may be used. Pure.

Plain `http` is allowed only for a server on this machine, and only such a server may name URLs on this machine: a
public server must not make a client call its own machine. The same rule holds for private networks and the local link
(`hosts`).
"""

from typing import Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

from limpet.auth.hosts import MAY_NAME, Zone, zone_of
from limpet.errors import AuthorizationFailed

RESOURCE: Final = "oauth-protected-resource"
SERVER: Final = "oauth-authorization-server"
OPENID: Final = "openid-configuration"
PORTS: Final = {"http": 80, "https": 443}


def resource_urls(server: str) -> list[str]:
    """Return the URLs of a server's resource metadata: for its path, then for its origin."""
    parts = urlsplit(server)
    path = parts.path.rstrip("/")
    rooted = _at(parts, f"/.well-known/{RESOURCE}")
    return [_at(parts, f"/.well-known/{RESOURCE}{path}"), rooted] if path else [rooted]


def issuer_urls(issuer: str) -> list[str]:
    """Return the URLs of an authorization server's metadata, in the order of the specification."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    inserted = [_at(parts, f"/.well-known/{kind}{path}") for kind in (SERVER, OPENID)]
    return [*inserted, _at(parts, f"{path}/.well-known/{OPENID}")] if path else inserted


def canonical(server: str) -> str:
    """Return a server's URL as a resource identifier: lower-case scheme and host, no fragment, no bare slash."""
    parts = urlsplit(server)
    path = "" if parts.path == "/" else parts.path
    return urlunsplit((parts.scheme.lower(), parts.netloc.lower(), path, parts.query, ""))


def origin(url: str) -> str:
    """Return scheme, host and port; the default port is written out."""
    parts = urlsplit(url)
    return f"{parts.scheme.lower()}://{(parts.hostname or '').lower()}:{parts.port or PORTS.get(parts.scheme.lower(), 0)}"


def covers(resource: str, server: str) -> bool:
    """True if a token for `resource` is valid for `server`: the same origin, and the same path or a parent of it."""
    if origin(resource) != origin(server) or urlsplit(resource).fragment:
        return False
    above, path = urlsplit(resource).path.rstrip("/"), urlsplit(server).path.rstrip("/")
    return path == above or path.startswith(f"{above}/")


def is_loopback(url: str) -> bool:
    """True if the host of a URL is this machine, by its name alone: nothing is looked up."""
    return _zone(url) is Zone.HERE


def check_trusted(url: str, *, near: str) -> str:
    """Return a URL that a server (`near`) or its authorization server named, if it may be used.

    It must be https. A public server may name public hosts only; a server in a private network may also name hosts in
    private networks. A server on this machine may also name this machine, and there plain http is allowed.

    Raises:
        AuthorizationFailed: it may not be used.
    """
    there, here = _zone(url), _zone(near)
    why = ""
    if there is None or here is None or not url.isprintable():
        why = "only https to a valid host is safe"
    elif there not in MAY_NAME[here]:
        why = f"a server of {here.value} may not send a client to {there.value}"
    elif urlsplit(url).scheme != "https" and there is not Zone.HERE:
        why = "only https is safe"
    if why:
        raise AuthorizationFailed(f"the URL {url[:200]!r} is not used for authorization: {why}")
    return url


def _zone(url: str) -> Zone | None:
    """Return the zone of a URL; None if the URL is not valid."""
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in PORTS and parts.port != 0 and parts.username is None
    except ValueError:
        return None
    return zone_of(parts.hostname) if is_usable and parts.hostname else None


def _at(parts: SplitResult, path: str) -> str:
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))
