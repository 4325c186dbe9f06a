"""A request as it travels through the store to another replica: to be run there, or to be run again.

Both ways begin with `encode_forwarded`, the only place that decides what of a caller is written to the store.
A header that can carry a credential is left out, by the words in its name, since a reader of the store
must not be able to act as the caller. Other headers travel: a handler sees the same `X-Tenant` wherever it runs.
"""

import re
from typing import Final

import msgspec
from msgspec import Struct

from holdfast.auth import Principal
from holdfast.engine.exchange import Caller
from holdfast.wire.jsonrpc import Request, encode

_SECRET: Final = re.compile(
    "auth|cookie|token|secret|key|passw|credential|session|bearer|jwt|assertion|signature|dpop|oidc"
)
"""Words in the names of headers with credentials: Authorization, Proxy-Authorization, Cookie, X-Api-Key,
X-Amz-Security-Token, Cf-Access-Jwt-Assertion, Mcp-Session-Id. A header too many is left out rather than one too few."""
_HARMLESS: Final = frozenset({"idempotency-key"})


def is_secret(name: str) -> bool:
    """Tell whether a header of this name may carry a credential."""
    lowered = name.lower()
    return _SECRET.search(lowered) is not None and lowered not in _HARMLESS


class ForwardedRequest(Struct, frozen=True):
    """A request, who sent it, and the stream that its answer goes to."""

    session: str
    stream: str
    request: Request
    owner: str
    principal: Principal | None
    headers: dict[str, str]
    streams: bool = True
    """False in always-JSON mode: nothing but the result can be sent."""

    @property
    def caller(self) -> Caller:
        """Who sent it."""
        return Caller(self.owner, self.principal, self.headers)


def encode_forwarded(
    session: str, stream: str, caller: Caller, request: Request, *, streams: bool = True
) -> bytes:
    """Return a request as it is written to the store; empty if a verifier's own claims have no JSON form."""
    headers = {name: value for name, value in caller.headers.items() if not is_secret(name)}
    try:
        return encode(
            ForwardedRequest(session, stream, request, caller.key, caller.principal, headers, streams)
        )
    except (TypeError, ValueError):
        return b""


def decode_forwarded(payload: bytes) -> ForwardedRequest | None:
    """Return the request of a payload; None if no release that we know has written it."""
    try:
        return msgspec.json.decode(payload, type=ForwardedRequest)
    except msgspec.DecodeError:
        return None
