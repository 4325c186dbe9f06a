"""The authorization request and its redirect: PKCE, `state`, and `iss` (RFC 9207). Pure except for random numbers."""

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from limpet.auth.oauth.identity import ClientIdentity
from limpet.auth.oauth.metadata import ErrorAnswer
from limpet.auth.oauth.scopes import OFFLINE
from limpet.errors import AuthorizationFailed
from limpet.ports import Random

METHOD: Final = "S256"
SECRET_BYTES: Final = 32


class AuthorizationRequest(Struct, frozen=True, kw_only=True):
    """One authorization request, kept until the redirect comes."""

    state: str
    verifier: str
    issuer: str
    """The issuer of the validated metadata. The redirect must come from it, and only it receives the code."""
    redirect_uri: str

    def __repr__(self) -> str:
        return f"<AuthorizationRequest of {self.issuer}>"

    @property
    def challenge(self) -> str:
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")


class Begun(Struct, frozen=True, kw_only=True):
    """An authorization that waits for its redirect: all that is needed to exchange the code."""

    request: AuthorizationRequest
    client: ClientIdentity
    scopes: tuple[str, ...]


def new_authorization_request(random: Random, issuer: str, redirect_uri: str) -> AuthorizationRequest:
    state, verifier = random.token(SECRET_BYTES), random.token(SECRET_BYTES)
    return AuthorizationRequest(state=state, verifier=verifier, issuer=issuer, redirect_uri=redirect_uri)


def authorization_url(
    endpoint: str, ticket: AuthorizationRequest, client_id: str, resource: str, scopes: Sequence[str]
) -> str:
    """Return the URL that the user's browser opens."""
    fields = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": ticket.redirect_uri,
        "state": ticket.state,
        "code_challenge": ticket.challenge,
        "code_challenge_method": METHOD,
        "resource": resource,
    }
    if scopes:
        fields["scope"] = " ".join(scopes)
    if OFFLINE in scopes:
        # OpenID servers ignore `offline_access` without it.
        fields["prompt"] = "consent"
    parts = urlsplit(endpoint)
    query = urlencode([*parse_qsl(parts.query, keep_blank_values=True), *fields.items()])
    return urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))


def read_redirect(ticket: AuthorizationRequest, redirect: str, *, says_issuer: bool) -> str:
    """Return the code in the URL that the browser was sent back to.

    `state` and `iss` are checked before anything else is read, also before an error.

    Raises:
        AuthorizationFailed: it belongs to another request, comes from another server, or contains an error.
    """
    fields = _fields(redirect)
    if not hmac.compare_digest(fields.get("state", "").encode(), ticket.state.encode()):
        raise AuthorizationFailed("the redirect has another state than the request")
    check_issuer(fields.get("iss"), ticket.issuer, says_issuer=says_issuer)
    if "error" in fields:
        raise AuthorizationFailed(
            f"the authorization server refused: {ErrorAnswer(fields['error'], fields.get('error_description'))}",
            error=fields["error"],
        )
    if not fields.get("code"):
        raise AuthorizationFailed("the redirect of the authorization server has no code")
    return fields["code"]


def check_issuer(given: str | None, recorded: str, *, says_issuer: bool) -> None:
    """Compare `iss` with the recorded issuer, character by character.

    Raises:
        AuthorizationFailed: it differs, or it is missing although the server's metadata promise it.
    """
    if given is None and says_issuer:
        raise AuthorizationFailed(f"the redirect has no iss, which should be {recorded}")
    if given is not None and given != recorded:
        raise AuthorizationFailed(f"the redirect is not from {recorded}, to which the browser was sent")


def _fields(redirect: str) -> Mapping[str, str]:
    pairs = parse_qsl(urlsplit(redirect).query, keep_blank_values=True, max_num_fields=64)
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise AuthorizationFailed("the redirect has a parameter twice")
    return fields
