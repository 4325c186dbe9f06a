"""How long clients of 2026-07-28 may keep what they were told, and who may share it.

Nothing stays fresh unless the author says so. What is the same for everybody may be shared:
lists that nobody guards, filters or shows to some principals only. A resource's contents are
the reader's own unless the author says otherwise.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import ConfigError
from holdfast.protocol.sessionless import CACHEABLE
from holdfast.protocol.types import CacheableResult

Scope = Literal["public", "private"]
R = TypeVar("R", bound=CacheableResult)


class Cache(Struct, frozen=True, kw_only=True):
    """A caching hint. Without a `scope` the server chooses: private where callers may be told different things."""

    ttl: float = 0.0
    """Seconds a result stays fresh."""
    scope: Scope | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.ttl < float("inf"):
            raise ConfigError(f"ttl={self.ttl!r} is no time to keep something: give seconds, 0 or more")
        if self.scope not in (None, "public", "private"):
            raise ConfigError(f"scope={self.scope!r}: a result is public or private")

    def on(self, result: R, scope: Scope) -> R:
        """Return a result with this hint; what it says of itself stays."""
        if result.ttl_ms is not None:
            return result
        return replace(result, ttl_ms=int(self.ttl * 1000), cache_scope=self.scope or scope)


NOT_KEPT: Final = Cache()
CacheSettings = Cache | Mapping[str, Cache]
"""One hint for everything, or hints by method (`{"tools/list": Cache(ttl=300)}`)."""


def by_method(cache: CacheSettings | None) -> dict[str, Cache]:
    """Return the hint of each method.

    Raises:
        ConfigError: a method's results carry no hints.
    """
    if cache is None or isinstance(cache, Cache):
        return dict.fromkeys(CACHEABLE, cache or NOT_KEPT)
    unknown = cache.keys() - CACHEABLE
    if unknown:
        raise ConfigError(
            f"cache: {', '.join(sorted(unknown))} carries no hint; {', '.join(sorted(CACHEABLE))} do"
        )
    return {method: cache.get(method, NOT_KEPT) for method in CACHEABLE}
