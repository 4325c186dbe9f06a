"""The data that sessions and handles of a principal keep besides streams and tasks: how it is counted, and its limit.

The limits of one session or handle (`state_bytes`, `subscription_bytes`) bound little where a principal has a
thousand sessions, so `Limits.principal_kept_bytes` bounds all of it together. It counts

* the fields of state, names and values, of sessions, of handles and of the principal itself;
* the URIs of subscriptions;
* `ENTRY_BYTES` for each field and each subscription, because a short one costs a store much more than its bytes.

Anonymous clients are one principal. A change that keeps no more than before is never refused.
"""

from collections import Counter
from typing import Final

from holdfast.config import Limits
from holdfast.errors import StateError

ENTRY_BYTES: Final = 256
"""The cost of an entry of a table besides its name and value; the same in `redis/lua/kept.lua`."""


def growth(before: int | None, after: int | None) -> int:
    """Return the change of the kept bytes when the size of an entry changes; None: there is no entry."""
    return (0 if after is None else ENTRY_BYTES + after) - (0 if before is None else ENTRY_BYTES + before)


def too_much(field: str, limits: Limits) -> StateError:
    """Return the error for a field for which there is no room."""
    return StateError(
        f"everything that one principal keeps is limited to {limits.principal_kept_bytes} bytes; {field!r} would exceed it"
    )


class Kept:
    """The totals of all principals, in the memory of one process."""

    def __init__(self, limits: Limits) -> None:
        self._most = limits.principal_kept_bytes
        self._bytes: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<Kept {self.bytes} bytes of {len(self._bytes)} principals>"

    @property
    def bytes(self) -> int:
        """The kept bytes of all principals."""
        return self._bytes.total()

    def clear(self) -> None:
        """Forget all of them."""
        self._bytes.clear()

    def spare(self, principal: str) -> int:
        """Return the bytes that a principal may still add."""
        return self._most - self._bytes.get(principal, 0)

    def add(self, principal: str, change: int) -> bool:
        """Count a change. False, and nothing is counted, if it would exceed the limit."""
        total = self._bytes[principal] + change
        if change > 0 and total > self._most:
            return False
        if total:
            self._bytes[principal] = total
        else:
            self._bytes.pop(principal, None)
        return True
