"""Where metadata may be, and whom to trust with what. Pure.

Plain `http` is for a server on this machine only, and only such a server may name others on this
machine: nobody outside makes a client knock at its own doors.
"""

from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

from holdfast.errors import AuthorizationFailed

RESOURCE: Final = "oauth-protected-resource"
SERVER: Final = "oauth-authorization-server"
OPENID: Final = "openid-configuration"
PORTS: Final = {"http": 80, "https": 443}


def resource_urls(server: str) -> list[str]:
    """Return where a server's resource metadata may be: for its path, then for its whole origin."""
    parts = urlsplit(server)
    path = parts.path.rstrip("/")
    rooted = _at(parts, f"/.well-known/{RESOURCE}")
    return [_at(parts, f"/.well-known/{RESOURCE}{path}"), rooted] if path else [rooted]


def issuer_urls(issuer: str) -> list[str]:
    """Return where an authorization server's metadata may be, in the specification's order."""
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
    """Return scheme, host and port, none left to be guessed."""
    parts = urlsplit(url)
    return f"{parts.scheme.lower()}://{(parts.hostname or '').lower()}:{parts.port or PORTS.get(parts.scheme.lower(), 0)}"


def covers(resource: str, server: str) -> bool:
    """Tell whether a token for `resource` is a token for `server`: the same origin, and the same path or above."""
    if origin(resource) != origin(server) or urlsplit(resource).fragment:
        return False
    above, path = urlsplit(resource).path.rstrip("/"), urlsplit(server).path.rstrip("/")
    return path == above or path.startswith(f"{above}/")


def is_loopback(url: str) -> bool:
    """Tell whether a URL means this machine, by its name alone: nothing is looked up."""
    host = (urlsplit(url).hostname or "").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def check_trusted(url: str, *, near: str) -> str:
    """Return a URL that a server (`near`) or its authorization server named, if it may be used.

    Raises:
        AuthorizationFailed: it is neither https nor, for a server on this machine, on this machine.
    """
    try:
        parts = urlsplit(url)
        is_url = bool(parts.hostname) and parts.port != 0 and parts.username is None
    except ValueError:
        is_url = False
        parts = urlsplit("")
    if is_url and not url.isspace() and url.isprintable():
        if is_loopback(url):
            if is_loopback(near) and parts.scheme in PORTS:
                return url
        elif parts.scheme == "https":
            return url
    raise AuthorizationFailed(f"refused to go to {url[:200]!r} for authorization: only https is safe")


def _at(parts: SplitResult, path: str) -> str:
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))
