"""Results as 2026-07-28 has them: each names its type and its server, and lists say how long they may be kept."""

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from holdfast.protocol.modern import SERVER_KEY
from holdfast.protocol.types import Implementation, Result
from holdfast.wire.jsonrpc import encode

CACHEABLE: Final = frozenset(
    {
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    }
)
"""The methods whose results must carry caching hints."""


class CacheHint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How long a result stays fresh, and whether it may be shared between users."""

    ttl_ms: int = 0
    cache_scope: str = "private"


class ModernResults:
    """Encodes a server's results. What they have in common is encoded once, not with each."""

    def __init__(self, info: Implementation, hints: dict[str, CacheHint] | None = None) -> None:
        self._info = msgspec.to_builtins(info)
        self._hints = hints or {}
        self._prefixes: dict[str, bytes] = {}

    def encode(self, method: str, result: Result) -> bytes:
        """Return the result of a method, complete."""
        if result.meta is not None:
            result = replace(result, meta={SERVER_KEY: self._info, **result.meta})
            return _joined(encode({"resultType": "complete", **self._hint(method)}), encode(result))
        prefix = self._prefixes.get(method)
        if prefix is None:
            common = {"resultType": "complete", **self._hint(method), "_meta": {SERVER_KEY: self._info}}
            prefix = self._prefixes[method] = encode(common)
        return _joined(prefix, encode(result))

    def _hint(self, method: str) -> dict[str, Any]:
        if method not in CACHEABLE:
            return {}
        hint: dict[str, Any] = msgspec.to_builtins(self._hints.get(method, CacheHint()))
        return hint


def _joined(first: bytes, second: bytes) -> bytes:
    """Return two encoded objects as one."""
    return first if second == b"{}" else first[:-1] + b"," + second[1:]
