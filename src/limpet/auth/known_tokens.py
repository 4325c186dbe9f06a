"""Principals of tokens that were checked recently, by the token's hash. A token itself is never kept.

The claims of a principal may take much more memory than its token, so the entries are limited in number and in bytes.
In a server the bytes are charged to its ledger (`charge_to`). Nothing else keeps a principal for longer than a request:
who remembers one beside this table keeps a weak reference.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, Final, NamedTuple

from limpet.auth import Principal
from limpet.core.ledger import Account, Charge

MOST: Final = 10_000
MOST_BYTES: Final = 16 * 1024 * 1024
ENTRY_BYTES: Final = 512
"""About the memory of an entry besides its claims."""
REFUSED_SECONDS: Final = 10.0
"""How long a refused token is refused again without a check: a client that repeats it must cost nothing."""


class _Entry(NamedTuple):
    until: float
    principal: Principal | None
    size: int


class KnownTokens:
    """A bounded memory: the token that was used least recently is forgotten first."""

    __slots__ = ("_account", "_bytes", "_charge", "_known", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._known: OrderedDict[bytes, _Entry] = OrderedDict()
        self._bytes = 0
        self._account: Callable[[], Account] | None = None
        self._charge: Charge | None = None

    def __len__(self) -> int:
        return len(self._known)

    def charge_to(self, account: Callable[[], Account]) -> None:
        """Charge the memory to an account; the function returns it when the first token is remembered."""
        self._account = account

    def get(self, token: str, now: float) -> tuple[Principal | None] | None:
        """Return a tuple with the token's verdict; None if the token is unknown or the verdict is too old."""
        name = _name(token)
        found = self._known.get(name)
        if found is None:
            return None
        if found.until <= now:
            self._forget(name)
            return None
        self._known.move_to_end(name)
        return (found.principal,)

    def accepted(self, token: str, now: float) -> tuple[Principal, float] | None:
        """Return the principal of a token, and the date until which it counts.

        None if it is not known or was refused.
        """
        found = self._known.get(_name(token))
        if found is None or found.principal is None or found.until <= now:
            return None
        return found.principal, found.until

    def put(self, token: str, principal: Principal | None, now: float, claims: int = 0) -> None:
        """Remember the verdict: None if the token was refused. A principal is forgotten when it expires.

        `claims`: the memory that they take.
        """
        until = now + self._seconds
        if principal is not None and principal.expires is not None:
            until = min(until, principal.expires)
        name = _name(token)
        self._forget(name)
        self._known[name] = _Entry(until, principal, ENTRY_BYTES + claims)
        self._bytes += ENTRY_BYTES + claims
        if self._charge is None and self._account is not None:
            self._charge = self._account().open()
        while self._known and not self._fits():
            self._forget(next(iter(self._known)))
        if self._charge is not None:
            self._charge.set(self._bytes)

    def _fits(self) -> bool:
        if len(self._known) > MOST or self._bytes > MOST_BYTES:
            return False
        charge = self._charge
        return charge is None or self._bytes - charge.size <= max(0, charge.account.room)

    def _forget(self, name: bytes) -> None:
        entry = self._known.pop(name, None)
        if entry is not None:
            self._bytes -= entry.size


def token_memories(verifier: object) -> Iterator[KnownTokens]:
    """Yield what a verifier remembers of tokens; those of this package have the attribute `memories`."""
    memories: Any = getattr(verifier, "memories", ())
    if isinstance(memories, tuple):
        yield from (one for one in memories if isinstance(one, KnownTokens))


def _name(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
