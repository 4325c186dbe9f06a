"""OAuth for a client: what `Client(url, auth=OAuth())` is given. Finds everything else out by itself."""

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from holdfast.auth.authorizer import Challenge
from holdfast.auth.oauth.account import Account, Setup
from holdfast.auth.oauth.grants import AuthorizationCode, Grant
from holdfast.auth.oauth.identity import ClientIdentity
from holdfast.auth.oauth.registration import Application
from holdfast.auth.oauth.storage import FileStorage, MemoryStorage, TokenStorage
from holdfast.auth.oauth.urls import check_trusted
from holdfast.auth.oauth.web import Bounds
from holdfast.errors import ConfigError
from holdfast.ports import Clock, Random, SystemClock, SystemRandom


class OAuth:
    """An `Authorizer` by OAuth 2.1. May serve several clients at once, of the same server or of others."""

    def __init__(  # noqa: PLR0913 - everything has a default
        self,
        grant: Grant | None = None,
        *,
        client: ClientIdentity | None = None,
        client_document: str = "",
        client_name: str = "Holdfast",
        scopes: Sequence[str] = (),
        storage: TokenStorage | None = None,
        dpop: bool = False,
        guess_endpoints: bool = False,
        bounds: Bounds = Bounds(),  # noqa: B008 - frozen
        ports: tuple[Clock, Random] | None = None,
    ) -> None:
        """Describe the application.

        grant             how a first token is had; left out, a user agrees in the browser
        client            the application as it is registered by hand
        client_document   the https URL of its client id metadata document
        client_name       what users read when they are asked, where it registers by itself
        scopes            asked for in any case; left out, what the server wants
        storage           left out, files of the user's; nothing is stored where no user is needed
        dpop              bind tokens to a key (RFC 9449)
        guess_endpoints   serve revision 2025-03-26: servers without any metadata
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
        self._accounts: dict[str, Account] = {}

    def __repr__(self) -> str:
        return f"<OAuth by {self._setup.grant}, {len(self._accounts)} accounts>"

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the token for a server; nothing before it has asked for one."""
        return await self._account(url).headers(method, url)

    async def challenged(self, challenge: Challenge) -> bool:
        """Get a token, or a better one."""
        return await self._account(challenge.url).challenged(challenge)

    def _account(self, url: str) -> Account:
        account = self._accounts.get(url)
        if account is None:
            check_trusted(url, near=url)
            account = self._accounts[url] = Account(url, self._setup)
        return account


def _checked(document: str) -> str:
    parts = urlsplit(document)
    if document and (parts.scheme != "https" or parts.path in ("", "/")):
        raise ConfigError("a client id metadata document has an https URL with a path")
    return document
