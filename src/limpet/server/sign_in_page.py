"""The page to which a browser is redirected when a user has signed in to the server behind (`auth/oauth/users.py`)."""

from collections.abc import Sequence
from typing import Final

from limpet.auth.oauth.users import UserOAuth
from limpet.auth.scopes import NO_SCOPES
from limpet.engine.audit import short
from limpet.errors import AuthorizationFailed, LinkError
from limpet.ports import Observer
from limpet.server.authoring.routes import HttpRequest, HttpResponse, Route

_HEADERS: Final = {
    "content-type": "text/html; charset=utf-8",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'",
    "x-content-type-options": "nosniff",
}
_DONE: Final = "You are signed in. You can close this window and go back to the application."
_FAILED: Final = "You are not signed in: you or the server has refused it. Start again in the application."
_UNKNOWN: Final = (
    "You have started no sign-in that waits for this page, or it took too long. Nothing was changed. If another person "
    "sent you the link, do not use it. Otherwise start again in the application."
)


def sign_in_page(path: str, users: Sequence[UserOAuth], observer: Observer) -> Route:
    """Return the route of a callback, for one server behind or several.

    It demands a principal, and accepts only the one that started the sign-in.
    """

    async def finish(request: HttpRequest) -> HttpResponse:
        owner = request.principal.key if request.principal is not None else ""
        try:
            for one in users:
                if await one.finish(owner, request.query):
                    return _page(200, _DONE)
        except (AuthorizationFailed, LinkError) as error:
            observer.note("sign_in.failed", principal=short(owner), error=error)
            return _page(200, _FAILED)
        observer.note("sign_in.refused", principal=short(owner))
        return _page(403, _UNKNOWN)

    return Route(path, ("GET",), finish, NO_SCOPES)


def _page(status: int, text: str) -> HttpResponse:
    body = f"<!doctype html><title>Limpet</title><p>{text}</p>"
    return HttpResponse(body.encode(), status, _HEADERS)
