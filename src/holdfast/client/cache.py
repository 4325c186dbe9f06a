"""Results that are cached as long as the server allows (`ttlMs`). Pure: the time is passed in.

A result is found only by the same method and the same parameters. A notification that it has changed removes it.
"""

from collections import OrderedDict
from typing import Any

from holdfast.protocol.sessionless import CACHEABLE
from holdfast.protocol.subscriptions import LISTS, REPORTED
from holdfast.wire.jsonrpc import encode

Key = tuple[str, bytes]


def cache_key(method: str, params: dict[str, Any]) -> Key | None:
    """Return the key of a request's result; None if the result may not be cached."""
    if method not in CACHEABLE or "inputResponses" in params or "requestState" in params:
        return None
    return method, encode({name: value for name, value in sorted(params.items()) if name != "_meta"})


class ResultCache:
    """A limited number of results; the least recently used is removed first."""

    __slots__ = ("_capacity", "_kept")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[Key, tuple[float, Any]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Cache {len(self._kept)}/{self._capacity}>"

    def find(self, key: Key, now: float) -> Any:
        """Return the result of a key if it is fresh, else None."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        if now >= kept[0]:
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return kept[1]

    def keep(self, key: Key, result: Any, now: float) -> None:
        """Cache a result for its `ttlMs`; not at all if that is missing or not positive."""
        fresh_ms = result.get("ttlMs") if isinstance(result, dict) else 0
        if not isinstance(fresh_ms, int | float) or fresh_ms <= 0:
            self._kept.pop(key, None)
            return
        self._kept[key] = (now + fresh_ms / 1_000, result)
        self._kept.move_to_end(key)
        if len(self._kept) > self._capacity:
            self._kept.popitem(last=False)

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

    def _drop(self, is_stale: Any) -> None:
        for key in [key for key in self._kept if is_stale(key)]:
            del self._kept[key]
