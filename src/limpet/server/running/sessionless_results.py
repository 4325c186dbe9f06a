"""Results in the form of 2026-07-28: each has its type and the server's name; a cacheable one has its lifetime."""

from typing import Final

import msgspec
from msgspec.structs import replace

from limpet.protocol.sessionless import SERVER_KEY, typed_result
from limpet.protocol.types import CacheableResult, Implementation, InputRequiredResult, Result
from limpet.server.authoring.caching import NOT_KEPT
from limpet.wire.jsonrpc import encode

_COMPLETE: Final = "complete"
_TYPES: Final[dict[type[Result], str]] = {InputRequiredResult: "input_required"}
"""The `resultType` of each kind of result; all others are `complete`."""


class SessionlessResults:
    """Encodes a server's results. The members that all of them share are encoded once, in advance."""

    def __init__(self, info: Implementation) -> None:
        self._info = msgspec.to_builtins(info)
        self._complete = self._prefix(_COMPLETE)
        self._prefixes = {type_: self._prefix(kind) for type_, kind in _TYPES.items()}

    def _prefix(self, kind: str) -> bytes:
        return _opening(typed_result(kind, self._info, {}))

    def encode(self, result: Result) -> bytes:
        """Encode a result with its type, its server and its caching."""
        if isinstance(result, CacheableResult):
            # Only a result that an author's middleware made has no caching members yet.
            result = NOT_KEPT.on(result, "private")
        prefix = self._prefixes.get(type(result), self._complete)
        if result.meta is not None:
            kind = _TYPES.get(type(result), _COMPLETE)
            result = replace(result, meta={SERVER_KEY: self._info, **result.meta})
            prefix = _opening({"resultType": kind})
        body = encode(result)
        return prefix + (b"}" if body == b"{}" else b"," + body[1:])


def _opening(members: dict[str, object]) -> bytes:
    """Return an object that is not closed yet."""
    return encode(members)[:-1]
