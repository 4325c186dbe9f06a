"""Verifiers: they check the token of a request and return its principal. Give one to a server as `verifier`.

| verifier | the token is |
|---|---|
| `JwtVerifier` | a signed JWT of an authorization server, checked with the keys that the server publishes |
| `Introspection` | any string; the authorization server is asked about it (RFC 7662) |
| `StaticTokens` | one of a few fixed strings: for development and for machines |
| `TrustedHeader` | no token: a proxy has checked the client, and names it in a header |
| `AnyOf` | accepted by one of several verifiers |
"""

from limpet.auth.verifiers.any_of import AnyOf
from limpet.auth.verifiers.introspection import Introspection
from limpet.auth.verifiers.jwt_verifier import JwtVerifier
from limpet.auth.verifiers.static_tokens import StaticTokens
from limpet.auth.verifiers.trusted_header import TrustedHeader

__all__ = ["AnyOf", "Introspection", "JwtVerifier", "StaticTokens", "TrustedHeader"]
