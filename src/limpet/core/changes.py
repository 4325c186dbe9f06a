"""The changes that wait for one client, as a set. Pure.

A change says "this list has changed" or "this resource has changed", so two equal changes that wait are one: the client
reads the list or the resource after it has received the message. So the set is bounded by what a client can ask for,
and no change has to be dropped. Sessions and the listeners of 2026-07-28 use the same set.
"""

from itertools import islice

from limpet.protocol.subscriptions import Change, Key
from limpet.wire.jsonrpc import encode


class ChangeSet:
    """The newest change of each key, in the order in which the keys first came."""

    __slots__ = ("_bytes", "_limit", "_most_bytes", "_waiting")

    def __init__(self, limit: int, most_bytes: int | None = None) -> None:
        self._limit = limit
        self._most_bytes = most_bytes
        self._bytes = 0
        self._waiting: dict[Key, Change] = {}

    def __repr__(self) -> str:
        return f"<ChangeSet {len(self)}/{self._limit}>"

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, change: Change) -> bool:
        """Add a change. False: there is no room for it, and the set stays as it was."""
        before = self._waiting.get(change.key)
        if before is None and len(self._waiting) >= self._limit:
            return False
        if self._most_bytes is not None:
            size = self._bytes + _size(change) - (0 if before is None else _size(before))
            if size > self._most_bytes:
                return False
            self._bytes = size
        self._waiting[change.key] = change
        return True

    def take(self, most: int | None = None) -> list[Change]:
        """Return the oldest changes and forget them. An equal change that comes later is a new one."""
        taken = list(islice(self._waiting.values(), most))
        for change in taken:
            del self._waiting[change.key]
            self._bytes -= _size(change) if self._most_bytes is not None else 0
        return taken


def _size(change: Change) -> int:
    return len(change.name.encode()) + (len(encode(change.detail)) if change.detail else 0)
