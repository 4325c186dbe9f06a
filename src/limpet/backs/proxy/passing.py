"""Headers of a client that are passed on to the server behind us: only those that the operator has named.

The values of a request are sent with that request. Requests outside of calls, such as the standalone stream, have the
newest values of the client. Clients whose values differ share no upstream unless they have one session, and a session
belongs to one principal. So a credential of one principal is never sent with a request of another one.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from limpet.auth import Principal
from limpet.errors import INVALID_REQUEST, ConfigError, McpError

TOKEN: Final = "authorization"  # noqa: S105 - a name
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE: Final = re.compile(r"[\x20-\x7e\t]*")
_REFUSED: Final = {
    TOKEN: "the client's token passes with --pass-token (pass_token=True)",
    **dict.fromkeys(
        (
            "connection",
            "expect",
            "http2-settings",
            "keep-alive",
            "proxy-authenticate",
            "proxy-authorization",
            "proxy-connection",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade",
        ),
        "it concerns one connection only",
    ),
    **dict.fromkeys(
        (
            "accept",
            "accept-encoding",
            "content-encoding",
            "content-length",
            "content-type",
            "host",
            "last-event-id",
        ),
        "Limpet sets it for its own request",
    ),
}
"""Headers that never pass by their name, and why."""


class Passing(Struct, frozen=True):
    """The lower-case names of the headers that pass."""

    names: tuple[str, ...] = ()

    def of(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers of a client's request that go to the server.

        Raises:
            McpError: a value cannot be sent, or the token that is passed on is missing.
        """
        found = {name: value for name in self.names if (value := headers.get(name)) is not None}
        for name, value in found.items():
            if not _VALUE.fullmatch(value):
                raise McpError(INVALID_REQUEST, f"the header {name} has characters that cannot be passed on")
        if TOKEN in self.names and TOKEN not in found:
            raise McpError(
                INVALID_REQUEST,
                "the server behind this one needs the client's own token, and the request has none",
            )
        return found


NOTHING: Final = Passing()


def passing(names: Sequence[str], *, token: bool, configured: Mapping[str, str]) -> Passing:
    """Return the headers that are passed on. `configured` are the headers that every request has.

    Raises:
        ConfigError: a header may not pass, or has a configured value.
    """
    lowered = tuple(dict.fromkeys(name.strip().lower() for name in names))
    for name in lowered:
        reason = _REFUSED.get(name)
        if reason is None and name.startswith("mcp-"):
            reason = "Limpet sets the headers of MCP for its own requests"
        if reason is None and not _NAME.fullmatch(name):
            reason = "it is not the name of a header"
        if reason is not None:
            raise ConfigError(f"the header {name[:64]!r} cannot be passed on: {reason}")
    wanted = (*lowered, TOKEN) if token else lowered
    for name in configured:
        if name.lower() in wanted:
            raise ConfigError(
                f"the header {name} has a configured value, so the client's cannot be passed on"
            )
    return Passing(wanted)


async def principal_of_token(token: str) -> Principal:
    """Return a principal for each token. The server behind checks the token itself.

    A `Verifier` for servers that pass tokens on and have no verifier: sessions are bound to the token.
    """
    return Principal(subject=hashlib.sha256(token.encode()).hexdigest(), issuer="limpet:passed-token")
