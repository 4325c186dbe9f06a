"""OAuth for `Client(url, auth=OAuth())`. It discovers everything that is not configured."""

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from limpet.auth.authorizer import Challenge
from limpet.auth.oauth.account import OAuthAccount, Setup
from limpet.auth.oauth.challenges import OAuthChallenge
from limpet.auth.oauth.grants import AuthorizationCode, Grant
from limpet.auth.oauth.identity import ClientIdentity
from limpet.auth.oauth.pkce import Begun
from limpet.auth.oauth.registration import Application
from limpet.auth.oauth.storage import FileStorage, MemoryStorage, TokenStorage
from limpet.auth.oauth.web import Bounds
from limpet.auth.urls import check_trusted
from limpet.errors import ConfigError
from limpet.ports import Clock, Random, SystemClock, SystemRandom


class OAuth:
    """An `Authorizer` by OAuth 2.1. Several clients may share it, also clients of different servers."""

    def __init__(  # noqa: PLR0913 - everything has a default
        self,
        grant: Grant | None = None,
        *,
        client: ClientIdentity | None = None,
        client_document: str = "",
        client_name: str = "Limpet",
        scopes: Sequence[str] = (),
        storage: TokenStorage | None = None,
        dpop: bool = False,
        guess_endpoints: bool = False,
        bounds: Bounds = Bounds(),  # noqa: B008 - frozen
        ports: tuple[Clock, Random] | None = None,
    ) -> None:
        """Describe the application.

        grant             how the first token is obtained; by default the user agrees in the browser
        client            the application as registered by hand
        client_document   the https URL of its client id metadata document
        client_name       the name that users see if the application registers itself
        scopes            scopes that are always requested; by default those that the server requires
        storage           by default files in the user's state directory; memory for grants that need no user
        dpop              bind tokens to a key (RFC 9449)
        guess_endpoints   support servers of revision 2025-03-26 that have no metadata
        """
        grant = grant or AuthorizationCode()
        self._setup = Setup(
            grant=grant,
            application=Application(
                name=client_name, client=client, document=_checked(client_document), is_proving=dpop
            ),
            storage=storage or (MemoryStorage() if grant.is_silent else FileStorage()),
            scopes=tuple(scopes),
            bounds=bounds,
            guess=guess_endpoints,
            ports=ports or (SystemClock(), SystemRandom()),
        )
        self._accounts: dict[str, OAuthAccount] = {}

    def __repr__(self) -> str:
        return f"<OAuth by {self._setup.grant}, {len(self._accounts)} accounts>"

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        return await self._account(url).headers(method, url)

    async def challenged(self, challenge: Challenge) -> bool:
        return await self._account(challenge.url).challenged(challenge)

    async def finish(self, url: str, demand: OAuthChallenge, begun: Begun, redirect: str) -> None:
        """Exchange the code of an authorization that has begun in another run; see `OAuthAccount.finish`."""
        await self._account(url).finish(demand, begun, redirect)

    def _account(self, url: str) -> OAuthAccount:
        account = self._accounts.get(url)
        if account is None:
            check_trusted(url, near=url)
            account = self._accounts[url] = OAuthAccount(url, self._setup)
        return account


def _checked(document: str) -> str:
    parts = urlsplit(document)
    if document and (parts.scheme != "https" or parts.path in ("", "/")):
        raise ConfigError("client_document must be an https URL with a path")
    return document
