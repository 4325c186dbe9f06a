"""Principals of tokens that were checked recently, by the token's hash. A token itself is never kept."""

from collections import OrderedDict
from hashlib import sha256
from typing import Final

from holdfast.auth import Principal

MOST: Final = 10_000
REFUSED_SECONDS: Final = 10.0
"""How long a refused token is refused again without a check: a client that repeats it must cost nothing."""


class KnownTokens:
    """A bounded memory: the token that was used least recently is forgotten first."""

    __slots__ = ("_known", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._known: OrderedDict[bytes, tuple[float, Principal | None]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<KnownTokens {len(self)}>"

    def __len__(self) -> int:
        return len(self._known)

    def get(self, token: str, now: float) -> tuple[Principal | None] | None:
        """Return a tuple with the token's verdict; None if the token is unknown or the verdict is too old."""
        name = _name(token)
        found = self._known.get(name)
        if found is None:
            return None
        if found[0] <= now:
            del self._known[name]
            return None
        self._known.move_to_end(name)
        return (found[1],)

    def accepted(self, token: str, now: float) -> tuple[Principal, float] | None:
        """Return the principal of a token, and the date until which it counts.

        None if it is not known or was refused.
        """
        found = self._known.get(_name(token))
        if found is None or found[1] is None or found[0] <= now:
            return None
        return found[1], found[0]

    def put(self, token: str, principal: Principal | None, now: float) -> None:
        """Remember the verdict: None if the token was refused. A principal is forgotten when it expires."""
        until = now + self._seconds
        if principal is not None and principal.expires is not None:
            until = min(until, principal.expires)
        self._known[_name(token)] = (until, principal)
        if len(self._known) > MOST:
            self._known.popitem(last=False)


def _name(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
