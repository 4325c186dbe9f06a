"""Credentials for a client's HTTP requests.

The client asks its authorizer for headers before every request, and reports every refusal to it; it neither reads nor
stores credentials. The headers are sent to the URL that they were requested for and to no other origin: a client never
follows a redirect with credentials.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from msgspec import Struct


class Challenge(Struct, frozen=True, kw_only=True):
    """A request that was refused with 401 or 403."""

    method: str
    url: str
    status: int
    headers: Mapping[str, tuple[str, ...]]
    """The headers of the refusal by lower-case name; `www-authenticate` may have several values."""
    sent: Mapping[str, str]
    """The headers that the authorizer returned for the refused request."""
    attempt: int
    """How often this request has been refused, starting with 1."""


class Authorizer(Protocol):
    """Returns credentials. Many requests call it at once; it must renew credentials once for all of them."""

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the headers to add to a request: `authorization` and those that belong to it."""

    async def challenged(self, challenge: Challenge) -> bool:
        """Handle a refusal. True: call `headers` again and repeat the request; False: the request has failed.

        Raises:
            LimpetError: the request has failed; the caller receives this error.
        """


Token = str | Callable[[], Awaitable[str] | str]
"""A bearer token, or a function that returns the current one."""


class Bearer:
    """A fixed token, or a function that is called before every request."""

    def __init__(self, token: Token) -> None:
        self._token = token

    async def headers(self, method: str, url: str) -> Mapping[str, str]:  # noqa: ARG002 - one token for all
        return {"authorization": f"Bearer {await self._present()}"}

    async def challenged(self, challenge: Challenge) -> bool:
        """Try once more if the function returns another token now."""
        if challenge.attempt > 1 or isinstance(self._token, str):
            return False
        return challenge.sent != await self.headers(challenge.method, challenge.url)

    async def _present(self) -> str:
        if isinstance(self._token, str):
            return self._token
        token = self._token()
        return await token if inspect.isawaitable(token) else token


def authorizer_of(auth: Token | Authorizer | None) -> Authorizer | None:
    """Return the authorizer of a token, or the given one."""
    return Bearer(auth) if isinstance(auth, str) or callable(auth) else auth
