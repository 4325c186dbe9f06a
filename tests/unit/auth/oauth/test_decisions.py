"""The rules of authorization, each alone: challenges, places, trust, scopes, issuers, methods, due dates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.auth.oauth.challenges import NOTHING, OAuthChallenge, oauth_challenge, parse
from limpet.auth.oauth.discovery import choose_issuer
from limpet.auth.oauth.grants import JwtBearer
from limpet.auth.oauth.identity import ClientIdentity, choose_method, prove
from limpet.auth.oauth.metadata import ServerMetadata, TokenAnswer, read
from limpet.auth.oauth.pkce import AuthorizationRequest, authorization_url, check_issuer, read_redirect
from limpet.auth.oauth.registration import Application, is_usable, known_client, registration
from limpet.auth.oauth.scopes import is_step_up, union, wanted, with_offline
from limpet.auth.oauth.tokens import Tokens, tokens_from
from limpet.auth.urls import canonical, check_trusted, covers, issuer_urls, resource_urls
from limpet.errors import AuthorizationFailed, ConfigError
from limpet.testing import SeededRandom, VirtualClock

ISSUER = "https://auth.example.com"
FAR = "https://mcp.example.com/mcp"
NEAR = "http://127.0.0.1:8000/mcp"
TICKET = AuthorizationRequest(
    state="s", verifier="v", issuer=ISSUER, redirect_uri="http://127.0.0.1:1/callback"
)


def server(**members: object) -> ServerMetadata:
    return ServerMetadata(issuer=ISSUER, token_endpoint=f"{ISSUER}/token", **members)  # type: ignore[arg-type]


# Challenges


def test_a_challenge_is_read_with_quotes_commas_and_odd_spaces() -> None:
    value = 'Bearer error="insufficient_scope" ,scope = "a, b" , resource_metadata="https://x/\\"y\\""'
    assert list(parse(value)) == [
        OAuthChallenge(
            "bearer", {"error": "insufficient_scope", "scope": "a, b", "resource_metadata": 'https://x/"y"'}
        )
    ]


def test_several_challenges_in_one_header_stay_apart() -> None:
    found = list(parse('Basic realm="x", Negotiate abc==, Bearer, DPoP algs="ES256", error=use_dpop_nonce'))
    assert [demand.scheme for demand in found] == ["basic", "negotiate", "bearer", "dpop"]
    assert found[3].parameters == {"algs": "ES256", "error": "use_dpop_nonce"}


def test_the_most_detailed_bearer_challenge_counts() -> None:
    headers = {"www-authenticate": ('Basic realm="x", a="1", b="2", c="3"', "Bearer", 'Bearer scope="a b"')}
    assert oauth_challenge(headers).scopes == ("a", "b")
    assert oauth_challenge({}) is NOTHING


def test_the_first_of_two_parameters_of_one_name_counts() -> None:
    assert oauth_challenge({"www-authenticate": ('Bearer scope="a", SCOPE="b"',)}).scopes == ("a",)


@given(st.text(max_size=300))
def test_no_header_makes_the_parser_fail(value: str) -> None:
    assert all(demand.scheme for demand in parse(value))


# Places


def test_metadata_is_sought_in_the_order_of_the_specification() -> None:
    assert resource_urls("https://example.com/public/mcp?x=1") == [
        "https://example.com/.well-known/oauth-protected-resource/public/mcp",
        "https://example.com/.well-known/oauth-protected-resource",
    ]
    assert resource_urls("https://example.com/") == [
        "https://example.com/.well-known/oauth-protected-resource"
    ]
    assert issuer_urls("https://auth.example.com/tenant1") == [
        "https://auth.example.com/.well-known/oauth-authorization-server/tenant1",
        "https://auth.example.com/.well-known/openid-configuration/tenant1",
        "https://auth.example.com/tenant1/.well-known/openid-configuration",
    ]
    assert issuer_urls(ISSUER) == [
        f"{ISSUER}/.well-known/oauth-authorization-server",
        f"{ISSUER}/.well-known/openid-configuration",
    ]


def test_a_resource_has_one_canonical_name() -> None:
    assert canonical("HTTPS://MCP.Example.com/") == "https://mcp.example.com"
    assert canonical("https://mcp.example.com/Server/mcp#part") == "https://mcp.example.com/Server/mcp"


@pytest.mark.parametrize(
    ("resource", "is_ours"),
    [
        (FAR, True),
        ("https://MCP.example.com:443", True),
        ("https://mcp.example.com/", True),
        ("https://mcp.example.com/mc", False),
        ("https://mcp.example.com/mcp/deeper", False),
        ("https://mcp.example.com:8443/mcp", False),
        ("http://mcp.example.com/mcp", False),
        ("https://evil.example.com/mcp", False),
        (f"{FAR}#part", False),
    ],
)
def test_a_token_is_asked_for_only_where_it_is_for_this_server(resource: str, is_ours: bool) -> None:
    assert covers(resource, FAR) is is_ours


@pytest.mark.parametrize(
    ("url", "near"),
    [
        ("http://auth.example.com/token", FAR),
        ("http://127.0.0.1:9/token", FAR),
        ("https://localhost/token", FAR),
        ("http://[::1]/token", FAR),
        ("http://auth.example.com/token", NEAR),
        ("file:///etc/passwd", NEAR),
        ("javascript:alert(1)", NEAR),
        ("https://user@auth.example.com/token", FAR),
        ("https://auth.example.com:99999/token", FAR),
        ("https://auth.example.com/\r\nx", FAR),
        ("", FAR),
    ],
)
def test_only_https_urls_are_fetched_and_loopback_only_for_a_loopback_server(url: str, near: str) -> None:
    with pytest.raises(AuthorizationFailed):
        check_trusted(url, near=near)


HERE = (
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "017700000001",
    "0177.0.0.1",
    "127.0.0.1.",
    "0.0.0.0",
    "0",
    "localhost",
    "localhost.",
    "LOCALHOST",
    "app.localhost",
    "localhost.localdomain",
    "ip6-localhost",
    "\uff11\uff12\uff17.0.0.1",
    "127\u30020\u30020\u30021",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
)
LINK = ("169.254.169.254", "0xa9fea9fe", "[fe80::1]", "[fe80::1%25eth0]", "[::ffff:169.254.169.254]")
PRIVATE = (
    "10.0.0.1",
    "10.1",
    "172.16.0.1",
    "192.168.1.1",
    "0300.0250.1.1",
    "100.64.0.1",
    "224.0.0.1",
    "[fc00::1]",
    "[fec0::1]",
    "[::ffff:10.0.0.1]",
    "intranet",
    "printer.local",
    "metadata.google.internal",
)
INVALID = ("127%2e0.0.1", "auth.example.com\\.evil", "[::1", "")


@pytest.mark.parametrize("host", [*HERE, *LINK, *PRIVATE, *INVALID])
def test_a_public_server_sends_no_client_to_a_private_host_in_any_spelling(host: str) -> None:
    for scheme in ("https", "http"):
        with pytest.raises(AuthorizationFailed, match="is not used for authorization"):
            check_trusted(f"{scheme}://{host}/token", near=FAR)


@pytest.mark.parametrize("host", ["auth.example.com", "8.8.8.8", "[2606:4700::1111]", "b\u00fccher.example"])
def test_public_hosts_are_gone_to_over_https(host: str) -> None:
    assert check_trusted(f"https://{host}/token", near=FAR)
    with pytest.raises(AuthorizationFailed, match="only https"):
        check_trusted(f"http://{host}/token", near=NEAR)


@pytest.mark.parametrize("host", HERE)
def test_this_machine_is_this_machine_in_every_spelling(host: str) -> None:
    for url, near in ((f"http://{host}/token", NEAR), (NEAR, f"http://{host}/mcp")):
        assert check_trusted(url, near=near) == url


def test_a_private_server_names_private_hosts_over_https_and_never_this_machine() -> None:
    near = "https://10.0.0.5/mcp"
    assert check_trusted("https://10.0.0.6/token", near=near)
    assert check_trusted("https://auth.example.com/token", near=near)
    for url in ("http://10.0.0.6/token", "https://127.0.0.1/token", "https://169.254.169.254/token"):
        with pytest.raises(AuthorizationFailed):
            check_trusted(url, near=near)
    with pytest.raises(AuthorizationFailed):
        check_trusted("http://169.254.169.254/token", near=NEAR)


def test_a_loopback_server_may_name_loopback_and_remote_servers() -> None:
    for url in ("http://localhost:9/token", "http://127.0.0.9/token", "https://auth.example.com/token"):
        assert check_trusted(url, near=NEAR) == url


def test_a_preferred_issuer_is_taken_only_if_the_server_names_it() -> None:
    assert choose_issuer(["a", "b"], ["c", "b"]) == "b"
    assert choose_issuer(["a", "b"], ["c"]) == "a"
    with pytest.raises(AuthorizationFailed):
        choose_issuer([], ["c"])


# Scopes


def test_scopes_come_from_the_challenge_then_from_the_list_and_are_left_out_otherwise() -> None:
    challenge = OAuthChallenge("bearer", {"scope": "a b"})
    assert wanted(challenge, (), ["x"]) == ("a", "b")
    assert wanted(NOTHING, (), ["x", "y"]) == ("x", "y")
    assert wanted(NOTHING, (), None) == ()
    assert wanted(challenge, ("mine",), ["x"]) == ("a", "b", "mine")
    assert wanted(NOTHING, ("mine",), ["x"]) == ("mine",)


def test_asking_again_helps_only_for_scopes_not_asked_for_yet() -> None:
    assert is_step_up(OAuthChallenge("bearer", {"scope": "a b"}), ("a",))
    assert not is_step_up(OAuthChallenge("bearer", {"scope": "a"}), ("a", "b"))
    assert not is_step_up(OAuthChallenge("bearer", {}), ())
    assert union(("a", "b"), ("b", "c")) == ("a", "b", "c")


def test_offline_access_is_added_where_it_is_offered_and_never_alone() -> None:
    assert with_offline(("a",), ["a", "offline_access"], None) == ("a", "offline_access")
    assert with_offline(("a",), ["a", "offline_access"], ["authorization_code"]) == ("a",)
    assert with_offline(("a",), ["a"], None) == ("a",)
    assert with_offline(("a",), None, None) == ("a",)
    assert with_offline((), ["offline_access"], None) == ()


# Answers


@pytest.mark.parametrize(
    ("given_issuer", "says_issuer", "is_right"),
    [
        (ISSUER, True, True),
        (None, True, False),
        (f"{ISSUER}/", True, False),
        (ISSUER, False, True),
        ("https://evil.example.com", False, False),
        ("HTTPS://auth.example.com", False, False),
        (None, False, True),
    ],
)
def test_an_answers_issuer_is_compared_letter_by_letter(
    given_issuer: str | None, says_issuer: bool, is_right: bool
) -> None:
    if is_right:
        check_issuer(given_issuer, ISSUER, says_issuer=says_issuer)
    else:
        with pytest.raises(AuthorizationFailed):
            check_issuer(given_issuer, ISSUER, says_issuer=says_issuer)


@pytest.mark.parametrize(
    "query",
    ["code=c", "code=c&state=other", "code=c&state=s&state=s", "state=s", "code=c&state=", "state=s&code="],
)
def test_an_answer_to_another_request_is_not_taken(query: str) -> None:
    with pytest.raises(AuthorizationFailed):
        read_redirect(TICKET, f"http://127.0.0.1:1/callback?{query}", says_issuer=False)


def test_an_error_from_a_foreign_issuer_is_not_shown() -> None:
    with pytest.raises(AuthorizationFailed) as failed:
        read_redirect(TICKET, "http://x/?state=s&error=visit_evil&iss=https://evil", says_issuer=False)
    assert "visit_evil" not in str(failed.value)
    with pytest.raises(AuthorizationFailed) as failed:
        read_redirect(TICKET, f"http://x/?state=s&error=access_denied&iss={ISSUER}", says_issuer=True)
    assert failed.value.error == "access_denied"


def test_the_challenge_of_rfc_7636_is_computed() -> None:
    ticket = AuthorizationRequest(
        state="s", verifier="dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", issuer=ISSUER, redirect_uri="r"
    )
    assert ticket.challenge == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


def test_an_endpoints_own_query_is_kept() -> None:
    url = authorization_url(f"{ISSUER}/authorize?tenant=1", TICKET, "id", FAR, ("a", "b"))
    assert url.startswith(f"{ISSUER}/authorize?tenant=1&response_type=code&client_id=id&")
    assert "scope=a+b" in url
    assert "prompt" not in url
    assert "scope" not in authorization_url(f"{ISSUER}/authorize", TICKET, "id", FAR, ())


def test_a_token_is_due_before_its_end_by_half_a_minute_or_a_fifth_of_its_life() -> None:
    long = tokens_from(TokenAnswer(access_token="a", expires_in=3600), 1000.0)
    assert not long.is_due(1000.0 + 3569)
    assert long.is_due(1000.0 + 3570)
    assert not long.is_over(1000.0 + 3599)
    short = tokens_from(TokenAnswer(access_token="a", expires_in=10), 1000.0)
    assert not short.is_due(1007.0)
    assert short.is_due(1008.0)
    assert not tokens_from(TokenAnswer(access_token="a"), 1000.0).is_due(1e12)


def test_a_refresh_token_is_kept_until_it_is_replaced() -> None:
    before = Tokens(access="a", refresh="r")
    assert tokens_from(TokenAnswer(access_token="b"), 0.0, before).refresh == "r"
    assert tokens_from(TokenAnswer(access_token="b", refresh_token="n"), 0.0, before).refresh == "n"


@pytest.mark.parametrize(("access", "kind"), [("a\r\nx: y", "Bearer"), ("", "Bearer"), ("a", "mac")])
def test_a_token_that_cannot_be_sent_is_refused(access: str, kind: str) -> None:
    with pytest.raises(AuthorizationFailed):
        tokens_from(TokenAnswer(access_token=access, token_type=kind), 0.0)


def test_numbers_written_as_text_are_read_and_garbage_is_ignored() -> None:
    answer = read(b'{"access_token":"a","token_type":"bearer","expires_in":"60","else":[]}', TokenAnswer)
    assert answer is not None
    assert answer.expires_in == 60
    for body in (b"", b"<html>", b"[]", b'{"token_type":"bearer"}', b"[" * 100_000):
        assert read(body, TokenAnswer) is None


# Clients


@pytest.mark.parametrize(
    ("identity", "supported", "method"),
    [
        (ClientIdentity("i"), ["client_secret_basic"], "none"),
        (ClientIdentity("i", secret="s", issuer=ISSUER), None, "client_secret_basic"),
        (
            ClientIdentity("i", secret="s", issuer=ISSUER),
            ["client_secret_post", "client_secret_basic"],
            "client_secret_basic",
        ),
        (ClientIdentity("i", secret="s", issuer=ISSUER), ["client_secret_post"], "client_secret_post"),
        (ClientIdentity("i", secret="s", issuer=ISSUER), ["none"], "none"),
        (ClientIdentity("i", private_key="k"), None, "private_key_jwt"),
        (
            ClientIdentity("i", secret="s", issuer=ISSUER, method="client_secret_post"),
            ["client_secret_basic"],
            "client_secret_post",
        ),
    ],
)
def test_the_token_endpoint_method_is_one_that_both_sides_support(
    identity: ClientIdentity, supported: list[str] | None, method: str
) -> None:
    assert choose_method(identity, supported) == method


def test_a_secret_names_the_authorization_server_that_may_receive_it() -> None:
    with pytest.raises(ConfigError, match="issuer="):
        ClientIdentity("service", secret="s3cret")
    with pytest.raises(ConfigError, match="issuer="):
        JwtBearer("a.signed.word")
    assert ClientIdentity("public").issuer == ""


def test_a_secret_is_escaped_inside_basic_and_shown_to_no_other_issuer() -> None:
    identity = ClientIdentity("a:b", secret="s%/", issuer=ISSUER)
    proof = prove(identity, ISSUER, None, VirtualClock(), SeededRandom(1))
    assert proof.headers == {"authorization": "Basic YSUzQWI6cyUyNSUyRg=="}
    with pytest.raises(AuthorizationFailed):
        prove(identity, f"{ISSUER}/", None, VirtualClock(), SeededRandom(1))


def test_a_client_id_is_taken_from_the_argument_then_a_document_then_registration() -> None:
    by_hand = ClientIdentity("mine")
    documented = Application(document="https://app.example.com/client.json")
    with_documents = server(client_id_metadata_document_supported=True)
    assert known_client(Application(client=by_hand), with_documents, "") is by_hand
    found = known_client(documented, with_documents, "https://another.example.com")
    assert found is not None
    assert found.id == "https://app.example.com/client.json"
    assert known_client(documented, server(), "") is None


@pytest.mark.parametrize(
    ("named", "bound"), [("https://old.example.com", ""), ("", "https://old.example.com")]
)
def test_a_client_registered_by_hand_is_not_shown_to_another_authorization_server(
    named: str, bound: str
) -> None:
    with pytest.raises(AuthorizationFailed, match=r"old\.example\.com"):
        known_client(Application(client=ClientIdentity("mine", issuer=named)), server(), bound)


def test_a_registration_serves_until_its_secret_ends_and_only_where_it_was_made() -> None:
    client = ClientIdentity("i", issuer=ISSUER, redirect_uri="r", expires=50.0)
    assert is_usable(client, server(), "r", 49.0)
    assert not is_usable(client, server(), "r", 50.0)
    assert not is_usable(client, server(), "other", 49.0)
    assert not is_usable(ClientIdentity("i", issuer="https://b", redirect_uri="r"), server(), "r", 0.0)


def test_a_registration_states_the_kind_of_application() -> None:
    native = registration(server(), Application(), "http://127.0.0.1:1/callback")
    assert native["application_type"] == "native"
    assert native["token_endpoint_auth_method"] == "none"
    assert native["grant_types"] == ["authorization_code", "refresh_token"]
    methods = server(
        token_endpoint_auth_methods_supported=["client_secret_post"],
        grant_types_supported=["authorization_code"],
    )
    web = registration(methods, Application(is_proving=True), "https://app.example.com/callback")
    assert web["application_type"] == "web"
    assert web["token_endpoint_auth_method"] == "client_secret_post"
    assert web["grant_types"] == ["authorization_code"]
    assert web["dpop_bound_access_tokens"] is True
