"""The check of clients' tokens by options: an issuer of JWTs (OpenID Connect), or an introspection endpoint."""

from typing import Final

from limpet.auth import Verifier
from limpet.cli.options import Options
from limpet.cli.secrets import introspection_secret
from limpet.errors import ConfigError

_NEEDED: Final = "the URL of this server as clients know it, for which tokens are issued"


def verifier_of(options: Options) -> Verifier | None:
    """Return the verifier that the options describe; None: they describe none.

    Raises:
        ConfigError: an option is missing or invalid.
    """
    issuer, url = options.oidc_issuer or "", options.introspection_url or ""
    if not issuer and not url:
        for name in ("oidc_audience", "introspection_id", "introspection_key"):
            if getattr(options, name) is not None:
                raise ConfigError(
                    f"--{name.replace('_', '-')} needs --oidc-issuer URL or --introspection-url URL"
                )
        return None
    if options.verifier is not None:
        raise ConfigError(
            "--verifier checks tokens, and so does --oidc-issuer or --introspection-url: use one of them"
        )
    audience = options.oidc_audience or ((options.public_url,) if options.public_url else ())
    if not audience:
        raise ConfigError(
            f"--oidc-issuer and --introspection-url need --oidc-audience or --public-url: {_NEEDED}"
        )
    from limpet.auth.verifiers import Introspection, JwtVerifier  # noqa: PLC0415 - only for these options

    if not url:
        return JwtVerifier(issuer=issuer, audience=audience)
    client, secret = options.introspection_id, introspection_secret(options.introspection_key)
    if not client or secret is None:
        raise ConfigError("--introspection-url needs --introspection-id ID and --introspection-key PATH")
    return Introspection(url, client_id=client, client_secret=secret, audience=audience, issuer=issuer)
