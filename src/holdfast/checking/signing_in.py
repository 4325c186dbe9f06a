"""Signing in before a check: the headers with the token that the server accepts."""

from collections.abc import Mapping
from typing import Final

from holdfast.auth.authorizer import Authorizer, Challenge
from holdfast.checking.lane import initialize
from holdfast.checking.peer import Peer
from holdfast.checking.survey import UNAUTHORIZED
from holdfast.errors import ConfigError

_ATTEMPTS: Final = 4
_SECONDS: Final = 10.0


async def signed_in(url: str, authorizer: Authorizer, headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a check, with those of the sign-in.

    Raises:
        ConfigError: the server needs a new proof for each request (DPoP), which a check cannot make.
        HoldfastError: the sign-in failed, or the server cannot be reached.
    """
    peer = Peer(url, headers, _SECONDS)
    try:
        sent: Mapping[str, str] = {}
        for attempt in range(1, _ATTEMPTS + 1):
            sent = await authorizer.headers("POST", url)
            outcome, lane = await initialize(peer.branch({**headers, **sent}))
            if lane is not None and lane.session:
                await lane.delete()
            if outcome.status not in UNAUTHORIZED:
                break
            refused = Challenge(
                method="POST",
                url=url,
                status=outcome.status,
                headers=outcome.headers,
                sent=sent,
                attempt=attempt,
            )
            if not await authorizer.challenged(refused):
                break
    finally:
        await peer.aclose()
    if "dpop" in sent:
        raise ConfigError(
            "the server needs a proof for each request (DPoP): give a bearer token with --token-env"
        )
    return {**headers, **sent}
