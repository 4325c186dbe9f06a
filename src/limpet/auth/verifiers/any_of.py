"""Several verifiers: the first one that accepts a request decides.

`AnyOf` takes the request, because one of its verifiers may. So the front does not remember its refused tokens, and
`AnyOf` does: verifiers that take only the token are not asked again for a short time.
"""

from limpet.auth import (
    AuthRequest,
    Principal,
    RequestVerifier,
    TokenVerifier,
    Verifier,
    known_by,
    with_request,
)
from limpet.auth.known_tokens import REFUSED_SECONDS, KnownTokens, token_memories
from limpet.errors import ConfigError
from limpet.ports import Clock, SystemClock


class AnyOf:
    """Asks verifiers in order. A verifier that fails does not stop the next one; a verifier that waits delays it.

    Begin with verifiers that need no network.
    """

    def __init__(self, *verifiers: Verifier, clock: Clock | None = None) -> None:
        """Take the verifiers, in the order in which they are asked. `clock` is for tests.

        Raises:
            ConfigError: no verifier was given, or one takes neither the token nor the token and the request.
        """
        if not verifiers:
            raise ConfigError("AnyOf needs at least one verifier")
        self.authorization_servers: tuple[str, ...] = tuple(
            dict.fromkeys(
                server for verifier in verifiers for server in getattr(verifier, "authorization_servers", ())
            )
        )
        """The servers that give tokens for one of the verifiers."""
        self.resource: str = next(
            filter(None, (getattr(verifier, "resource", "") for verifier in verifiers)), ""
        )
        """The URL of the endpoint, as the first verifier that knows it names it."""
        self._verifiers: list[tuple[Verifier, RequestVerifier | None]] = [
            (verifier, with_request(verifier)) for verifier in verifiers
        ]
        self._clock = clock or SystemClock()
        self._refused = KnownTokens(REFUSED_SECONDS)
        self.memories: tuple[KnownTokens, ...] = (
            self._refused,
            *(memory for verifier in verifiers for memory in token_memories(verifier)),
        )
        """What is remembered of tokens."""

    def __repr__(self) -> str:
        return f"<AnyOf {', '.join(repr(verifier) for verifier, _ in self._verifiers)}>"

    def known(self, token: str) -> tuple[Principal, float] | None:
        """Return the principal that a verifier has accepted recently.

        A verifier that must be asked each time ends the search.
        """
        for verifier, _ in self._verifiers:
            known = known_by(verifier)
            if known is None:
                return None
            if (found := known(token)) is not None:
                return found
        return None

    async def __call__(self, token: str, request: AuthRequest) -> Principal | None:
        """Return the principal of the first verifier that accepts; None if all of them refuse.

        Raises:
            Exception: no verifier accepts, and this one failed: its answer is not known.
        """
        failure: Exception | None = None
        now = self._clock.now()
        is_asked = bool(token) and self._refused.get(token, now) is None
        for verifier, requested in self._verifiers:
            if requested is None and not is_asked:
                continue
            try:
                found = await _ask(verifier, requested, token, request)
            except Exception as error:  # noqa: BLE001 - an author's code; it is raised if no other one accepts
                failure = failure or error
                continue
            if found is not None:
                return found
        if failure is not None:
            raise failure
        if is_asked:
            self._refused.put(token, None, now)
        return None


async def _ask(
    verifier: Verifier, requested: RequestVerifier | None, token: str, request: AuthRequest
) -> Principal | None:
    if requested is not None:
        return await requested(token, request)
    plain: TokenVerifier = verifier  # type: ignore[assignment]
    return await plain(token)
