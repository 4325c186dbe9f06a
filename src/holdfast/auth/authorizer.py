"""What a client shows of itself with each HTTP request, and what it does when that is not enough.

The client asks before every request and tells of every refusal; it neither reads nor keeps
credentials. Whatever an authorizer returns is sent to the URL it was asked for and to no other
origin: a client never follows a redirect with credentials.
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
    """The refusal's headers by lower-case name; one may come several times (`www-authenticate`)."""
    sent: Mapping[str, str]
    """The headers that the authorizer had given for the refused request."""
    attempt: int
    """How often this request has been refused, from 1."""


class Authorizer(Protocol):
    """Gives credentials. Called by many requests at once: renewing them once for all is its business."""

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the headers to add to a request (`authorization`, and whatever goes with it)."""
        ...

    async def challenged(self, challenge: Challenge) -> bool:
        """Take a refusal. True: ask for headers again and repeat the request; False: it has failed.

        Raises:
            HoldfastError: it has failed, for a reason worth telling the caller.
        """
        ...


Token = str | Callable[[], Awaitable[str] | str]
"""A bearer token, or what gives the present one."""


class Bearer:
    """A fixed token, or a provider that is asked before every request."""

    def __init__(self, token: Token) -> None:
        self._token = token

    def __repr__(self) -> str:
        return "<Bearer>"

    async def headers(self, method: str, url: str) -> Mapping[str, str]:  # noqa: ARG002 - one token for all
        """Return the token's header."""
        return {"authorization": f"Bearer {await self._present()}"}

    async def challenged(self, challenge: Challenge) -> bool:
        """Try once more if the provider has another token by now."""
        if challenge.attempt > 1 or isinstance(self._token, str):
            return False
        return challenge.sent != await self.headers(challenge.method, challenge.url)

    async def _present(self) -> str:
        if isinstance(self._token, str):
            return self._token
        token = self._token()
        return await token if inspect.isawaitable(token) else token
