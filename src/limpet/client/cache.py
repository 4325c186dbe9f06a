"""Results that are cached as long as the server allows (`ttlMs`). Pure: the time is passed in.

A result is found only by the same method and the same parameters. A notification that it has changed removes it.
"""

import sys
from collections import OrderedDict
from typing import Any

from limpet.protocol.sessionless import CACHEABLE
from limpet.protocol.subscriptions import LISTS, REPORTED
from limpet.wire.jsonrpc import encode
from limpet.wire.shape import counted_cost

Key = tuple[str, bytes]


def cache_key(method: str, params: dict[str, Any]) -> Key | None:
    """Return the key of a request's result; None if the result may not be cached."""
    if method not in CACHEABLE or "inputResponses" in params or "requestState" in params:
        return None
    return method, encode({name: value for name, value in sorted(params.items()) if name != "_meta"})


def memory_of(value: object) -> int:
    """Estimate the memory of a decoded value of the server."""
    return counted_cost(encode(value), sys.maxsize)


class ResultCache:
    """Results, limited in number and memory; the least recently used is removed first."""

    __slots__ = ("_bytes", "_capacity", "_kept", "_most_bytes")

    def __init__(self, capacity: int, most_bytes: int) -> None:
        self._capacity = capacity
        self._most_bytes = most_bytes
        self._kept: OrderedDict[Key, tuple[float, Any, int]] = OrderedDict()
        """The date until which each is fresh, the result, and its memory."""
        self._bytes = 0

    def find(self, key: Key, now: float) -> Any:
        """Return the result of a key if it is fresh, else None."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        if now >= kept[0]:
            self._remove(key)
            return None
        self._kept.move_to_end(key)
        return kept[1]

    def keep(self, key: Key, result: Any, now: float) -> None:
        """Cache a result for its `ttlMs`; not at all if that is missing or not positive."""
        self._remove(key)
        fresh_ms = result.get("ttlMs") if isinstance(result, dict) else 0
        if not isinstance(fresh_ms, int | float) or fresh_ms <= 0:
            return
        size = memory_of(result)
        self._kept[key] = (now + fresh_ms / 1_000, result, size)
        self._bytes += size
        while len(self._kept) > self._capacity or self._bytes > self._most_bytes:
            self._remove(next(iter(self._kept)))

    def invalidate(self, method: str, params: dict[str, Any]) -> None:
        """Remove the results that a notification reports as changed."""
        kind = REPORTED.get(method)
        if kind == "resource":
            uri = params.get("uri")
            self._drop(lambda key: key[0] == "resources/read" and key[1] == encode({"uri": uri}))
        elif kind is not None:
            self._drop(lambda key: LISTS.get(key[0]) == kind)

    def clear(self) -> None:
        """Remove everything."""
        self._kept.clear()
        self._bytes = 0

    def _remove(self, key: Key) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._bytes -= kept[2]

    def _drop(self, is_stale: Any) -> None:
        for key in [key for key in self._kept if is_stale(key)]:
            self._remove(key)
