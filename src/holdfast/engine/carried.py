"""A request as it travels through the store to another replica: to be run there, or to be run again."""

from typing import Final

import msgspec
from msgspec import Struct

from holdfast.auth import Principal
from holdfast.engine.exchange import Caller
from holdfast.wire.jsonrpc import Request, encode

CREDENTIALS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
"""Headers that are not kept: nobody who reads the store is to find a way to act as the caller."""


class Carried(Struct, frozen=True):
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


def kept(session: str, stream: str, caller: Caller, request: Request, *, streams: bool) -> bytes:
    """Return a request as it is kept beside its claim; empty if a verifier's own claims have no JSON form."""
    headers = {name: value for name, value in caller.headers.items() if name not in CREDENTIALS}
    try:
        return encode(Carried(session, stream, request, caller.key, caller.principal, headers, streams))
    except (TypeError, ValueError):
        return b""


def unpacked(payload: bytes) -> Carried | None:
    """Return the request of a payload; None if no release that we know has written it."""
    try:
        return msgspec.json.decode(payload, type=Carried)
    except msgspec.DecodeError:
        return None
