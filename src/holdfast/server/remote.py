"""`Remote`: a server behind a URL, served by Holdfast."""

from collections.abc import Mapping, Sequence
from typing import Unpack

from typing_extensions import override

from holdfast.auth.authorizer import Authorizer, Token, authorizer_of
from holdfast.auth.oauth.oauth import OAuth
from holdfast.auth.oauth.users import LastingSignIn, UserOAuth, machine_oauth
from holdfast.backs.proxy.passing import passing, principal_of_token
from holdfast.backs.remote import RemoteTarget
from holdfast.config import HttpSettings
from holdfast.errors import ConfigError
from holdfast.fronts.http.front import HttpFront
from holdfast.server.proxy import Proxy, ProxyArguments
from holdfast.server.running.namespaces import distinct_namespace
from holdfast.server.sign_in_page import sign_in_page
from holdfast.transports.http import is_http_url, shown
from holdfast.upstream.settings import ClientLimits, ClientTimes


class Remote(Proxy):
    """A server behind a URL, of either era, served by Holdfast."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        token: Token | Authorizer | None = None,
        oauth: bool | OAuth | UserOAuth = False,
        pass_token: bool = False,
        pass_headers: Sequence[str] = (),
        protocol_version: str = "auto",
        **shared: Unpack[ProxyArguments],
    ) -> None:
        """Describe the server. Nothing is connected before the first client.

        headers              sent with every request to the URL
        token                a bearer token for the URL, a function that returns one, or an Authorizer
        oauth                sign in with OAuth: True or an OAuth with the browser of this machine; UserOAuth for each
                             principal
        pass_token           send the client's own bearer token to the URL. Without a verifier each token is a principal
        pass_headers         names of headers of the client that are sent to the URL; no other header is passed on
        protocol_version     auto, sessions, sessionless, or one revision and no other, for the URL

        The other arguments are those of `ProxyArguments`.

        Raises:
            ConfigError: the URL or an option is invalid.
        """
        if (token is not None) + bool(oauth) + pass_token > 1:
            raise ConfigError("use one of token, oauth and pass_token: a request has one token of one source")
        if not is_http_url(url):
            raise ConfigError(f"{url[:200]!r} is not an http:// or https:// URL with a host")
        users = oauth if isinstance(oauth, UserOAuth) else None
        if oauth and not isinstance(oauth, UserOAuth):
            token = LastingSignIn(oauth if isinstance(oauth, OAuth) else machine_oauth())
        if pass_token and shared.get("verifier") is None:
            shared["verifier"] = principal_of_token
        target = RemoteTarget(
            url,
            passing=passing(pass_headers, token=pass_token, configured=headers or {}),
            headers=headers or {},
            users=users,
            authorizer=authorizer_of(token),
            version=protocol_version,
            limits=shared.get("limits", ClientLimits()),
            times=shared.get("times", ClientTimes()),
        )
        shared["namespace"] = shared.get("namespace") or distinct_namespace(target.name, url)
        super().__init__(target, shared)
        self.url: str = url
        self._users = users
        self._uses_browser = bool(oauth) and users is None

    @override
    def front(self, settings: HttpSettings) -> HttpFront:
        """Build the HTTP endpoint, and the page for the sign-in of users.

        Raises:
            ConfigError: the sign-in does not fit the clients that may call.
        """
        if self._users is not None:
            if self.verifier is None:
                raise ConfigError(
                    "each user signs in to the server behind, so a verifier must distinguish users"
                )
            if self.engine.store.is_shared:
                raise ConfigError(
                    "a sign-in of users waits in one process: leave out the store, and serve with one worker"
                )
            self.routes[:] = [sign_in_page(self._users, self._observer)]
        front = super().front(settings)
        if self._uses_browser and (self.verifier is not None or not self.back.shares_anonymous):
            raise ConfigError(
                "oauth signs in as the user of this machine, and other users may call here: let each of them sign in, "
                "with oauth=UserOAuth(...) or --oauth-callback URL"
            )
        return front

    @property
    def summary(self) -> str:
        """The URL without its secrets."""
        return f"in front of {shown(self.url)}"
