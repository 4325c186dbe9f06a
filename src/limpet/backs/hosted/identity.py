"""The HTTP request and the user, in the form in which the frameworks give them to a handler.

`get_http_request()`, `ctx.request_context.request` and `get_access_token()` read a Starlette request that is sent
with the message (`metadata.request_context`), and a context variable of `mcp`. We make both from the headers of the
client's request and from the principal that our own front has verified. Without HTTP (stdio) there is no request.
"""

from importlib import import_module
from typing import Any, Final

from limpet.auth import Principal
from limpet.backs.proxy.call import Call
from limpet.engine.caller import Caller
from limpet.upstream.pending import OutgoingRequest

_BEARER: Final = "bearer "


class PresentUser:
    """The user of `mcp` 1, which runs every handler in the context of the run: the user of the request that is handled.

    The token of a session may be renewed while the session lasts. Outside of a request it is the user who opened the
    session.
    """

    def __init__(self, opened_by: Any, request_context: Any) -> None:
        self._opened_by = opened_by
        self._request_context = request_context

    def __getattr__(self, name: str) -> Any:
        context = self._request_context.get(None)
        scope = getattr(getattr(context, "request", None), "scope", {})
        return getattr(scope.get("user", self._opened_by), name)


class HostedIdentity:
    """Makes requests and users with the classes of the installed `mcp` and Starlette."""

    def __init__(self) -> None:
        self.variable: Any = import_module("mcp.server.auth.middleware.auth_context").auth_context_var
        """The context variable that `get_access_token()` of `mcp` reads."""
        self._user: Any = import_module("mcp.server.auth.middleware.bearer_auth").AuthenticatedUser
        self._token: Any = import_module("mcp.server.auth.provider").AccessToken
        self._request: Any = import_module("starlette.requests").Request

    def user(self, caller: Caller | None) -> Any:
        """Return the user of a caller; None if our front has verified no user."""
        if caller is None or caller.principal is None:
            return None
        principal, sent = caller.principal, caller.headers.get("authorization", "")
        token = sent[len(_BEARER) :] if sent.lower().startswith(_BEARER) else ""
        return self._user(self._access(principal, token))

    def request(self, caller: Caller | None) -> Any:
        """Return the HTTP request of a caller; None if the request did not come over HTTP."""
        if caller is None or not caller.headers:
            return None
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "query_string": b"",
            "headers": [
                (name.encode("latin-1"), value.encode("latin-1")) for name, value in caller.headers.items()
            ],
        }
        user = self.user(caller)
        if user is not None:
            scope["user"] = user
        return self._request(scope)

    def _access(self, principal: Principal, token: str) -> Any:
        issuer = {"iss": principal.issuer} if principal.issuer else {}
        return self._token(
            token=token,
            client_id=principal.client or principal.subject,
            scopes=sorted(principal.scopes),
            expires_at=None if principal.expires is None else int(principal.expires),
            subject=principal.subject,
            claims={**issuer, **principal.claims},
        )


def caller_of(request: OutgoingRequest | None) -> Caller | None:
    """Return the caller of the exchange that a request to the object belongs to."""
    owner = request.owner if request is not None else None
    return owner.exchange.caller if isinstance(owner, Call) else None
