"""OAuth 2.1 for clients: `Client(url, auth=OAuth())`."""

from holdfast.auth.oauth.browser import Browser, Loopback, OpenBrowser, Visit
from holdfast.auth.oauth.grants import (
    Audience,
    AuthorizationCode,
    ClientCredentials,
    Grant,
    IdentityAssertion,
    JwtBearer,
)
from holdfast.auth.oauth.identity import ClientIdentity
from holdfast.auth.oauth.oauth import OAuth
from holdfast.auth.oauth.storage import Credentials, FileStorage, MemoryStorage, TokenStorage
from holdfast.auth.oauth.tokens import Tokens
from holdfast.auth.oauth.users import UserOAuth
from holdfast.auth.oauth.web import Bounds

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
