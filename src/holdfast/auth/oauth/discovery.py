"""From a server's URL to the endpoints of its authorization server, each step checked before the next is taken."""

from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import urlsplit

from msgspec import Struct

from holdfast.auth.oauth.challenges import Demand
from holdfast.auth.oauth.metadata import ResourceMetadata, ServerMetadata, read
from holdfast.auth.oauth.urls import canonical, covers, issuer_urls, resource_urls
from holdfast.auth.oauth.web import OK, Web
from holdfast.errors import AuthorizationFailed, NotSent


class Place(Struct, frozen=True, kw_only=True):
    """Whom to ask for tokens, and for what."""

    server: ServerMetadata
    resource: str
    scopes: list[str] | None = None
    """Those that the resource lists."""


async def discover(
    web: Web, server_url: str, demand: Demand, *, prefer: Sequence[str] = (), guess: bool = False
) -> Place:
    """Find the authorization server of an MCP server.

    prefer   issuers to take if the server names several
    guess    take the endpoints of revision 2025-03-26 where there is no metadata at all

    Raises:
        AuthorizationFailed: there is none, or what is said of it contradicts itself.
        NotSent: somebody cannot be reached.
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
            f"the server's metadata is for {found.resource[:200]!r}, which is not {server_url}: a token for it is not given"
        )
    issuer = choose_issuer(found.authorization_servers or (), prefer)
    server = await find_server(web, issuer)
    return Place(server=server, resource=found.resource, scopes=found.scopes_supported)


def choose_issuer(named: Sequence[str], prefer: Sequence[str]) -> str:
    """Return the authorization server to use: a preferred one if it is named, else the first.

    Raises:
        AuthorizationFailed: none is named.
    """
    if not named:
        raise AuthorizationFailed("the server's metadata names no authorization server")
    return next((issuer for issuer in prefer if issuer in named), named[0])


async def find_resource(web: Web, server_url: str, announced: str) -> ResourceMetadata | None:
    """Return a server's metadata: from where it said, else from the well-known places."""
    urls = [announced] if announced else resource_urls(server_url)
    return await _first(web, urls, ResourceMetadata, lambda _found: True)


async def find_server(web: Web, issuer: str) -> ServerMetadata:
    """Return an authorization server's metadata. Its issuer is the one asked for, letter by letter.

    Raises:
        AuthorizationFailed: there is none, or only another issuer's.
    """
    web.check(issuer)
    others: list[str] = []

    def is_its_own(found: ServerMetadata) -> bool:
        others.extend([found.issuer] if found.issuer != issuer else [])
        return found.issuer == issuer

    found = await _first(web, issuer_urls(issuer), ServerMetadata, is_its_own)
    if found is None:
        said = f": what is there is {others[0][:200]!r}'s" if others else ""
        raise AuthorizationFailed(f"there is no metadata of the authorization server {issuer}{said}")
    for endpoint in (found.token_endpoint, found.authorization_endpoint, found.registration_endpoint):
        if endpoint:
            web.check(endpoint)
    return found


async def _without_resource_metadata(web: Web, server_url: str, *, guess: bool) -> Place:
    """Revision 2025-03-26: the server is its own authorization server, at its origin."""
    parts = urlsplit(server_url)
    issuer = f"{parts.scheme}://{parts.netloc}"
    try:
        server = await find_server(web, issuer)
    except AuthorizationFailed:
        if not guess:
            raise AuthorizationFailed(
                f"{server_url} wants authorization, and says nowhere who gives it: there is no resource metadata"
            ) from None
        server = ServerMetadata(
            issuer=issuer,
            authorization_endpoint=f"{issuer}/authorize",
            token_endpoint=f"{issuer}/token",
            registration_endpoint=f"{issuer}/register",
            code_challenge_methods_supported=["S256"],
        )
    return Place(server=server, resource=canonical(server_url))


Document = TypeVar("Document", ResourceMetadata, ServerMetadata)


async def _first(
    web: Web, urls: Sequence[str], kind: type[Document], is_right: Callable[[Document], bool]
) -> Document | None:
    """Return the first right document; None if everybody says that there is none.

    Raises:
        NotSent: there is none yet, but somebody could not answer just now.
    """
    failing = ""
    for url in urls:
        reply = await web.get(url)
        found = read(reply.body, kind) if reply.status == OK else None
        if found is not None and is_right(found):
            return found
        failing = f"{url} fails with HTTP {reply.status}" if reply.is_passing else failing
    if failing:
        raise NotSent(failing)
    return None
