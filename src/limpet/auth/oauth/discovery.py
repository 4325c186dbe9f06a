"""Find the endpoints of the authorization server for a server's URL. Each step is checked before the next."""

from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import urlsplit

from msgspec import Struct

from limpet.auth.oauth.challenges import OAuthChallenge
from limpet.auth.oauth.metadata import ResourceMetadata, ServerMetadata, read
from limpet.auth.oauth.web import OK, Web
from limpet.auth.urls import canonical, covers, issuer_urls, resource_urls
from limpet.errors import AuthorizationFailed, NotSent


class TokenSource(Struct, frozen=True, kw_only=True):
    """The authorization server that gives tokens, and the resource they are for."""

    server: ServerMetadata
    resource: str
    scopes: list[str] | None = None
    """The scopes that the resource lists."""


async def discover(
    web: Web, server_url: str, demand: OAuthChallenge, *, prefer: Sequence[str] = (), guess: bool = False
) -> TokenSource:
    """Find the authorization server of an MCP server.

    prefer   issuers to choose if the server names several
    guess    use the endpoints of revision 2025-03-26 if there is no metadata at all

    Raises:
        AuthorizationFailed: no document was found, or its metadata contradict each other.
        NotSent: a host cannot be reached.
    """
    announced = demand.resource_metadata
    found = await find_resource(web, server_url, announced)
    if found is None and announced:
        raise AuthorizationFailed(
            f"there is no resource metadata at {announced}, where the server says it is"
        )
    if found is None:
        return await _without_resource_metadata(web, server_url, guess=guess)
    if not covers(found.resource, server_url):
        raise AuthorizationFailed(
            f"the server's metadata is for {found.resource[:200]!r}, which is not {server_url}: no token is requested for it"
        )
    issuer = choose_issuer(found.authorization_servers or (), prefer)
    server = await find_server(web, issuer)
    return TokenSource(server=server, resource=found.resource, scopes=found.scopes_supported)


def choose_issuer(named: Sequence[str], prefer: Sequence[str]) -> str:
    """Return the authorization server to use: a preferred one if it is named, else the first.

    Raises:
        AuthorizationFailed: none is named.
    """
    if not named:
        raise AuthorizationFailed("the server's metadata names no authorization server")
    return next((issuer for issuer in prefer if issuer in named), named[0])


async def find_resource(web: Web, server_url: str, announced: str) -> ResourceMetadata | None:
    """Return a server's metadata: from the URL that it announced, else from the well-known URLs."""
    urls = [announced] if announced else resource_urls(server_url)
    return await _first(web, urls, ResourceMetadata, lambda _found: True)


async def find_server(web: Web, issuer: str) -> ServerMetadata:
    """Return an authorization server's metadata. Its issuer must be equal to `issuer`, character by character.

    Raises:
        AuthorizationFailed: no document was found, or only one of another issuer.
    """
    web.check(issuer)
    others: list[str] = []

    def is_its_own(found: ServerMetadata) -> bool:
        others.extend([found.issuer] if found.issuer != issuer else [])
        return found.issuer == issuer

    found = await _first(web, issuer_urls(issuer), ServerMetadata, is_its_own)
    if found is None:
        said = f": the metadata found are those of {others[0][:200]!r}" if others else ""
        raise AuthorizationFailed(f"there is no metadata of the authorization server {issuer}{said}")
    for endpoint in (found.token_endpoint, found.authorization_endpoint, found.registration_endpoint):
        if endpoint:
            web.check(endpoint)
    return found


async def _without_resource_metadata(web: Web, server_url: str, *, guess: bool) -> TokenSource:
    """Revision 2025-03-26: the server is its own authorization server, at its origin."""
    parts = urlsplit(server_url)
    issuer = f"{parts.scheme}://{parts.netloc}"
    try:
        server = await find_server(web, issuer)
    except AuthorizationFailed:
        if not guess:
            raise AuthorizationFailed(
                f"{server_url} requires authorization and does not say from which server: it has no resource metadata"
            ) from None
        server = ServerMetadata(
            issuer=issuer,
            authorization_endpoint=f"{issuer}/authorize",
            token_endpoint=f"{issuer}/token",
            registration_endpoint=f"{issuer}/register",
            code_challenge_methods_supported=["S256"],
        )
    return TokenSource(server=server, resource=canonical(server_url))


Document = TypeVar("Document", ResourceMetadata, ServerMetadata)


async def _first(
    web: Web, urls: Sequence[str], kind: type[Document], is_right: Callable[[Document], bool]
) -> Document | None:
    """Return the first valid document; None if no URL has one.

    Raises:
        NotSent: no document was found, and one of the URLs failed temporarily.
    """
    failing = ""
    for url in urls:
        reply = await web.get(url)
        found = read(reply.body, kind) if reply.status == OK else None
        if found is not None and is_right(found):
            return found
        failing = f"{url} fails with HTTP {reply.status}" if reply.is_temporary else failing
    if failing:
        raise NotSent(failing)
    return None
