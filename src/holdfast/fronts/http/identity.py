"""Identity: the principal of a request, from its bearer token and the author's verifier.

A verifier is the author's code, and it handles a secret. Its exceptions may quote the token, so only the
type of the exception is logged; and it may hang, if the service behind it does, so it has a time limit.

A refused token is refused again for `REFUSED_SECONDS` without a call of the verifier: a client that repeats it must not
cause a request to the authorization server each time. A verifier that takes the request may decide otherwise for the next
request with the same token, so nothing is remembered for it.

A verifier that remembers accepted tokens itself may provide `known`. Then neither the verifier nor its time limit costs
anything for a token that it has accepted recently.
"""

import asyncio
from typing import Final, cast

from holdfast.auth import (
    AuthRequest,
    KnownPrincipal,
    Principal,
    TokenVerifier,
    Verifier,
    known_by,
    with_request,
)
from holdfast.auth.known_tokens import REFUSED_SECONDS, KnownTokens
from holdfast.core.log_rates import LogRates
from holdfast.engine.engine import Engine
from holdfast.errors import BUSY
from holdfast.fronts.http.addresses import Addresses, counted
from holdfast.fronts.http.answer import UNSTARTED, Answer, refuse, refused_unstarted, retry_after
from holdfast.fronts.http.head import Head
from holdfast.fronts.http.protection import Protection
from holdfast.fronts.http.request import RawRequest

_ACCEPTED: Final = 10_000
_UNVERIFIED: Final = refuse(
    503,
    "Service unavailable: the token cannot be checked now; try again",
    code=BUSY,
    extra=(retry_after(), UNSTARTED),
)


class Identity:
    """Calls the verifier."""

    def __init__(
        self, verifier: Verifier, engine: Engine, protection: Protection, addresses: Addresses
    ) -> None:
        """Prepare to call the verifier.

        Raises:
            ConfigError: it takes neither the token nor the token and the request.
        """
        self._with_request = with_request(verifier)
        self._verifier = cast("TokenVerifier", verifier)
        self._engine = engine
        self._protection = protection
        self._known: KnownPrincipal | None = known_by(verifier)
        self._wall = engine.clock.wall
        self._addresses = addresses
        self._seconds = engine.settings.limits.verifier_seconds
        self._refused = KnownTokens(REFUSED_SECONDS)
        self._accepted: dict[int, None] = {}
        """Hashes of tokens that were accepted; not of the tokens' text alone, but with a secret of this process."""
        self._failures = LogRates(engine.clock.now())

    def remembered(self, request: RawRequest) -> Principal | None:
        """Return the principal of a request whose token was accepted recently; None: ask with `of`.

        A connection sends the same head again and again, so the head remembers its principal.
        """
        if self._known is None:
            return None
        known = request.known
        if known is None or known[1] <= self._wall():
            token = token_of(request.head)
            known = request.known = self._known(token) if token else None
        return None if known is None else known[0]

    async def of(self, request: RawRequest) -> Principal | Answer:
        """Return the principal of a request, or the refusal: 401, 503 if the verifier failed, 429 if there are too many."""
        if self._engine.rates.exhausted and (stormy := self._too_often_refused(request)) is not None:
            return stormy
        head = request.head
        token = token_of(head)
        if not token and self._with_request is None:
            return self._unauthorized(head)
        now = self._engine.clock.now()
        if token and self._refused.get(token, now) is not None:
            return self._unauthorized(head)
        try:
            async with asyncio.timeout(self._seconds):
                if self._with_request is not None:
                    principal = await self._with_request(token, AuthRequest(head, request.client or ""))
                else:
                    principal = await self._verifier(token)
            if principal is not None and not isinstance(principal, Principal):
                raise TypeError  # noqa: TRY301 - one way to fail for all that a verifier can do wrong
        except Exception as error:  # noqa: BLE001 - an author's code raises anything
            self._failed(type(error).__name__)
            return _UNVERIFIED
        if principal is None and self._with_request is None:
            self._refused.put(token, None, now)
        if principal is None or principal.is_over(self._engine.clock.wall()):
            return self._unauthorized(head)
        self._accepted[hash(token)] = None
        if len(self._accepted) > _ACCEPTED:
            del self._accepted[next(iter(self._accepted))]
        return principal

    def _too_often_refused(self, request: RawRequest) -> Answer | None:
        """Refuse an unknown token, without checking it, from an address whose requests were refused too often."""
        if self.has_accepted(request.head):
            return None
        over = self._engine.rates.over(counted(self._addresses.of(request)))
        return refused_unstarted(over) if over is not None else None

    def has_accepted(self, head: Head) -> bool:
        """True if the token of a request was accepted before: it is checked again even if its address had many refusals."""
        return hash(token_of(head)) in self._accepted

    def _failed(self, kind: str) -> None:
        held = self._failures.admit(kind, self._engine.clock.now())
        if held is not None:
            self._engine.observer.note("verifier.failed", error=kind, held_back=held)

    def _unauthorized(self, head: Head) -> Answer:
        return refuse(
            401,
            "Unauthorized: a valid bearer token is needed",
            extra=((b"www-authenticate", self._protection.challenge(head)),),
            audit="token",
        )


def token_of(head: Head) -> str:
    """Return the bearer token of a request; empty if it has none."""
    scheme, _, token = head.text(b"authorization").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
