"""The authorization request and its answer: PKCE, `state`, and RFC 9207's `iss`. Pure but for the random numbers."""

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from holdfast.auth.oauth.scopes import OFFLINE
from holdfast.errors import AuthorizationFailed
from holdfast.ports import Random

METHOD: Final = "S256"
SECRET_BYTES: Final = 32


class Ticket(Struct, frozen=True, kw_only=True):
    """What is remembered of one authorization request until its answer comes."""

    state: str
    verifier: str
    issuer: str
    """Of the validated metadata; the answer must come from there and the code goes nowhere else."""
    redirect_uri: str

    def __repr__(self) -> str:
        return f"<Ticket of {self.issuer}>"

    @property
    def challenge(self) -> str:
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def new_ticket(random: Random, issuer: str, redirect_uri: str) -> Ticket:
    state, verifier = random.token(SECRET_BYTES), random.token(SECRET_BYTES)
    return Ticket(state=state, verifier=verifier, issuer=issuer, redirect_uri=redirect_uri)


def authorization_url(
    endpoint: str, ticket: Ticket, client_id: str, resource: str, scopes: Sequence[str]
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
        # OpenID servers ignore the scope without it.
        fields["prompt"] = "consent"
    parts = urlsplit(endpoint)
    query = urlencode([*parse_qsl(parts.query, keep_blank_values=True), *fields.items()])
    return urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))


def read_redirect(ticket: Ticket, redirect: str, *, says_issuer: bool) -> str:
    """Return the code in the URL that the browser was sent back to.

    Nothing in it is believed, not even an error, before `state` and `iss` are right.

    Raises:
        AuthorizationFailed: it answers another request, comes from another server, or says no.
    """
    fields = _fields(redirect)
    if not hmac.compare_digest(fields.get("state", "").encode(), ticket.state.encode()):
        raise AuthorizationFailed("the browser came back with another state than it was sent with")
    check_issuer(fields.get("iss"), ticket.issuer, says_issuer=says_issuer)
    if "error" in fields:
        raise AuthorizationFailed(
            f"the authorization server refused: {told(fields['error'], fields.get('error_description'))}",
            error=fields["error"],
        )
    if not fields.get("code"):
        raise AuthorizationFailed("the authorization server sent the browser back without a code")
    return fields["code"]


def check_issuer(given: str | None, recorded: str, *, says_issuer: bool) -> None:
    """Hold `iss` against the recorded issuer, letter by letter.

    Raises:
        AuthorizationFailed: it differs, or is missing though the server says that it sends it.
    """
    if given is None and says_issuer:
        raise AuthorizationFailed(f"the answer does not say who it is from; it should be from {recorded}")
    if given is not None and given != recorded:
        raise AuthorizationFailed(f"the answer is not from {recorded}, where the browser was sent")


def told(error: str, description: str | None) -> str:
    """Return what a stranger wrote, fit to be shown."""
    text = f"{error}: {description}" if description else error
    return "".join(letter if letter.isprintable() else " " for letter in text[:300])


def _fields(redirect: str) -> Mapping[str, str]:
    pairs = parse_qsl(urlsplit(redirect).query, keep_blank_values=True, max_num_fields=64)
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise AuthorizationFailed("the browser came back with a parameter given twice")
    return fields
