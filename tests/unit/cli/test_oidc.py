"""Tokens of clients are checked by options, without Python."""

from pathlib import Path
from typing import Any

import pytest

from limpet.auth.verifiers import Introspection, JwtVerifier
from limpet.cli.behind import ServerSource
from limpet.cli.options import Options
from limpet.cli.prepared import prepare, verifier_of
from limpet.errors import ConfigError
from limpet.server.proxy import Proxy

ISSUER, AUDIENCE = "https://id.example", "https://mcp.example/mcp"
ASKED = {"introspection_url": f"{ISSUER}/introspect", "introspection_id": "limpet"}


def test_an_issuer_gives_a_verifier_of_jwts() -> None:
    verifier = verifier_of(Options(oidc_issuer=ISSUER, oidc_audience=(AUDIENCE,)))
    assert isinstance(verifier, JwtVerifier)
    assert (verifier.authorization_servers, verifier.resource) == ((ISSUER,), AUDIENCE)
    same = verifier_of(Options(oidc_issuer=ISSUER, public_url=AUDIENCE))
    assert isinstance(same, JwtVerifier)
    assert same.resource == AUDIENCE


def test_an_endpoint_is_asked_with_a_secret_from_a_file_or_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret"
    file.write_text("s3cret\n")
    given = {**ASKED, "oidc_audience": (AUDIENCE,)}
    verifier = verifier_of(Options(**given, oidc_issuer=ISSUER, introspection_key=str(file)))  # type: ignore[arg-type]
    assert isinstance(verifier, Introspection)
    assert (verifier.authorization_servers, verifier.asked) == ((ISSUER,), f"{ISSUER}/introspect")
    monkeypatch.setenv("LIMPET_INTROSPECTION_SECRET", "s3cret")
    assert isinstance(verifier_of(Options(**given)), Introspection)  # type: ignore[arg-type]


def test_a_scope_of_an_option_is_needed_for_every_component_of_the_server_behind() -> None:
    options = Options(
        oidc_issuer=ISSUER, oidc_audience=(AUDIENCE,), oidc_scopes=("mcp.use",), scopes={"server": ("all",)}
    )
    server = prepare(ServerSource(url="https://far.example/mcp"), options)
    assert isinstance(server, Proxy)
    assert isinstance(server.verifier, JwtVerifier)
    assert set(server.scopes.server) == {"all", "mcp.use"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"oidc_audience": (AUDIENCE,)},
            "--oidc-audience needs --oidc-issuer URL or --introspection-url URL",
        ),
        ({"oidc_issuer": ISSUER}, "need --oidc-audience or --public-url"),
        ({"oidc_issuer": ISSUER, "public_url": AUDIENCE, "verifier": "a.py:b"}, "use one of them"),
        (
            {**ASKED, "public_url": AUDIENCE},
            "needs --introspection-id ID and --introspection-key",
        ),
        ({"oidc_issuer": "http://id.example", "public_url": AUDIENCE}, "https"),
    ],
)
def test_an_option_that_cannot_work_is_refused(
    given: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LIMPET_INTROSPECTION_SECRET", raising=False)
    with pytest.raises(ConfigError, match=said):
        verifier_of(Options(**given))
