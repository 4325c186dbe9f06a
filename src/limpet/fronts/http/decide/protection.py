"""How a client without a valid token learns where to get one: the metadata of this endpoint (RFC 9728).

    client                                              this endpoint
    ──────────────────────────────────────────────      ─────────────────────────────────────────────────────────────
    a request without a valid token               ──▶
                                                  ◀──   401, WWW-Authenticate: Bearer resource_metadata="URL"
    GET URL                                       ──▶
                                                  ◀──   the resource and its authorization servers
    signs in there, asks for a token for the resource
    a request whose token lacks a scope           ──▶
                                                  ◀──   403, WWW-Authenticate: Bearer error="insufficient_scope",
                                                        scope="…", resource_metadata="URL"
    signs in again, for these scopes too

The verifier knows the authorization servers (`authorization_servers`), and often the resource (`resource`). A verifier
that names no server, such as a plain function, has no metadata, and its challenges name no URL.

The **resource** is the URL of this endpoint as clients know it. A token must be for it, so it is never taken from a
request, with one exception: on this machine, where no URL was configured, it is the URL that the client called. Without
a resource there is no metadata.

The **scopes**: a 401 names those that every component of the server needs. A client that follows it asks for few
scopes, and for more when a request needs them. The metadata lists all scopes, except those of hidden components.
"""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from limpet.auth import Verifier
from limpet.auth.urls import RESOURCE, canonical, resource_urls
from limpet.config import WHOLE_URL, HttpSettings
from limpet.engine.access import Access
from limpet.errors import InsufficientScope
from limpet.fronts.http.decide.host_and_origin import preflight
from limpet.fronts.http.read.head import Head
from limpet.fronts.http.write.answer import UNSTARTED, Answer, json_answer, not_allowed, refuse
from limpet.wire.jsonrpc import encode

_WELL_KNOWN: Final = f"/.well-known/{RESOURCE}"
_HERE: Final = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?")
_ALLOWED: Final = "GET, HEAD, OPTIONS"
_HOUR: Final = (b"cache-control", b"max-age=3600")
# It is public, and pages in browsers sign in too.
_PUBLIC: Final = (b"access-control-allow-origin", b"*")

_UNNAMED: Final = refuse(404, "Not found: the URL of this server is not configured (public_url)")


class Protection:
    """The metadata of one endpoint, and its challenges."""

    def __init__(self, settings: HttpSettings, verifier: Verifier | None, access: Access) -> None:
        path = settings.path.rstrip("/") or "/"
        self._path = path
        self._access = access
        self._scopes = settings.scopes_supported
        self._servers: list[str] = [*getattr(verifier, "authorization_servers", ())]
        # An audience may also be a plain name, which says nothing about the URL.
        named = settings.public_url or getattr(verifier, "resource", "")
        self._resource = canonical(named) if WHOLE_URL.fullmatch(named) else ""
        parts = {path, urlsplit(self._resource).path} if self._resource else {path}
        paths = {f"{_WELL_KNOWN}{part.rstrip('/')}" for part in parts}
        self.own_paths: frozenset[str] = frozenset(paths) if self._servers else frozenset()
        """The paths of the metadata that belong to this endpoint only."""
        self.paths: frozenset[str] = self.own_paths | {_WELL_KNOWN} if self._servers else frozenset()
        """The paths of the metadata, if this is the only endpoint."""

    def answer(self, method: str, head: Head) -> Answer:
        """Answer a request for the metadata. It needs no token."""
        if method == "OPTIONS" and head.has(b"origin"):
            allowed = preflight(_ALLOWED)
            return Answer(allowed.status, [*allowed.headers, _PUBLIC])
        if method not in {"GET", "HEAD"}:
            return not_allowed(_ALLOWED)
        resource = self._resource_for(head)
        if not resource:
            return _UNNAMED
        metadata: dict[str, object] = {
            "resource": resource,
            "authorization_servers": self._servers,
            "bearer_methods_supported": ["header"],
        }
        scopes = self._scopes or self._access.shown()
        if scopes:
            metadata["scopes_supported"] = sorted(scopes)
        found = json_answer(encode(metadata))
        # The answer to a request of this machine depends on its Host.
        extra = [_PUBLIC, _HOUR] if self._resource else [_PUBLIC]
        return Answer(found.status, [*found.headers, *extra], found.body)

    def challenge(self, head: Head) -> bytes:
        """Return the `WWW-Authenticate` header of a 401."""
        error = "invalid_token" if head.text(b"authorization") else ""
        return self._challenge(head, error, sorted(self._access.basic()))

    def forbidden(self, head: Head, missing: InsufficientScope) -> Answer:
        """Return the 403 for a token that lacks a scope. Nothing of the request ran."""
        challenge = self._challenge(head, "insufficient_scope", missing.scopes)
        return refuse(
            403,
            missing.message,
            code=missing.code,
            request_id=missing.request_id,
            data=missing.data,
            extra=((b"www-authenticate", challenge), UNSTARTED),
            audit="scope",
        )

    def _challenge(self, head: Head, error: str, scopes: Sequence[str]) -> bytes:
        parts = [f'error="{error}"'] if error else []
        if scopes:
            parts.append(f'scope="{" ".join(scopes)}"')
        resource = self._resource_for(head) if self._servers else ""
        if resource:
            parts.append(f'resource_metadata="{resource_urls(resource)[0]}"')
        return ("Bearer " + ", ".join(parts)).strip().encode("latin-1")

    def _resource_for(self, head: Head) -> str:
        host = head.text(b"host").lower()
        if self._resource or _HERE.fullmatch(host) is None:
            return self._resource
        return f"http://{host}{'' if self._path == '/' else self._path}"
