"""Sign-in of users to a server behind ours: one account for each principal, or one for the user of this machine.

How a principal of another machine agrees. We cannot open its browser, so the request that needs a token fails with the
URL of the page (`SignInRequired`), and the authorization waits for the user in the background:

    client                  we                                        browser of the user
    ──────────────────      ─────────────────────────────────────     ─────────────────────────────────
    request       ───────▶  the server behind answers 401
                  ◀───────  error with the URL of the page
                                                          ◀───────    the user agrees, and is redirected
                            the callback: state and principal fit
                            the code is exchanged for tokens
    request again ───────▶  sent with the token of the principal

The attack that this must prevent: someone starts a sign-in, lets another person open the page and agree, and would then
use that person's account. So the browser must authenticate at the callback as every request does (`verifier`), and must
be the principal that started the sign-in. A redirect without that is refused, and its code is not used.

A sign-in does not end with the request that started it: a client that gives up and tries again finds the same one.
"""

import asyncio
import sys
import webbrowser
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from holdfast.auth.authorizer import Authorizer, Challenge
from holdfast.auth.oauth.browser import Loopback, Visit
from holdfast.auth.oauth.grants import AuthorizationCode
from holdfast.auth.oauth.identity import ClientIdentity
from holdfast.auth.oauth.oauth import OAuth
from holdfast.auth.oauth.storage import Credentials, FileStorage, MemoryStorage, TokenStorage
from holdfast.auth.oauth.web import Bounds
from holdfast.auth.urls import is_loopback
from holdfast.errors import AuthorizationFailed, Busy, ConfigError, SignInRequired
from holdfast.ports import Clock, Random

USER_SECONDS: Final = 600.0
"""How long a user may take to agree."""
MOST_USERS: Final = 10_000
"""How many principals may have an account in one process; the next one is refused as busy."""


class LastingSignIn:
    """An authorizer whose sign-in continues when the request that waits for it is cancelled."""

    def __init__(self, inner: Authorizer) -> None:
        self._inner = inner
        self._signing_in: asyncio.Task[bool] | None = None

    def __repr__(self) -> str:
        return f"<LastingSignIn by {self._inner}>"

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the header with the token; see `Authorizer`."""
        return await self._inner.headers(method, url)

    async def challenged(self, challenge: Challenge) -> bool:
        """Sign in, or wait for the sign-in that runs; see `Authorizer`."""
        return await asyncio.shield(self._started(challenge))

    def _started(self, challenge: Challenge) -> "asyncio.Task[bool]":
        if self._signing_in is None or self._signing_in.done():
            self._signing_in = asyncio.get_running_loop().create_task(self._run(challenge))
            # If no request waits any more, the next one gets the same failure from the server.
            self._signing_in.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._signing_in

    async def _run(self, challenge: Challenge) -> bool:
        return await self._inner.challenged(challenge)

    async def aclose(self) -> None:
        """End a sign-in that runs."""
        if self._signing_in is not None:
            self._signing_in.cancel()
            await asyncio.wait({self._signing_in})


def machine_oauth(client: ClientIdentity | None = None, redirect_uri: str = "") -> OAuth:
    """Return the OAuth of the user of this machine. Tokens are kept in files of the user, mode 0600 (`FileStorage`).

    client         Holdfast as registered by hand; by default it registers itself
    redirect_uri   the redirect URI of that registration

    Raises:
        ConfigError: the redirect URI does not lead to this machine.
    """
    browser = Loopback.at(redirect_uri, launch=_show) if redirect_uri else Loopback(launch=_show)
    return OAuth(AuthorizationCode(browser=browser), client=client)


def _show(url: str) -> bool:
    """Open the page in the browser, and write its URL for a machine without one."""
    sys.stderr.write(f"holdfast: sign in to the server behind at {url}\n")
    sys.stderr.flush()
    webbrowser.open(url)
    return True


class UserOAuth:
    """OAuth for a server behind ours: each principal signs in with its own account.

    callback          the public URL of the page to which browsers are redirected. Holdfast serves its path; browsers must
                      reach it with the same authentication as clients, for example through a proxy that signs users in
    tokens            a directory for the tokens of all principals, readable by us only; by default they are in memory, and
                      users sign in again after a restart
    client, client_document, client_name, scopes   as for `OAuth`
    """

    def __init__(
        self,
        callback: str,
        *,
        tokens: str | Path | None = None,
        client: ClientIdentity | None = None,
        client_document: str = "",
        client_name: str = "Holdfast",
        scopes: Sequence[str] = (),
        ports: tuple[Clock, Random] | None = None,
    ) -> None:
        parts = urlsplit(callback)
        is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(callback))
        if not is_safe or parts.path in {"", "/"} or parts.query or parts.fragment:
            raise ConfigError(
                f"the callback {callback[:200]!r} must be an https URL with a path, such as "
                "https://mcp.example.com/oauth/callback"
            )
        self.callback: str = callback
        self.path: str = parts.path
        """The path that browsers are redirected to."""
        self._tokens = Path(tokens) if tokens is not None else None
        self._options: dict[str, Any] = {
            "client": client,
            "client_document": client_document,
            "client_name": client_name,
            "scopes": scopes,
            "ports": ports,
            "bounds": Bounds(browser=USER_SECONDS),
        }
        self._registered: dict[str, ClientIdentity] = {}
        self._accounts: dict[str, UserAccount] = {}

    def __repr__(self) -> str:
        return f"<UserOAuth at {self.callback}, {len(self._accounts)} users>"

    def of(self, principal: str) -> "UserAccount":
        """Return the account of a principal, by its key.

        Raises:
            AuthorizationFailed: the client is anonymous.
            Busy: too many principals have one.
        """
        if not principal:
            raise AuthorizationFailed("each user signs in with its own account, and this client is anonymous")
        account = self._accounts.get(principal)
        if account is None:
            if len(self._accounts) >= MOST_USERS:
                raise Busy("Busy: too many users are signed in to the server behind")
            inner = FileStorage(self._tokens / principal) if self._tokens is not None else MemoryStorage()
            consent = Consent(self.callback)
            grant = AuthorizationCode(browser=consent)
            oauth = OAuth(grant, storage=_SharedClient(inner, self._registered), **self._options)
            account = self._accounts[principal] = UserAccount(oauth, consent)
        return account

    def finish(self, principal: str, query: Mapping[str, str]) -> bool:
        """Take the redirect of a browser that is authenticated as this principal. False: it started no such sign-in."""
        account = self._accounts.get(principal)
        return account is not None and account.consent.finish(query)

    async def aclose(self) -> None:
        """End every sign-in that runs."""
        for account in self._accounts.values():
            await account.aclose()


class Consent:
    """The browser of a user on another machine: it keeps the URL until the user has agreed. One for each principal."""

    def __init__(self, callback: str) -> None:
        self.redirect_uri = callback
        self.url: str = ""
        """The page at which the user agrees; empty if no sign-in waits."""
        self._state = ""
        self._back: asyncio.Future[str] | None = None
        self._shown = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Consent {'waits' if self.url else 'idle'}>"

    @asynccontextmanager
    async def visit(self, preferred: str) -> AsyncIterator[Visit]:  # noqa: ARG002 - it has one address only
        """Prepare an authorization; see `Browser`."""
        yield self

    async def go(self, url: str, state: str) -> str:
        """Keep the URL for the clients of the principal, and wait for the redirect."""
        self.url, self._state = url, state
        self._back = asyncio.get_running_loop().create_future()
        self._shown.set()
        try:
            return await self._back
        finally:
            self.url, self._state, self._back = "", "", None
            self._shown.clear()

    async def shown(self) -> None:
        """Wait until there is a page to open."""
        await self._shown.wait()

    def finish(self, query: Mapping[str, str]) -> bool:
        """Take a redirect. False: no sign-in waits for it."""
        if self._back is None or self._back.done() or query.get("state") != self._state:
            return False
        self._back.set_result(f"{self.redirect_uri}?{urlencode(query)}")
        return True


class UserAccount(LastingSignIn):
    """The account of one principal. A request that needs the user fails with the URL of the page."""

    def __init__(self, oauth: OAuth, consent: Consent) -> None:
        super().__init__(oauth)
        self.consent: Consent = consent

    async def challenged(self, challenge: Challenge) -> bool:
        """Renew the tokens, or start a sign-in; see `Authorizer`.

        Raises:
            SignInRequired: the user must agree first.
        """
        signing_in = self._started(challenge)
        shown = asyncio.get_running_loop().create_task(self.consent.shown())
        try:
            await asyncio.wait({signing_in, shown}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            shown.cancel()
        if signing_in.done():
            return signing_in.result()
        raise SignInRequired(self.consent.url)


class _SharedClient:
    """The storage of one principal. All principals share the registration of the application."""

    def __init__(self, inner: TokenStorage, registered: dict[str, ClientIdentity]) -> None:
        self._inner = inner
        self._registered = registered

    async def load(self, server: str, issuer: str | None = None) -> Credentials | None:
        kept = await self._inner.load(server, issuer)
        if kept is None and issuer in self._registered:
            return Credentials(issuer=issuer, resource="", client=self._registered[issuer])
        return kept

    async def save(self, server: str, kept: Credentials) -> None:
        if kept.client is not None:
            self._registered[kept.issuer] = kept.client
        else:
            self._registered.pop(kept.issuer, None)
        await self._inner.save(server, kept)
