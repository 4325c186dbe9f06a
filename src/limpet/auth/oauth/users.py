"""Sign-in of users to a server behind ours: one account for each principal, or one for the user of this machine.

How a principal of another machine agrees. We cannot open its browser, so the request that needs a token fails with the
URL of the page (`SignInRequired`), and the sign-in waits in the store (`vault.py`), where every replica finds it:

    client                  we, any replica                           browser of the user
    ──────────────────      ─────────────────────────────────────     ─────────────────────────────────
    request       ───────▶  the server behind answers 401;
                            keep the sign-in
                  ◀───────  error with the URL of the page
                                                          ◀───────    the user agrees, and is redirected
                            the callback: state and principal fit;
                            take the sign-in out of the store,
                            exchange the code, keep the tokens
    request again ───────▶  sent with the token of the principal

The attack that this must prevent: someone starts a sign-in, lets another person open the page and agree, and would then
use that person's account. So the browser must authenticate at the callback as every request does (`verifier`), and must
be the principal that started the sign-in. A redirect without that is refused, and its code is not used.

A sign-in belongs to the principal and not to a request: each request that needs it meanwhile fails with the same page.
Only the replica that takes it out of the store exchanges its code.
"""

import asyncio
import sys
import webbrowser
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hmac import compare_digest
from typing import Any, Final
from urllib.parse import urlencode, urlsplit
from weakref import WeakValueDictionary

from limpet.auth.authorizer import Authorizer, Challenge
from limpet.auth.forward_key import ForwardKey
from limpet.auth.oauth.browser import BrowserFunction, Loopback
from limpet.auth.oauth.challenges import oauth_challenge
from limpet.auth.oauth.grants import AuthorizationCode
from limpet.auth.oauth.identity import ClientIdentity
from limpet.auth.oauth.oauth import OAuth
from limpet.auth.oauth.pkce import Begun
from limpet.auth.oauth.vault import KeptTokens, Registrations, Vault, WaitingSignIn
from limpet.auth.oauth.web import Bounds
from limpet.auth.urls import is_loopback
from limpet.errors import AuthorizationFailed, ConfigError, SignInRequired
from limpet.ports import Clock, Random, SystemClock, SystemRandom
from limpet.stores.base.state import StatePart

USER_SECONDS: Final = 600.0
"""How long a user may take to agree."""
MOST_USERS: Final = 10_000
"""How many accounts a process keeps that no connection uses. The one that was not used for the longest time is
forgotten; its tokens stay stored."""


class LastingSignIn:
    """An authorizer whose sign-in continues when the request that waits for it is cancelled."""

    def __init__(self, inner: Authorizer) -> None:
        self._inner = inner
        self._signing_in: asyncio.Task[bool] | None = None

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        return await self._inner.headers(method, url)

    async def challenged(self, challenge: Challenge) -> bool:
        return await asyncio.shield(self._start(challenge))

    def _start(self, challenge: Challenge) -> "asyncio.Task[bool]":
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

    client         Limpet as registered by hand; by default it registers itself
    redirect_uri   the redirect URI of that registration

    Raises:
        ConfigError: the redirect URI does not lead to this machine.
    """
    browser = Loopback.at(redirect_uri, launch=_show) if redirect_uri else Loopback(launch=_show)
    return OAuth(AuthorizationCode(browser=browser), client=client)


def _show(url: str) -> bool:
    """Open the page in the browser, and write its URL for a machine without one."""
    sys.stderr.write(f"limpet: sign in at {url}\n")
    sys.stderr.flush()
    webbrowser.open(url)
    return True


class UserOAuth:
    """OAuth for a server behind ours: each principal signs in with its own account.

    callback          the public URL of the page to which browsers are redirected. Limpet serves its path; browsers
                      must reach it with the same authentication as clients, for example through a proxy that signs
                      users in
    client, client_document, client_name, scopes   as for `OAuth`
    """

    def __init__(
        self,
        callback: str,
        *,
        client: ClientIdentity | None = None,
        client_document: str = "",
        client_name: str = "Limpet",
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
        self._options: dict[str, Any] = {
            "client": client,
            "client_document": client_document,
            "client_name": client_name,
            "scopes": scopes,
            "ports": ports,
            "bounds": Bounds(browser=USER_SECONDS),
        }
        self._ports = ports or (SystemClock(), SystemRandom())
        self._vault: Vault | None = None
        self._accounts: WeakValueDictionary[str, UserAccount] = WeakValueDictionary()
        """By principal. A connection, and a sign-in that runs, keep theirs: a principal never has two, which would
        renew the same tokens."""
        self._recent: OrderedDict[str, UserAccount] = OrderedDict()
        self._finishing: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<UserOAuth at {self.callback}, {len(self._accounts)} users>"

    def keep_in(self, state: StatePart, key: ForwardKey | None, server: str) -> None:
        """Keep sign-ins and tokens for a server behind in the state of a store, sealed with the key.

        Call it before the first request.
        """
        self._vault = Vault(state, key, server, self._ports)

    @property
    def vault(self) -> Vault:
        """The sign-ins and tokens.

        Raises:
            AuthorizationFailed: no HTTP endpoint serves the page to which browsers come back.
        """
        if self._vault is None:
            raise AuthorizationFailed("users sign in over HTTP, and no HTTP endpoint of this server exists")
        return self._vault

    def of(self, principal: str) -> "UserAccount":
        """Return the account of a principal, by its key.

        Raises:
            AuthorizationFailed: the client is anonymous.
        """
        if not principal:
            raise AuthorizationFailed("each user signs in with its own account, and this client is anonymous")
        account = self._accounts.get(principal)
        if account is None:
            account = self._accounts[principal] = UserAccount(self, principal)
        self._recent[principal] = account
        self._recent.move_to_end(principal)
        if len(self._recent) > MOST_USERS:
            self._recent.popitem(last=False)
        return account

    def oauth(self, principal: str, begin: Callable[[str, Begun], Awaitable[str]]) -> OAuth:
        """Return the sign-in of a principal; `begin` keeps it for the browser, which is on another machine."""
        storage = KeptTokens(self.vault, principal, Registrations(self.vault, self.callback))
        grant = AuthorizationCode(browser=BrowserFunction(begin, self.callback))
        return OAuth(grant, storage=storage, **self._options)

    async def finish(self, principal: str, query: Mapping[str, str]) -> bool:
        """Take the redirect of a browser that is authenticated as this principal. False: it started no such sign-in.

        Raises:
            AuthorizationFailed: the user, or the authorization server, has refused it.
            LinkError: a server, or the store, cannot be reached.
        """
        waiting, version = await self.vault.waiting(principal)
        sent = query.get("state", "")
        if waiting is None or not compare_digest(sent.encode(), waiting.begun.request.state.encode()):
            return False
        if not await self.vault.take(principal, version):
            return False
        redirect = f"{self.callback}?{urlencode(query)}"
        # The browser may give up, and the code can be exchanged only once.
        task = asyncio.get_running_loop().create_task(self.of(principal).finish(waiting, redirect))
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)
        await asyncio.shield(task)
        return True

    async def aclose(self) -> None:
        """End every sign-in that runs."""
        for account in list(self._accounts.values()):
            await account.aclose()
        for task in list(self._finishing):
            task.cancel()
            await asyncio.wait({task})


class UserAccount(LastingSignIn):
    """The account of one principal. A request that needs the user fails with the URL of the page."""

    def __init__(self, users: UserOAuth, principal: str) -> None:
        self._users = users
        self._principal = principal
        self._challenge: Challenge | None = None
        self._made: OAuth | None = None
        super().__init__(self)

    @property
    def _oauth(self) -> OAuth:
        if self._made is None:
            self._made = self._users.oauth(self._principal, self._begin)
        return self._made

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        return await self._oauth.headers(method, url)

    async def challenged(self, challenge: Challenge) -> bool:
        """Renew the tokens, or start a sign-in; see `Authorizer`.

        Raises:
            SignInRequired: the user must agree first.
        """
        waiting, _ = await self._users.vault.waiting(self._principal)
        if waiting is not None and waiting.server == challenge.url:
            raise SignInRequired(waiting.url)
        return await super().challenged(challenge)

    async def _run(self, challenge: Challenge) -> bool:
        self._challenge = challenge
        return await self._oauth.challenged(challenge)

    async def _begin(self, url: str, begun: Begun) -> str:
        """Keep a sign-in for the user. Another replica may have been first: its page counts.

        Raises:
            SignInRequired: always, with the page at which the user agrees.
        """
        challenge, vault = self._challenge, self._users.vault
        if challenge is None:
            raise AuthorizationFailed("no request needs a sign-in")
        kept = await vault.begin(
            self._principal,
            WaitingSignIn(
                server=challenge.url,
                demand=oauth_challenge(challenge.headers),
                url=url,
                begun=begun,
                until=vault.clock.wall() + USER_SECONDS,
            ),
        )
        raise SignInRequired(kept.url)

    async def finish(self, waiting: WaitingSignIn, redirect: str) -> None:
        """Exchange the code of a sign-in."""
        await self._oauth.finish(waiting.server, waiting.demand, waiting.begun, redirect)
