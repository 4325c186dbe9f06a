"""A request in the form in which the store holds it, for another replica: to answer a retry, or to run a call again.

Both use `encode_forwarded`, the only place that decides what of a caller is written to the store.
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
X-Amz-Security-Token, Cf-Access-Jwt-Assertion, Mcp-Session-Id. A header is rather left out without need than written with a credential."""
_HARMLESS: Final = frozenset({"idempotency-key"})


def is_secret(name: str) -> bool:
    """True if a header of this name may hold a credential."""
    lowered = name.lower()
    return _SECRET.search(lowered) is not None and lowered not in _HARMLESS


class ForwardedRequest(Struct, frozen=True):
    """A request, its caller, and the stream that its answer is written to."""

    session: str
    stream: str
    request: Request
    owner: str
    principal: Principal | None
    headers: dict[str, str]
    streams: bool = True
    """False in always-JSON mode: only the terminal message can be sent."""

    @property
    def caller(self) -> Caller:
        """The caller, without the headers that were left out."""
        return Caller(self.owner, self.principal, self.headers)


def encode_forwarded(
    session: str, stream: str, caller: Caller, request: Request, *, streams: bool = True
) -> bytes:
    """Encode a request for the store. Returns no bytes if the principal has claims that JSON cannot hold."""
    headers = {name: value for name, value in caller.headers.items() if not is_secret(name)}
    try:
        return encode(
            ForwardedRequest(session, stream, request, caller.key, caller.principal, headers, streams)
        )
    except (TypeError, ValueError):
        return b""


def decode_forwarded(payload: bytes) -> ForwardedRequest | None:
    """Decode a request of the store; None if this release cannot read it."""
    try:
        return msgspec.json.decode(payload, type=ForwardedRequest)
    except msgspec.DecodeError:
        return None
