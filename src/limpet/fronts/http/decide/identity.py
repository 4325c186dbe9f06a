"""Identity: the principal of a request, from its bearer token and the author's verifier.

A verifier is the author's code, and it handles a secret. Its exceptions may quote the token, so only the
type of the exception is logged; and it may hang, if the service behind it does, so it has a time limit.

A refused token is refused again for `REFUSED_SECONDS` without a call of the verifier: a client that repeats it must not
cause a request to the authorization server each time. A verifier that takes the request may decide otherwise for the
next request with the same token, so nothing is remembered for it.

From an address whose requests were refused too often, tokens are still checked: several clients may share the address,
and a valid token must pass. But only a few checks of unknown tokens run at once, by address and by the beginning of the
token (`Checks`), so that a storm of wrong tokens does not become a storm of requests to the authorization server. A
refused token then gets 429 instead of 401 (`HttpFront.reported`).

At most `_AT_ONCE` checks run at once. Further ones wait in turn by address, as long as a verifier may take: one address
with many new tokens does not use all the time of the authorization server.

A verifier that remembers accepted tokens itself may provide `known`. Then neither the verifier nor its time limit costs
anything for a token that it has accepted recently.
"""

import asyncio
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, cast
from weakref import ref

from limpet.auth import (
    AuthRequest,
    KnownPrincipal,
    Principal,
    TokenVerifier,
    Verifier,
    known_by,
    with_request,
)
from limpet.auth.known_tokens import REFUSED_SECONDS, KnownTokens, token_memories
from limpet.core.log_rates import LogRates
from limpet.engine.engine import Engine
from limpet.engine.slots import Slots
from limpet.errors import BUSY, LimpetError
from limpet.fronts.http.decide.protection import Protection
from limpet.fronts.http.read.addresses import Addresses, counted
from limpet.fronts.http.read.head import Head
from limpet.fronts.http.read.request import RawRequest
from limpet.fronts.http.write.answer import UNSTARTED, Answer, refuse, refused_unstarted, retry_after

_ACCEPTED: Final = 10_000
_ACCOUNT: Final = "known tokens"
"""It is no address, and no key of a principal."""
_AT_ONCE: Final = 256
"""Checks that run at the same time. Each may take a descriptor, and 64 KiB for the authorization server's answer."""
_CHECKS: Final = 8
"""Checks of unknown tokens that run at once for one address with too many refusals."""
_CHECKS_ALIKE: Final = 4
"""The same for tokens that begin alike."""
_ALIKE: Final = 8
"""Characters in which such tokens are equal. Wrong tokens are mostly equal there, as numbered ones are; a valid
token differs."""
_QUERY: Final = re.compile(r"\?\S+")
"""The query of a URL, which may have a secret."""
_UNVERIFIED: Final = refuse(
    503,
    "Service unavailable: the token cannot be checked now; try again",
    code=BUSY,
    extra=(retry_after(), UNSTARTED),
)


class Identities:
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
        for memory in (self._refused, *token_memories(verifier)):
            # Not the account itself: the ledger of an engine in a group changes when the group is made.
            memory.charge_to(lambda: engine.load.account(_ACCOUNT))
        self._accepted: dict[int, None] = {}
        """Hashes of tokens that were accepted; not of the tokens' text alone, but with a secret of this process."""
        self._checks = Checks()
        self._slots = Slots(_AT_ONCE, sys.maxsize)
        asked: str = getattr(verifier, "asked", "")
        self._servers: tuple[str, ...] = tuple(
            getattr(verifier, "authorization_servers", ()) or filter(None, (asked,))
        )
        self.trouble: str = ""
        """Why no token can be checked: the reason of the last check, if it has failed."""
        self._failures = LogRates(engine.clock.now())

    def remembered(self, request: RawRequest) -> Principal | None:
        """Return the principal of a request whose token was accepted recently; None: ask with `of`.

        A connection sends the same head again and again, so the head remembers its principal; not the claims, which the
        verifier keeps and may forget (`KnownTokens`).
        """
        if self._known is None:
            return None
        known = request.known
        if known is not None and known[1] > self._wall() and (principal := known[0]()) is not None:
            return principal
        token = token_of(request.head)
        found = self._known(token) if token else None
        if found is None:
            request.known = None
            return None
        request.known = (ref(found[0]), found[1])
        return found[0]

    async def of(self, request: RawRequest) -> Principal | Answer:
        """Return the principal of a request, or the refusal: 401, 503 if the verifier failed, 429 if too many."""
        if not self._engine.rates.exhausted or self.has_accepted(request.head):
            return await self._check(request)
        address = counted(self._addresses.of(request))
        over = self._engine.rates.over(address)
        if over is None:
            return await self._check(request)
        with self._checks.one(address, token_of(request.head)) as may_run:
            return await self._check(request) if may_run else refused_unstarted(over)

    async def _check(self, request: RawRequest) -> Principal | Answer:
        head = request.head
        token = token_of(head)
        if not token and self._with_request is None:
            return self._unauthorized(head)
        now = self._engine.clock.now()
        if token and self._refused.get(token, now) is not None:
            return self._unauthorized(head)
        try:
            async with asyncio.timeout(self._seconds):
                principal = await self._verify(token, request)
            if principal is not None and not isinstance(principal, Principal):
                raise TypeError  # noqa: TRY301 - one way to fail for all that a verifier can do wrong
        except Exception as error:  # noqa: BLE001 - an author's code raises anything
            self._note_failure(error)
            return _UNVERIFIED
        self.trouble = ""
        if principal is None and self._with_request is None:
            self._refused.put(token, None, now)
        if principal is None or principal.is_over(self._engine.clock.wall()):
            return self._unauthorized(head)
        self._accepted[hash(token)] = None
        if len(self._accepted) > _ACCEPTED:
            del self._accepted[next(iter(self._accepted))]
        return principal

    async def _verify(self, token: str, request: RawRequest) -> Principal | None:
        """Ask the verifier, when it is the turn of the request's address."""
        address = counted(self._addresses.of(request))
        await self._slots.take(address)
        try:
            if self._with_request is not None:
                return await self._with_request(token, AuthRequest(request.head, request.client or ""))
            return await self._verifier(token)
        finally:
            self._slots.release(address)

    def has_accepted(self, head: Head) -> bool:
        """True if the token of a request was accepted before: it is not limited, despite refusals of its address."""
        return hash(token_of(head)) in self._accepted

    def _note_failure(self, error: Exception) -> None:
        """Log the type of an author's error.

        The text of ours names the authorization server and the reason, and no token.
        """
        kind = type(error).__name__
        self.trouble = ", ".join(self._servers) or kind
        held = self._failures.admit(kind, self._engine.clock.now())
        if held is None:
            return
        facts = {"authorization_server": ", ".join(self._servers)} if self._servers else {}
        if self._servers and isinstance(error, LimpetError):
            facts["reason"] = _QUERY.sub("?…", str(error))
        self._engine.observer.note("verifier.failed", error=kind, **facts, held_back=held)

    def _unauthorized(self, head: Head) -> Answer:
        return refuse(
            401,
            "Unauthorized: a valid bearer token is needed",
            extra=((b"www-authenticate", self._protection.challenge(head)),),
            audit="token",
        )


class Checks:
    """The checks that run for addresses with too many refusals."""

    def __init__(self) -> None:
        self._running: Counter[tuple[str, str]] = Counter()
        """By address, and by address and the beginning of the token."""

    @contextmanager
    def one(self, address: str, token: str) -> Iterator[bool]:
        """Return whether a token may be checked, and count it while the block runs."""
        every, alike = (address, ""), (address, f"={token[:_ALIKE]}")
        running = self._running
        if running[every] >= _CHECKS or running[alike] >= _CHECKS_ALIKE:
            yield False
            return
        running.update((every, alike))
        try:
            yield True
        finally:
            for key in (every, alike):
                running[key] -= 1
                if not running[key]:
                    del running[key]


def token_of(head: Head) -> str:
    """Return the bearer token of a request; empty if it has none."""
    scheme, _, token = head.text(b"authorization").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
