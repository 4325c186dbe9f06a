"""The page to which a browser is redirected when a user has signed in to the server behind (`auth/oauth/users.py`)."""

from typing import Final

from holdfast.auth import Principal, Verifier
from holdfast.auth.oauth.users import UserOAuth
from holdfast.config import HttpSettings
from holdfast.engine.engine import Engine
from holdfast.fronts.http.head import Head
from holdfast.fronts.http.identity import Identity
from holdfast.fronts.http.protection import Protection
from holdfast.server.authoring.routes import HttpRequest, HttpResponse, Route

_HEADERS: Final = {
    "content-type": "text/html; charset=utf-8",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'",
    "x-content-type-options": "nosniff",
}
_DONE: Final = "You are signed in. You can close this window and go back to the application."
_STRANGER: Final = (
    "This page needs the same authentication as the application. Nothing was changed. Ask the operator of this server "
    "how to sign in here."
)
_UNKNOWN: Final = (
    "You have started no sign-in that waits for this page, or it took too long. Nothing was changed. If another person "
    "sent you the link, do not use it. Otherwise start again in the application."
)


def sign_in_page(users: UserOAuth, verifier: Verifier, engine: Engine) -> Route:
    """Return the route of the callback. It accepts only the principal that started the sign-in."""
    identity = Identity(verifier, engine, Protection(HttpSettings(path=users.path), verifier, engine.access))

    async def finish(request: HttpRequest) -> HttpResponse:
        head = Head([(name.encode(), value.encode("latin-1")) for name, value in request.headers.items()])
        principal = await identity.of(head, request.client or "")
        if not isinstance(principal, Principal):
            return _page(401, _STRANGER)
        if not users.finish(principal.key, request.query):
            engine.observer.note("sign_in.refused", principal=principal.subject)
            return _page(403, _UNKNOWN)
        return _page(200, _DONE)

    return Route(users.path, ("GET",), finish)


def _page(status: int, text: str) -> HttpResponse:
    body = f"<!doctype html><title>Holdfast</title><p>{text}</p>"
    return HttpResponse(body.encode(), status, _HEADERS)
