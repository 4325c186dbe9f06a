"""How a client gets its id: registered by hand, by its own document, or dynamically (RFC 7591), in this order.

An id that one authorization server has given is never sent to another one.
"""

from typing import Any

import msgspec
from msgspec import Struct

from limpet.auth.oauth.identity import BASIC, NONE, POST, ClientIdentity
from limpet.auth.oauth.metadata import RegistrationAnswer, ServerMetadata, read
from limpet.auth.oauth.web import Web, refusal
from limpet.auth.urls import is_loopback
from limpet.errors import AuthorizationFailed, NotSent

CREATED = (200, 201)


class Application(Struct, frozen=True, kw_only=True):
    """The application, as its author describes it."""

    name: str = "Limpet"
    client: ClientIdentity | None = None
    """Registered by hand."""
    document: str = ""
    """The https URL of its client id metadata document."""
    is_proving: bool = False
    """Its tokens are bound to a key (DPoP)."""


def known_client(application: Application, server: ServerMetadata, bound: str) -> ClientIdentity | None:
    """Return the client that needs no registration; None if every client must register.

    `bound` is the issuer used so far.

    Raises:
        AuthorizationFailed: the client is registered by hand, with another authorization server.
    """
    client = application.client
    if client is not None:
        home = client.issuer or bound
        if home and home != server.issuer:
            raise AuthorizationFailed(
                f"the server's authorization server is now {server.issuer}, and client {client.id!r} is registered "
                f"with {home}: register it there"
            )
        return client
    if application.document and server.client_id_metadata_document_supported:
        return ClientIdentity(application.document, method=NONE)
    return None


def is_usable(client: ClientIdentity | None, server: ServerMetadata, redirect_uri: str, wall: float) -> bool:
    """True if an earlier registration is still valid for this server and redirect URI."""
    return (
        client is not None
        and client.issuer == server.issuer
        and client.redirect_uri == redirect_uri
        and not (client.expires and wall >= client.expires)
    )


async def register(
    web: Web, server: ServerMetadata, application: Application, redirect_uri: str
) -> ClientIdentity:
    """Register the client at an authorization server.

    Raises:
        AuthorizationFailed: the server refuses.
        NotSent: the server cannot answer now.
    """
    if not server.registration_endpoint:
        raise AuthorizationFailed(
            f"{server.issuer} has no dynamic registration: register a client there and pass it as `client`"
        )
    wish = registration(server, application, redirect_uri)
    body, headers = msgspec.json.encode(wish), {"content-type": "application/json"}
    reply = await web.send(server.registration_endpoint, body, headers)
    if reply.is_temporary:
        raise NotSent(f"{server.issuer} cannot register clients now (HTTP {reply.status})")
    answer = read(reply.body, RegistrationAnswer) if reply.status in CREATED else None
    if answer is None:
        raise refusal(reply, f"{server.issuer} did not register this client ({redirect_uri})")
    return ClientIdentity(
        id=answer.client_id,
        secret=answer.client_secret or "",
        issuer=server.issuer,
        method=answer.token_endpoint_auth_method or ("" if answer.client_secret else NONE),
        redirect_uri=redirect_uri,
        expires=answer.client_secret_expires_at or None,
    )


def registration(server: ServerMetadata, application: Application, redirect_uri: str) -> dict[str, Any]:
    """Return the registration request.

    The client is public if the server allows it, and native if the redirect leads to this machine.
    """
    methods = server.token_endpoint_auth_methods_supported
    grants = server.grant_types_supported
    can_refresh = grants is None or "refresh_token" in grants
    is_native = is_loopback(redirect_uri) or not redirect_uri.startswith("https:")
    return {
        "client_name": application.name,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", *(["refresh_token"] if can_refresh else [])],
        "response_types": ["code"],
        "token_endpoint_auth_method": next(
            (method for method in (NONE, BASIC, POST) if methods is None or method in methods), NONE
        ),
        "application_type": "native" if is_native else "web",
        **({"dpop_bound_access_tokens": True} if application.is_proving else {}),
    }
