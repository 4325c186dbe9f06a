"""The variables of a child: which may come from a client, and which values are refused."""

from typing import Any

import pytest

from limpet.auth import Principal
from limpet.backs.environment import VALUE_BYTES, Environment, FromClaim, FromHeader
from limpet.engine.caller import Caller
from limpet.errors import ConfigError, McpError


def caller(claims: dict[str, Any] | None = None, **headers: str) -> Caller:
    principal = Principal(subject="ada", issuer="https://issuer.test", claims=claims or {})
    return Caller(
        principal.key, principal, {name.replace("_", "-"): value for name, value in headers.items()}
    )


def test_values_come_from_headers_and_claims_beside_the_fixed_ones() -> None:
    environment = Environment(
        {
            "FIXED": "header:x",
            "API_KEY": FromHeader("X-Api-Key"),
            "TENANT": FromClaim("tenant"),
            "GROUPS": FromClaim("groups"),
            "USER_ID": FromClaim("sub"),
        }
    )
    assert environment.needs_client
    given = caller({"tenant": "red", "groups": ["a", "b"]}, x_api_key="secret")
    assert environment.of(given) == {
        "FIXED": "header:x",
        "API_KEY": "secret",
        "TENANT": "red",
        "GROUPS": '["a","b"]',
        "USER_ID": "ada",
    }
    assert "secret" not in repr(environment)


@pytest.mark.parametrize(
    ("source", "said"), [(FromHeader("X-Key"), "the header X-Key"), (FromClaim("tenant"), "the claim tenant")]
)
def test_a_missing_value_is_an_error_that_names_it(source: FromHeader | FromClaim, said: str) -> None:
    environment = Environment({"KEY": source})
    for one in (caller(), Caller("")):
        with pytest.raises(McpError, match=f"needs {said}, and the request does not have it"):
            environment.of(one)
        with pytest.raises(McpError, match=said):
            environment.key(one)


def test_a_value_is_bounded_and_has_no_nul() -> None:
    environment = Environment({"KEY": FromHeader("x-key")})
    assert len(environment.of(caller(x_key="x" * VALUE_BYTES))["KEY"]) == VALUE_BYTES
    for value in ("x" * (VALUE_BYTES + 1), "é" * (VALUE_BYTES // 2 + 1), "a\0b"):
        with pytest.raises(McpError, match="the header x-key is over 8192 bytes or has a NUL") as refused:
            environment.of(caller(x_key=value))
        assert value not in str(refused.value)


@pytest.mark.parametrize(
    "name",
    [
        *("LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "PATH", "path", "NODE_OPTIONS", "node_path"),
        *("PYTHONPATH", "PYTHONSTARTUP", "BASH_ENV", "BASH_FUNC_x", "ENV", "IFS", "PERL5LIB", "PERL5OPT", "RUBYOPT"),
        *("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH", "GIT_SSH_COMMAND", "NPM_CONFIG_REGISTRY", "npm_config_x"),
        *("HTTPS_PROXY", "https_proxy", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "OPENSSL_CONF", "HOME", "TMPDIR", "SHELL"),
        *("DOTNET_STARTUP_HOOKS", "PHPRC", "PHP_INI_SCAN_DIR", "GODEBUG", "GCONV_PATH", "UV_INDEX_URL", "PIP_INDEX_URL"),
        *("LIMPET_STORE", "limpet_x", "", "A B", "A=B", "1A", "A\0"),
    ],
)  # fmt: skip
def test_a_variable_that_could_change_the_program_or_its_peers_never_comes_from_a_client(name: str) -> None:
    for source in (FromHeader("x"), FromClaim("x")):
        with pytest.raises(ConfigError):
            Environment({name: source})


@pytest.mark.parametrize(
    "name", ["API_KEY", "GITHUB_TOKEN", "GOOGLE_API_KEY", "OPENAI_API_KEY", "NPM_TOKEN", "_x"]
)
def test_the_usual_names_of_credentials_are_allowed(name: str) -> None:
    assert Environment({name: FromHeader("x")}).of(caller(x="1")) == {name: "1"}


def test_a_header_or_claim_needs_a_name() -> None:
    for source in (FromHeader(""), FromClaim(""), FromHeader("a b"), FromHeader("a\r\nb")):
        with pytest.raises(ConfigError, match="needs the name of a header or a claim"):
            Environment({"KEY": source})


def test_the_key_differs_exactly_if_a_value_of_the_client_differs() -> None:
    environment = Environment({"FIXED": "1", "A": FromHeader("x-a"), "B": FromHeader("x-b")})
    keys = [
        environment.key(caller(x_a=a, x_b=b, x_other=other))
        for a, b, other in (("1", "2", ""), ("1", "2", "x"), ("2", "1", ""), ("12", "", ""), ("1", "3", ""))
    ]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 4
    assert Environment({"FIXED": "1"}).key(caller()) == b""
