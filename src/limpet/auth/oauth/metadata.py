"""The documents of OAuth as types. Members that are not used are ignored."""

from typing import TypeVar

import msgspec
from msgspec import Struct


class ResourceMetadata(Struct, frozen=True):
    """The metadata of a protected server (RFC 9728)."""

    resource: str
    authorization_servers: list[str] | None = None
    scopes_supported: list[str] | None = None


class ServerMetadata(Struct, frozen=True):
    """The metadata of an authorization server (RFC 8414, OpenID discovery)."""

    issuer: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    scopes_supported: list[str] | None = None
    grant_types_supported: list[str] | None = None
    code_challenge_methods_supported: list[str] | None = None
    token_endpoint_auth_methods_supported: list[str] | None = None
    dpop_signing_alg_values_supported: list[str] | None = None
    authorization_response_iss_parameter_supported: bool | None = None
    client_id_metadata_document_supported: bool | None = None


class TokenAnswer(Struct, frozen=True):
    """RFC 6749, 5.1."""

    access_token: str
    token_type: str = "Bearer"  # noqa: S105 - a type, not a token
    expires_in: float | None = None
    refresh_token: str | None = None
    scope: str | None = None


class RegistrationAnswer(Struct, frozen=True):
    """RFC 7591, 3.2.1."""

    client_id: str
    client_secret: str | None = None
    client_secret_expires_at: float | None = None
    token_endpoint_auth_method: str | None = None


class ErrorAnswer(Struct, frozen=True):
    """RFC 6749, 5.2."""

    error: str
    error_description: str | None = None

    def __str__(self) -> str:
        """Return the text without control characters and not too long, for an error message."""
        text = f"{self.error}: {self.error_description}" if self.error_description else self.error
        return "".join(letter if letter.isprintable() else " " for letter in text[:300])


Document = TypeVar("Document")


def read(body: bytes, kind: type[Document]) -> Document | None:
    """Return the document; None if the body is not valid. Numbers may be strings: some servers write them so."""
    try:
        return msgspec.json.decode(body, type=kind, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
