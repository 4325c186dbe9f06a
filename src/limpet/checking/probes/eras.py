"""Probes of the handshake, of the versions and of access."""

from typing import Any, Final

from limpet.auth.oauth.challenges import NOTHING, OAuthChallenge, oauth_challenge
from limpet.auth.oauth.discovery import find_resource
from limpet.auth.oauth.web import Bounds, Web
from limpet.checking.ground import Ground, NotApplicable, ProbeFailed
from limpet.checking.lane import SESSION_VERSION, discover, initialize
from limpet.checking.probes.answers import answers_still
from limpet.checking.seen_response import SeenResponse
from limpet.checking.survey import UNAUTHORIZED
from limpet.errors import METHOD_NOT_FOUND, AuthorizationFailed, NotSent
from limpet.protocol.sessionless import VERSION
from limpet.transports.http import shown

_VISIBLE: Final = frozenset(map(chr, range(0x21, 0x7F)))
_METADATA_SECONDS: Final = 3.0
_WRONG_TOKEN: Final = "limpet-check-invalid-token"  # noqa: S105 - a token that no server knows


async def reachable(ground: Ground) -> str:
    """Send server/discover and initialize. One of them must be answered."""
    facts = ground.facts
    if facts.unreachable and facts.handshake.status in UNAUTHORIZED:
        where, option = await _where_to_get_a_token(ground)
        raise ProbeFailed(
            f"{facts.unreachable}. {where} Then run: limpet check {shown(ground.peer.url)} {option}"
        )
    if facts.unreachable:
        raise ProbeFailed(facts.unreachable)
    return f"{facts.server} speaks {' and '.join(facts.versions)}"


async def authorization(ground: Ground) -> str:
    """Send a request without the token, and one with a wrong token."""
    if "authorization" not in ground.peer.headers:
        raise NotApplicable("no token was given, and the server answers")
    rest = {name: value for name, value in ground.peer.headers.items() if name != "authorization"}
    bare = await _knock(ground, rest)
    if bare.status not in UNAUTHORIZED:
        raise NotApplicable(f"the server answers also without the token ({bare})")
    wrong = await _knock(ground, {**rest, "authorization": f"Bearer {_WRONG_TOKEN}"})
    if wrong.is_crash or wrong.result is not None:
        raise ProbeFailed(f"a wrong token got {wrong} instead of 401")
    said = await _metadata(ground, oauth_challenge(bare.headers))
    return f"without the token the server answers {bare.status}, and {wrong.status} to a wrong one. {said}".rstrip()


async def _knock(ground: Ground, headers: dict[str, str]) -> SeenResponse:
    """Send the first request of a client with other headers."""
    peer = ground.peer.branch(headers)
    if not ground.facts.has_sessions:
        return (await discover(peer))[0]
    outcome, lane = await initialize(peer)
    if lane is not None:
        ground.keep(lane)
    return outcome


async def _where_to_get_a_token(ground: Ground) -> tuple[str, str]:
    """Return where the user gets a token, and the option to use."""
    try:
        said = await _metadata(ground, oauth_challenge(ground.facts.handshake.headers))
    except ProbeFailed as error:
        return str(error) + ".", "--token-env TOKEN"
    if said:
        return said, "--oauth, or with a token --token-env TOKEN"
    return "Put its token into a variable (TOKEN) or a file (--token-file).", "--token-env TOKEN"


async def _metadata(ground: Ground, demand: OAuthChallenge) -> str:
    """Return the metadata of the server about its tokens; empty if it says nothing, as with keys of its own.

    Raises:
        ProbeFailed: the server announces a document that does not exist or names no authorization server.
    """
    announced = demand.resource_metadata
    if demand == NOTHING:
        return ""
    web = Web(ground.peer.http, ground.peer.url, Bounds(seconds=_METADATA_SECONDS))
    try:
        found = await find_resource(web, ground.peer.url, announced)
    except (AuthorizationFailed, NotSent) as error:
        return f"Its resource metadata cannot be read: {error}."
    if found is None and announced:
        raise ProbeFailed(
            f"there is no valid resource metadata at {announced}, where WWW-Authenticate says it is"
        )
    if found is None:
        return ""
    if not found.authorization_servers:
        raise ProbeFailed("the resource metadata of the server name no authorization server")
    scopes = ", ".join(demand.scopes or found.scopes_supported or ())
    needed = f" with the scopes {scopes}" if scopes else ""
    return f"Its resource metadata says: get a token{needed} from {found.authorization_servers[0]}."


async def negotiation(ground: Ground) -> str:
    """Ask for 2026-07-28 and for sessions, as a client does that speaks both.

    Then for a version that does not exist.
    """
    facts = ground.facts
    discovery = facts.discovery
    if discovery.is_crash:
        raise ProbeFailed(
            f"server/discover got {discovery}: a client that speaks both eras waits or gives up"
        )
    if not facts.has_sessions:
        if not facts.handshake.is_refusal:
            raise ProbeFailed(f"initialize got {facts.handshake} instead of a refusal")
        return "the server speaks 2026-07-28 and refuses initialize"
    outcome, lane = await initialize(ground.peer, "1999-01-01")
    if lane is not None:
        ground.keep(lane)
        if lane.version == "1999-01-01":
            raise ProbeFailed("the server accepted the protocol version 1999-01-01, which does not exist")
    elif not outcome.is_refusal:
        raise ProbeFailed(f"initialize with the protocol version 1999-01-01 got {outcome}")
    first = "answered" if facts.is_sessionless else f"refused with {discovery}"
    second = f"got {lane.version}" if lane is not None else "was refused"
    return f"server/discover was {first}, initialize was answered; an unknown version {second}"


async def handshake(ground: Ground) -> str:
    """Open a session, and ask for each list that the server declares."""
    facts = ground.facts
    if not facts.has_sessions:
        raise NotApplicable("the server speaks only 2026-07-28, which has no handshake")
    agreed: dict[str, Any] = facts.handshake.result
    if not isinstance(agreed.get("serverInfo"), dict) or not isinstance(agreed.get("capabilities"), dict):
        raise ProbeFailed("the result of initialize has no serverInfo or no capabilities")
    lane = await ground.lane()
    if lane.version >= VERSION:
        raise ProbeFailed(f"the server agreed to {lane.version}, which has no initialize")
    if not set(lane.session) <= _VISIBLE:
        raise ProbeFailed("the session id has characters that are not visible ASCII")
    await answers_still(lane)
    for method, got in facts.unanswered.items():
        if str(METHOD_NOT_FOUND) in got:
            raise ProbeFailed(
                f"the server declares the capability {method.partition('/')[0]}, but {method} got {got}"
            )
    note = "" if lane.version == SESSION_VERSION else f" ({SESSION_VERSION} was offered)"
    also = "".join(f"; {method} got {got}" for method, got in facts.unanswered.items())
    return (
        f"the server agreed to {lane.version}{note} and gave {'a' if lane.session else 'no'} session id{also}"
    )
