"""OAuth 2.1 for clients: `Client(url, auth=OAuth())`."""

from limpet.auth.oauth.browser import Browser, Loopback, OpenBrowser, Visit
from limpet.auth.oauth.grants import (
    Audience,
    AuthorizationCode,
    ClientCredentials,
    Grant,
    IdentityAssertion,
    JwtBearer,
)
from limpet.auth.oauth.identity import ClientIdentity
from limpet.auth.oauth.oauth import OAuth
from limpet.auth.oauth.storage import Credentials, FileStorage, MemoryStorage, TokenStorage
from limpet.auth.oauth.tokens import Tokens
from limpet.auth.oauth.users import UserOAuth
from limpet.auth.oauth.web import Bounds

__all__ = [
    "Audience",
    "AuthorizationCode",
    "Bounds",
    "Browser",
    "ClientCredentials",
    "ClientIdentity",
    "Credentials",
    "FileStorage",
    "Grant",
    "IdentityAssertion",
    "JwtBearer",
    "Loopback",
    "MemoryStorage",
    "OAuth",
    "OpenBrowser",
    "TokenStorage",
    "Tokens",
    "UserOAuth",
    "Visit",
]
