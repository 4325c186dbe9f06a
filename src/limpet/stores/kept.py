"""The sums of what principals keep besides streams and tasks, in the memory of one process.

Anonymous clients are one principal. The rule is in `limpet.core.rules.state`.
"""

import sys
from collections import Counter
from typing import Final

from limpet.config import Limits
from limpet.core.ledger import Charge, Ledger, encoded

_ANONYMOUS: Final = "anonymous"
"""The account of anonymous clients. It is no address, and no key of a principal."""


class Charged:
    """The memory that principals use of a store in this process, in the ledger of the process.

    Anonymous clients are one principal.
    """

    def __init__(self) -> None:
        self.ledger: Ledger | None = None
        """None: the engine has not given the store its ledger."""
        self._charges: dict[str, Charge] = {}

    def __repr__(self) -> str:
        return f"<Charged of {len(self._charges)} principals>"

    def room(self, principal: str) -> int:
        """Return the bytes that a principal may still take."""
        if self.ledger is None:
            return sys.maxsize
        return self.ledger.account(principal or _ANONYMOUS).room * 2 // 3

    def set(self, principal: str, size: int) -> None:
        """Charge a principal with so many bytes in all."""
        if not size:
            self._charges.pop(principal, None)
        elif self.ledger is not None:
            if principal not in self._charges:
                self._charges[principal] = self.ledger.account(principal or _ANONYMOUS).open()
            self._charges[principal].set(encoded(size))

    def clear(self) -> None:
        """Free all bytes."""
        self._charges.clear()


class Kept:
    """The totals of all principals, in the memory of one process."""

    def __init__(self, limits: Limits) -> None:
        self._most = limits.principal_kept_bytes
        self._bytes: Counter[str] = Counter()
        self.charged: Charged = Charged()

    def __repr__(self) -> str:
        return f"<Kept {self.bytes} bytes of {len(self._bytes)} principals>"

    @property
    def bytes(self) -> int:
        """The kept bytes of all principals."""
        return self._bytes.total()

    def clear(self) -> None:
        """Forget all of them."""
        self._bytes.clear()
        self.charged.clear()

    def spare(self, principal: str) -> int:
        """Return the bytes that a principal may still add."""
        return min(self._most - self._bytes.get(principal, 0), self.charged.room(principal))

    def add(self, principal: str, change: int) -> bool:
        """Count a change. False, and nothing is counted, if it would exceed the limit."""
        if change > 0 and change > self.spare(principal):
            return False
        total = self._bytes[principal] + change
        self.charged.set(principal, total)
        if total:
            self._bytes[principal] = total
        else:
            self._bytes.pop(principal, None)
        return True
