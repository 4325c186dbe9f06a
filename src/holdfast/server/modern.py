"""Results as 2026-07-28 has them: each names its type and its server, and what may be kept says for how long."""

from typing import Final

import msgspec
from msgspec.structs import replace

from holdfast.protocol.modern import SERVER_KEY
from holdfast.protocol.tasks import CreateTaskResult
from holdfast.protocol.types import CacheableResult, Implementation, InputRequiredResult, Result
from holdfast.server.caching import NOT_KEPT
from holdfast.wire.jsonrpc import encode

_TYPES: Final[dict[type[Result], str]] = {InputRequiredResult: "input_required", CreateTaskResult: "task"}
"""What a result of each kind calls itself; all others are complete."""


class ModernResults:
    """Encodes a server's results. What they have in common is encoded once, not with each."""

    def __init__(self, info: Implementation) -> None:
        self._info = msgspec.to_builtins(info)
        self._prefixes: dict[str, bytes] = {}

    def encode(self, result: Result) -> bytes:
        """Return a result, complete."""
        kind = _TYPES.get(type(result), "complete")
        if isinstance(result, CacheableResult):
            # Only a result that an author's middleware made has no hint yet.
            result = NOT_KEPT.on(result, "private")
        if result.meta is not None:
            result = replace(result, meta={SERVER_KEY: self._info, **result.meta})
            return _joined(encode({"resultType": kind})[:-1], encode(result))
        prefix = self._prefixes.get(kind)
        if prefix is None:
            prefix = encode({"resultType": kind, "_meta": {SERVER_KEY: self._info}})[:-1]
            self._prefixes[kind] = prefix
        return _joined(prefix, encode(result))


def _joined(prefix: bytes, second: bytes) -> bytes:
    """Return two encoded objects as one; the first without its closing brace."""
    return prefix + (b"}" if second == b"{}" else b"," + second[1:])
