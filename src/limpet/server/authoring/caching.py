"""Caching hints for clients of 2026-07-28: how long they may keep a result, and whether users may share it.

Without a hint a result is stale at once. A list may be shared if every caller gets the same list: no verifier, no
middleware, and no component that only some principals see. The contents of a resource are private unless the
author declares them public.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from limpet.errors import ConfigError
from limpet.protocol.sessionless import CACHEABLE
from limpet.protocol.types import CacheableResult

Scope = Literal["public", "private"]
R = TypeVar("R", bound=CacheableResult)


class Cache(Struct, frozen=True, kw_only=True):
    """A caching hint. Without a `scope`, a result is private if callers may get different results.

    Raises:
        ConfigError: `ttl` or `scope` is invalid.
    """

    ttl: float = 0.0
    """How many seconds a result stays fresh."""
    scope: Scope | None = None
    """`public` if all users may share the result, else `private`."""

    def __post_init__(self) -> None:
        if not 0 <= self.ttl < float("inf"):
            raise ConfigError(f"ttl={self.ttl!r} is invalid: give seconds, 0 or more")
        if self.scope not in (None, "public", "private"):
            raise ConfigError(f"scope={self.scope!r}: a result is public or private")

    def on(self, result: R, scope: Scope) -> R:
        """Return a result with this hint; a hint that the result has already stays."""
        if result.ttl_ms is not None:
            return result
        return replace(result, ttl_ms=int(self.ttl * 1000), cache_scope=self.scope or scope)


NOT_KEPT: Final = Cache()
CacheSettings = Cache | Mapping[str, Cache]
"""One hint for all methods, or hints by method (`{"tools/list": Cache(ttl=300)}`)."""


def by_method(cache: CacheSettings | None) -> dict[str, Cache]:
    """Return the hint of each method.

    Raises:
        ConfigError: the results of a method have no caching hint in the specification.
    """
    if cache is None or isinstance(cache, Cache):
        return dict.fromkeys(CACHEABLE, cache or NOT_KEPT)
    unknown = cache.keys() - CACHEABLE
    if unknown:
        raise ConfigError(
            f"cache: {', '.join(sorted(unknown))} carries no hint; {', '.join(sorted(CACHEABLE))} do"
        )
    return {method: cache.get(method, NOT_KEPT) for method in CACHEABLE}
