"""A client's tokens: obtained once for all requests, renewed in time, extended, stored, and sent to no other server."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from aiohttp import web

from limpet.auth.authorizer import Challenge
from limpet.auth.oauth import (
    AuthorizationCode,
    Bounds,
    ClientCredentials,
    ClientIdentity,
    FileStorage,
    Grant,
    JwtBearer,
    MemoryStorage,
    OAuth,
    TokenStorage,
)
from limpet.errors import AuthorizationFailed, ConfigError, NotSent, Unauthorized
from limpet.testing import SeededRandom, VirtualClock
from tests.support import async_test, until
from tests.unit.auth.oauth.authority import Authority, authority, call

REDIRECT_URI = "http://127.0.0.1:3000/callback"


def user(
    at: Authority,
    *,
    storage: TokenStorage | None = None,
    clock: VirtualClock | None = None,
    browse: Callable[[str], Awaitable[str]] | None = None,
    **options: Any,
) -> OAuth:
    return OAuth(
        AuthorizationCode(browse or at.browse, redirect_uri=REDIRECT_URI),
        storage=storage or MemoryStorage(),
        ports=(clock or VirtualClock(), SeededRandom(1)),
        **options,
    )


async def fails(at: Authority, oauth: OAuth, match: str) -> None:
    with pytest.raises(AuthorizationFailed, match=match):
        await call(oauth, at.url)


@async_test
async def test_the_first_refusal_leads_to_a_token_and_later_requests_carry_it() -> None:
    async with authority() as at:
        oauth = user(at)
        assert [await call(oauth, at.url) for _ in range(3)] == [200, 200, 200]
        assert (at.seen["/mcp"], at.seen["/authorize"], at.seen["/token"]) == (4, 1, 1)
        assert at.forms[0]["resource"] == at.url


@async_test
async def test_twenty_requests_at_once_ask_the_user_once() -> None:
    async with authority() as at:
        oauth = user(at)
        assert await asyncio.gather(*(call(oauth, at.url) for _ in range(20))) == [200] * 20
        assert (at.seen["/authorize"], at.seen["/register"], at.seen["/token"]) == (1, 1, 1)


@async_test
async def test_a_user_who_declines_is_asked_once_and_every_request_fails() -> None:
    async with authority() as at:
        visits = 0

        async def refuse(url: str) -> str:
            nonlocal visits
            visits += 1
            await at.gate.wait()
            answer = await at.browse(url)
            return answer.replace("code=the-code", "error=access_denied")

        at.gate.clear()
        oauth = user(at, browse=refuse)
        calls = [asyncio.create_task(call(oauth, at.url)) for _ in range(20)]
        await until(lambda: at.seen["/mcp"] == 20 and visits == 1)
        at.gate.set()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {getattr(outcome, "error", None) for outcome in outcomes} == {"access_denied"}
        assert visits == 1


@async_test
async def test_an_expiring_token_is_refreshed_once_before_it_is_sent() -> None:
    async with authority() as at:
        clock = VirtualClock()
        oauth = user(at, clock=clock)
        await call(oauth, at.url)
        clock.advance(3571)
        before = at.seen["/mcp"]
        assert await asyncio.gather(*(call(oauth, at.url) for _ in range(10))) == [200] * 10
        assert at.seen["/mcp"] == before + 10
        assert [form["grant_type"] for form in at.forms] == ["authorization_code", "refresh_token"]
        assert at.forms[1]["resource"] == at.url
        assert at.seen["/authorize"] == 1


@async_test
async def test_a_refused_token_is_refreshed_and_if_that_fails_the_user_is_asked() -> None:
    async with authority() as at:
        oauth = user(at)
        await call(oauth, at.url)
        at.forget_tokens()
        assert await call(oauth, at.url) == 200
        assert at.seen["/authorize"] == 1
        at.forget_tokens()
        at.refresh = "revoked"
        assert await call(oauth, at.url) == 200
        assert at.seen["/authorize"] == 2


@async_test
async def test_a_refreshed_token_that_is_refused_again_leads_to_the_user() -> None:
    async with authority() as at:
        oauth = user(at)
        await call(oauth, at.url)
        at.forget_tokens()

        async def refreshed_and_forgotten(request: web.BaseRequest) -> web.StreamResponse:
            answer = await at._token(request)
            if at.forms[-1]["grant_type"] == "refresh_token":
                at.forget_tokens()
            return answer

        at.instead["/token"] = refreshed_and_forgotten
        assert await call(oauth, at.url) == 200
        grants = [form["grant_type"] for form in at.forms]
        assert grants == ["authorization_code", "refresh_token", "authorization_code"]


@async_test
async def test_requests_at_once_all_take_up_the_nonce_that_the_server_wants() -> None:
    async with authority() as at:
        at.metadata["dpop_signing_alg_values_supported"] = ["ES256"]
        oauth = user(at, dpop=True)
        assert await call(oauth, at.url) == 200
        all_there = asyncio.Barrier(3)

        async def wants_nonce(request: web.BaseRequest) -> web.StreamResponse:
            if _claims(request.headers["dpop"]).get("nonce") == "n1":
                return await at._mcp(request)
            await all_there.wait()
            refusal = {"www-authenticate": 'DPoP error="use_dpop_nonce"', "dpop-nonce": "n1"}
            return web.Response(status=401, headers=refusal)

        at.instead["/mcp"] = wants_nonce
        assert await asyncio.gather(*(call(oauth, at.url) for _ in range(3))) == [200, 200, 200]
        assert at.seen["/authorize"] == 1


@async_test
async def test_an_authorization_server_that_never_returns_leads_to_the_user_when_the_token_ends() -> None:
    async with authority() as at:
        clock = VirtualClock()
        oauth = user(at, clock=clock)
        await call(oauth, at.url)
        at.metadata["issuer"] = "https://another.example.com"
        clock.advance(3580)
        assert await call(oauth, at.url) == 200
        clock.advance(30)
        assert await oauth.headers("POST", at.url) == {}
        del at.metadata["issuer"]
        assert await call(oauth, at.url) == 200
        assert at.seen["/authorize"] == 2


@async_test
async def test_a_token_is_used_until_it_expires_while_it_cannot_be_renewed() -> None:
    async with authority() as at:
        clock = VirtualClock()
        oauth = user(at, clock=clock)
        await call(oauth, at.url)

        async def down(_request: web.BaseRequest) -> web.Response:
            return web.Response(status=503)

        at.instead["/token"] = down
        clock.advance(3580)
        assert await call(oauth, at.url) == 200
        clock.advance(30)
        with pytest.raises(NotSent):
            await call(oauth, at.url)
        del at.instead["/token"]
        assert await call(oauth, at.url) == 200
        assert at.seen["/authorize"] == 1


@async_test
async def test_another_process_uses_the_files_of_the_first(tmp_path: Path) -> None:
    async with authority() as at:
        clock = VirtualClock()
        await call(user(at, storage=FileStorage(tmp_path), clock=clock), at.url)
        again = user(at, storage=FileStorage(tmp_path), clock=clock)
        assert await call(again, at.url) == 200
        clock.advance(4000)
        assert await call(again, at.url) == 200
        assert (at.seen["/authorize"], at.seen["/register"]) == (1, 1)


@async_test
async def test_applications_that_were_registered_by_hand_do_not_use_the_tokens_of_each_other(
    tmp_path: Path,
) -> None:
    async with authority() as at:
        for known in (None, ClientIdentity("desk"), ClientIdentity("gateway")):
            for _ in range(2):
                assert await call(user(at, storage=FileStorage(tmp_path), client=known), at.url) == 200
            at.forget_tokens()
        assert at.seen["/authorize"] == 3
        assert [form["client_id"] for form in at.forms] == ["client-1", "desk", "gateway"]


@async_test
async def test_a_refresh_token_that_another_process_has_used_is_not_used_again(tmp_path: Path) -> None:
    async with authority() as at:
        clock = VirtualClock()
        first = user(at, storage=FileStorage(tmp_path), clock=clock)
        await call(first, at.url)
        second = user(at, storage=FileStorage(tmp_path), clock=clock)
        await call(second, at.url)
        clock.advance(3580)
        assert await call(first, at.url) == 200
        assert await call(second, at.url) == 200
        assert [form["grant_type"] for form in at.forms] == ["authorization_code", "refresh_token"]


@async_test
async def test_more_scopes_are_asked_for_together_with_the_earlier_ones() -> None:
    async with authority() as at:
        at.required = {"read"}
        oauth = user(at)
        await call(oauth, at.url)
        at.required = {"write"}
        assert await call(oauth, at.url) == 200
        assert at.asked_scopes == ["read", "read write"]


def refusal(at: Authority, sent: Mapping[str, str], status: int, scope: str) -> Challenge:
    error = 'error="insufficient_scope", ' if status == 403 else ""
    headers = {"www-authenticate": (f'Bearer {error}scope="{scope}"',)}
    return Challenge(method="POST", url=at.url, status=status, headers=headers, sent=sent, attempt=1)


@async_test
async def test_a_refusal_of_a_token_that_has_been_replaced_meanwhile_is_out_of_date() -> None:
    async with authority() as at:
        at.required = {"read"}
        oauth = user(at)
        await call(oauth, at.url)
        old = await oauth.headers("POST", at.url)
        at.required = {"write"}
        await call(oauth, at.url)
        assert await oauth.challenged(refusal(at, old, 403, "write"))
        new = await oauth.headers("POST", at.url)
        assert not await oauth.challenged(refusal(at, new, 403, "write"))
        assert at.asked_scopes == ["read", "read write"]


@async_test
async def test_different_refusals_at_once_do_not_undo_each_other() -> None:
    async with authority() as at:
        oauth = user(at)
        refusals = (refusal(at, {}, 401, scope) for scope in ("a", "b", "c"))
        assert await asyncio.gather(*map(oauth.challenged, refusals)) == [True] * 3
        assert (at.seen["/authorize"], at.seen["/token"]) == (1, 1)


@async_test
async def test_metadata_is_not_fetched_over_plain_http() -> None:
    async with authority() as at:

        async def elsewhere(_request: web.BaseRequest) -> web.Response:
            value = 'Bearer resource_metadata="http://mcp.example.com/metadata"'
            return web.Response(status=401, headers={"www-authenticate": value})

        at.instead["/mcp"] = elsewhere
        await fails(at, user(at), "only https")


@async_test
async def test_a_server_that_is_never_satisfied_does_not_ask_the_user_forever() -> None:
    async with authority() as at:
        at.required = {"admin"}
        oauth = user(at)

        async def nothing_granted(request: web.BaseRequest) -> web.StreamResponse:
            answer = await at._token(request)
            at.valid = {token: set() for token in at.valid}
            return answer

        at.instead["/token"] = nothing_granted
        assert await call(oauth, at.url) == 403
        assert at.seen["/authorize"] == 1


@async_test
async def test_a_fresh_token_that_is_refused_does_not_lead_to_the_same_again() -> None:
    async with authority() as at:

        async def issued_and_forgotten(request: web.BaseRequest) -> web.StreamResponse:
            answer = await at._token(request)
            at.forget_tokens()
            return answer

        at.instead["/token"] = issued_and_forgotten
        at.gives_refresh = False
        assert await call(user(at), at.url) == 401
        assert at.seen["/authorize"] == 1


@async_test
async def test_a_new_authorization_server_gets_a_registration_of_its_own() -> None:
    async with authority() as old, authority() as new:
        oauth = user(old, browse=lambda url: (new if new.base in url.partition("?")[0] else old).browse(url))
        old.required = {"before"}
        await call(oauth, old.url)
        old.required = {"after"}
        old.resource["authorization_servers"] = [new.base]
        old.forget_tokens()

        async def also_takes_new_tokens(request: web.BaseRequest) -> web.StreamResponse:
            old.valid |= new.valid
            return await old._mcp(request)

        old.instead["/mcp"] = also_takes_new_tokens
        assert await call(oauth, old.url) == 200
        assert new.seen["/register"] == 1
        assert [form["grant_type"] for form in old.forms] == ["authorization_code"]
        assert new.asked_scopes == ["after"]


@async_test
async def test_a_client_registered_by_hand_is_not_taken_to_a_new_authorization_server() -> None:
    async with authority() as old, authority() as new:
        oauth = user(old, client=ClientIdentity("by-hand", secret="s", issuer=old.base))
        await call(oauth, old.url)
        old.resource["authorization_servers"] = [new.base]
        old.forget_tokens()
        await fails(old, oauth, "register it there")
        assert (new.seen["/token"], new.seen["/authorize"]) == (0, 0)


@async_test
async def test_a_secret_is_sent_to_no_authorization_server_but_its_own() -> None:
    async with authority() as mine, authority() as evil:
        secret = ClientIdentity("service", secret="s3cret", issuer=mine.base)
        ways: list[tuple[Grant, ClientIdentity | None]] = [
            (ClientCredentials(), secret),
            (JwtBearer("a.signed.word", issuer=mine.base), None),
        ]
        for grant, client in ways:
            oauth = OAuth(grant, client=client, storage=MemoryStorage())
            await fails(evil, oauth, mine.base)
            assert (evil.seen["/token"], evil.forms) == (0, [])


@async_test
async def test_a_registration_that_is_forgotten_is_made_again() -> None:
    async with authority() as at:
        oauth = user(at)
        await call(oauth, at.url)
        at.forget_tokens()

        async def forgotten(_request: web.BaseRequest) -> web.Response:
            return web.json_response({"error": "invalid_client"}, status=401)

        at.instead["/token"] = forgotten
        await fails(at, oauth, "invalid_client")
        del at.instead["/token"]
        assert await call(oauth, at.url) == 200
        assert at.seen["/register"] == 2


@pytest.mark.parametrize(
    ("metadata", "match"),
    [
        ({"issuer": "https://evil.example.com"}, "no metadata of the authorization server"),
        ({"code_challenge_methods_supported": None}, "PKCE"),
        ({"code_challenge_methods_supported": ["plain"]}, "PKCE"),
        ({"token_endpoint": "http://auth.example.com/token"}, "only https"),
        ({"authorization_endpoint": "file:///bin/sh"}, "only https"),
        ({"registration_endpoint": None}, "pass it as `client`"),
    ],
)
@async_test
async def test_the_metadata_of_an_authorization_server_is_checked(
    metadata: dict[str, Any], match: str
) -> None:
    async with authority() as at:
        at.metadata = metadata
        await fails(at, user(at), match)
        assert at.seen["/authorize"] == 0


@async_test
async def test_a_token_for_another_resource_is_not_asked_for() -> None:
    async with authority() as at:
        at.resource["resource"] = "https://evil.example.com/mcp"
        await fails(at, user(at), "which is not")
        assert at.seen["/.well-known/oauth-authorization-server"] == 0


@async_test
async def test_documents_are_bounded_in_size_and_time() -> None:
    async with authority() as at:

        async def endless(request: web.BaseRequest) -> web.StreamResponse:
            answer = web.StreamResponse()
            await answer.prepare(request)
            while True:
                await answer.write(b" " * 65_536)

        async def silent(_request: web.BaseRequest) -> web.StreamResponse:
            await asyncio.Event().wait()
            raise AssertionError

        path = "/.well-known/oauth-protected-resource/mcp"
        at.instead[path] = endless
        await fails(at, user(at), "over 262144 bytes")
        at.instead[path] = silent
        with pytest.raises(NotSent, match=r"in 0\.2 seconds"):
            await call(user(at, bounds=Bounds(seconds=0.2)), at.url)


@pytest.mark.parametrize("path", ["/token", "/register"])
@async_test
async def test_no_redirect_is_followed_with_a_secret(path: str) -> None:
    async with authority() as at, authority() as thief:

        async def moved(_request: web.BaseRequest) -> web.Response:
            return web.Response(status=307, headers={"location": f"{thief.base}{path}"})

        at.instead[path] = moved
        await fails(at, user(at), "HTTP 307")
        assert not thief.seen


@async_test
async def test_a_cancelled_request_does_not_cancel_the_shared_authorization() -> None:
    async with authority() as at:
        at.gate.clear()
        oauth = user(at)
        calls = [asyncio.create_task(call(oauth, at.url)) for _ in range(3)]
        await until(lambda: at.seen["/mcp"] == 3 and at.seen["/authorize"] == 1)
        calls[0].cancel()
        await asyncio.wait({calls[0]})
        at.gate.set()
        assert await asyncio.gather(*calls[1:]) == [200, 200]
        assert at.seen["/authorize"] == 1


@async_test
async def test_the_authorization_is_cancelled_when_every_request_is() -> None:
    async with authority() as at:
        ended = asyncio.Event()

        async def wait_forever(_url: str) -> str:
            at.seen["/authorize"] += 1
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            raise AssertionError

        oauth = user(at, browse=wait_forever)
        calls = [asyncio.create_task(call(oauth, at.url)) for _ in range(2)]
        await until(lambda: at.seen["/mcp"] == 2 and at.seen["/authorize"] == 1)
        for one in calls:
            one.cancel()
        await asyncio.wait(calls)
        await ended.wait()


@async_test
async def test_a_user_who_never_answers_runs_into_the_time_limit() -> None:
    async with authority() as at:
        at.gate.clear()
        await fails(at, user(at, bounds=Bounds(browser=0.05)), "the user did not agree")


@async_test
async def test_a_client_by_itself_gets_another_token_without_a_refresh_token() -> None:
    async with authority() as at:
        at.gives_refresh = False
        at.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
        clock = VirtualClock()
        client = ClientIdentity("service", secret="s3cret", issuer=at.base)
        oauth = OAuth(ClientCredentials(), client=client, scopes=["a"], ports=(clock, SeededRandom(1)))
        assert await call(oauth, at.url) == 200
        clock.advance(3600)
        assert await call(oauth, at.url) == 200
        assert [form["grant_type"] for form in at.forms] == ["client_credentials"] * 2
        assert at.forms[1]["client_secret"] == "s3cret"
        assert at.forms[1]["scope"] == "a"


@async_test
async def test_a_key_outlives_the_process_with_the_tokens_that_are_bound_to_it(tmp_path: Path) -> None:
    async with authority() as at:
        at.metadata["dpop_signing_alg_values_supported"] = ["ES256"]
        clock = VirtualClock()
        first = user(at, storage=FileStorage(tmp_path), clock=clock, dpop=True)
        assert await call(first, at.url) == 200
        clock.advance(4000)
        second = user(at, storage=FileStorage(tmp_path), clock=clock, dpop=True)
        assert await call(second, at.url) == 200
        jwks = [_jwk(headers["dpop"]) for headers in at.token_headers]
        assert jwks[0] == jwks[1]
        assert at.seen["/authorize"] == 1
        headers = await second.headers("POST", at.url)
        assert headers["authorization"].startswith("DPoP ")
        assert headers["dpop"] != (await second.headers("POST", at.url))["dpop"]


def _jwk(proof: str) -> object:
    return jwt.get_unverified_header(proof)["jwk"]


def _claims(proof: str) -> dict[str, Any]:
    claims: dict[str, Any] = jwt.decode(proof, options={"verify_signature": False})
    return claims


@async_test
async def test_a_token_that_is_not_bound_is_refused_where_it_should_be() -> None:
    async with authority() as at:
        await fails(at, user(at, dpop=True), "does not bind tokens")
        at.metadata["dpop_signing_alg_values_supported"] = ["ES256"]

        async def unbound(_request: web.BaseRequest) -> web.Response:
            return web.json_response(at._issue("Bearer"))

        at.instead["/token"] = unbound
        await fails(at, user(at, dpop=True), "gave a Bearer token")


@async_test
async def test_no_secret_is_shown_in_reprs_or_errors() -> None:
    async with authority() as at:
        storage = MemoryStorage()
        identity = ClientIdentity("by-hand", secret="secret-of-client", issuer=at.base)
        oauth = user(at, storage=storage, client=identity)
        await call(oauth, at.url)
        kept = await storage.load(f"{at.url}#{identity.id}")
        assert kept is not None
        shown = f"{oauth!r} {oauth._accounts!r} {oauth._setup!r} {kept!r} {storage!r}"
        assert "secret-access" in str(at.valid)
        assert "secret-" not in shown


@async_test
async def test_a_token_is_not_sent_over_plain_http() -> None:
    oauth = OAuth(storage=MemoryStorage())
    with pytest.raises(Unauthorized, match="only https"):
        await oauth.headers("POST", "http://mcp.example.com/mcp")


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError):
        OAuth(client_document="http://app.example.com/client.json")

    async def browse(url: str) -> str:
        return url

    with pytest.raises(ConfigError):
        AuthorizationCode(browse)


# What the specification asks for beside


@async_test
async def test_the_resource_is_named_in_both_requests() -> None:
    async with authority() as at:
        asked: list[dict[str, list[str]]] = []

        async def browse(url: str) -> str:
            asked.append(parse_qs(urlsplit(url).query))
            return await at.browse(url)

        assert await call(user(at, browse=browse), at.url) == 200
        (query,) = asked
        assert query["resource"] == [at.url] == [at.forms[0]["resource"]]
        assert query["code_challenge_method"] == ["S256"]
        assert query["redirect_uri"] == [REDIRECT_URI] == [at.forms[0]["redirect_uri"]]
        assert len(query["state"][0]) >= 16


@async_test
async def test_the_metadata_of_a_server_is_sought_at_its_well_known_urls_if_the_challenge_names_none() -> (
    None
):
    async with authority() as at:

        async def bare(request: web.BaseRequest) -> web.StreamResponse:
            answer = await at._mcp(request)
            if answer.status == 401:
                answer.headers["www-authenticate"] = "Bearer"
            return answer

        at.instead["/mcp"] = bare
        assert await call(user(at), at.url) == 200
        assert at.seen["/.well-known/oauth-protected-resource/mcp"] == 1

        async def absent(_request: web.BaseRequest) -> web.Response:
            return web.Response(status=404)

        at.instead["/.well-known/oauth-protected-resource/mcp"] = absent
        at.instead["/.well-known/oauth-protected-resource"] = at._resource
        assert await call(user(at), at.url) == 200
        assert at.seen["/.well-known/oauth-protected-resource"] == 1


@async_test
async def test_a_registration_that_is_refused_is_an_error_with_the_reason() -> None:
    async with authority() as at:

        async def refused(_request: web.BaseRequest) -> web.Response:
            body = {"error": "invalid_redirect_uri", "error_description": "loopback is not allowed here"}
            return web.json_response(body, status=400)

        at.instead["/register"] = refused
        await fails(at, user(at), "loopback is not allowed here")
        assert at.seen["/authorize"] == 0


@pytest.mark.parametrize(
    "url", ["http://app.example/client.json", "https://app.example", "https://app.example/"]
)
def test_the_url_of_a_client_document_is_https_with_a_path(url: str) -> None:
    with pytest.raises(ConfigError, match="https URL with a path"):
        OAuth(ClientCredentials(), client_document=url)
