"""The protected server of the tests: tools that say for whom and with which token they run."""

import os
from typing import Any

import jwt
from msgspec.structs import replace

from limpet import Context, Principal, Server
from limpet.auth.verifiers import JwtVerifier
from limpet.errors import NoSession


class KeyNoting(JwtVerifier):
    """A `JwtVerifier` whose principals also say which key signed their token."""

    async def __call__(self, token: str) -> Principal | None:
        """Return the principal."""
        principal = await super().__call__(token)
        if principal is None:
            return None
        key = jwt.get_unverified_header(token)["kid"]
        return replace(principal, claims={**principal.claims, "key": key})


server = Server(
    "mail",
    verifier=KeyNoting(issuer=os.environ["ISSUER"], audience=os.environ["RESOURCE"]),
    scopes={"mail.read"},
)


@server.tool()
async def read(ctx: Context) -> dict[str, Any]:
    """Needs the scope that the whole server needs."""
    return await _caller(ctx)


@server.tool(scopes={"mail.send"})
async def send(ctx: Context) -> dict[str, Any]:
    """Needs a further scope."""
    return await _caller(ctx)


async def _caller(ctx: Context) -> dict[str, Any]:
    """Return the caller, and the number of calls of its session."""
    assert ctx.principal is not None
    try:
        calls = await ctx.state.incr("calls")
    except NoSession:
        calls = 0
    return {
        "subject": ctx.principal.subject,
        "scopes": sorted(ctx.principal.scopes),
        "key": ctx.principal.claims["key"],
        "calls": calls,
        "version": ctx.session.protocol_version,
    }
