"""JWTs: the right ones are accepted, every kind of wrong one is refused, keys rotate, and outages are no refusals."""

import asyncio
import base64
import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from limpet.auth.verifiers import JwtVerifier
from limpet.auth.verifiers.key_set import KeySet
from limpet.errors import AuthorizationFailed, ConfigError
from limpet.testing import VirtualClock
from tests.support import async_test, until
from tests.unit.auth.verifiers.issuer import Issuer, issuer, jwk, rsa_key

AUDIENCE = "https://tools.example/mcp"
KEY, OTHER = rsa_key(), rsa_key()


def verifier(at: Issuer, **options: Any) -> JwtVerifier:
    return JwtVerifier(**{"issuer": at.base, "audience": AUDIENCE, **options})


@async_test
async def test_a_valid_token_is_a_principal_with_its_scopes_and_client() -> None:
    async with issuer() as at:
        at.keys = [jwk(KEY, kid="1", alg="RS256", use="sig")]
        token = at.token(
            KEY, headers={"kid": "1"}, scope="read write", client_id="app", exp=time.time() + 600
        )
        found = await verifier(at)(token)
        assert found is not None
        assert (found.subject, found.issuer, found.client) == ("ada", at.base, "app")
        assert found.scopes == {"read", "write"}
        assert found.expires is not None
        assert found.expires == pytest.approx(time.time() + 630, abs=5)


@async_test
async def test_scopes_may_be_a_list_and_the_audience_one_of_several() -> None:
    async with issuer() as at:
        at.keys = [jwk(KEY)]
        found = await verifier(at)(at.token(KEY, scp=["a", "b", 3], aud=["https://x.example", AUDIENCE]))
        assert found is not None
        assert found.scopes == {"a", "b"}


@async_test
async def test_claims_that_take_too_much_memory_are_refused() -> None:
    async with issuer() as at:
        at.keys = [jwk(KEY)]
        check = verifier(at)
        assert await check(at.token(KEY, groups=["g"] * 1_000)) is not None
        assert await check(at.token(KEY, groups=[{}] * 1_000)) is None


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example"},
        {"iss": None},
        {"aud": "https://other.example/mcp"},
        {"aud": None},
        {"aud": [{"deep": AUDIENCE}]},
        {"sub": None},
        {"sub": ""},
        {"sub": "a\0b"},
        {"exp": 1},
        {"exp": None},
        {"exp": True},
        {"nbf": 99_999_999_999},
        {"iat": 99_999_999_999},
        {"nbf": True},
        {"exp": 10**400},
        {"nbf": -(10**400)},
    ],
)
@async_test
async def test_a_token_whose_claims_break_a_rule_is_refused(claims: dict[str, Any]) -> None:
    async with issuer() as at:
        at.keys = [jwk(KEY)]
        check = verifier(at)
        assert await check(at.token(KEY)) is not None
        usual = {"iss": at.base, "aud": AUDIENCE, "sub": "ada", "exp": int(time.time()) + 600}
        kept = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        # PyJWT refuses to encode some of them, so the payload is signed as it is.
        token = jwt.api_jws.encode(json.dumps(kept).encode(), KEY, algorithm="RS256")
        assert await check(token) is None


@async_test
async def test_clocks_may_differ_by_the_leeway_only() -> None:
    async with issuer() as at:
        at.keys = [jwk(KEY)]
        now = time.time()
        check = verifier(at, leeway=30.0, clock=VirtualClock(now))
        assert await check(at.token(KEY, exp=now - 29)) is not None
        assert await check(at.token(KEY, exp=now - 31)) is None
        assert await check(at.token(KEY, nbf=now + 29)) is not None
        assert await check(at.token(KEY, nbf=now + 31)) is None


@async_test
async def test_a_token_signed_by_another_key_or_with_another_algorithm_is_refused() -> None:
    async with issuer() as at:
        at.keys = [jwk(KEY, kid="1")]
        check = verifier(at, algorithms=["RS256"])
        public = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        head = base64.urlsafe_b64encode(b'{"alg":"none","kid":"1"}').rstrip(b"=").decode()
        body = at.token(KEY).split(".")[1]
        # The public key as the secret of a symmetric signature: the classic confusion of algorithms.
        confused = jwt.api_jws.encode(
            base64.urlsafe_b64decode(body + "=="),
            base64.b64encode(public),
            algorithm="HS256",
            headers={"kid": "1"},
        )
        wrong = {
            "another key": at.token(OTHER, headers={"kid": "1"}),
            "another algorithm": at.token(KEY, headers={"kid": "1"}, algorithm="RS512"),
            "no signature": f"{head}.{body}.",
            "a symmetric one": confused,
            "its own key": at.token(OTHER, headers={"jwk": jwk(OTHER)}),
            "its own address": at.token(OTHER, headers={"jku": "https://evil.example/keys"}),
            "a demand": at.token(KEY, headers={"kid": "1", "crit": ["exp"]}),
            "not a token": "a.b",
            "long": "x" * 20_000,
            "a changed body": f"{at.token(KEY).split('.')[0]}.{base64.urlsafe_b64encode(b'{}').decode()}.x",
        }
        for name, token in wrong.items():
            assert await check(token) is None, name
        assert await check(at.token(KEY, headers={"kid": "1"})) is not None


@async_test
async def test_a_header_with_a_member_of_any_type_is_refused_and_never_fails() -> None:
    async with issuer() as at:
        at.keys = [jwk(KEY, kid="1")]
        check = verifier(at)
        _, body, signature = at.token(KEY, headers={"kid": "1"}).split(".")
        for name in ("alg", "kid", "typ", "crit", "b64"):
            for value in (None, True, 1, 1.5, "", "x", [], ["RS256"], {}, {"RS256": 1}):
                written = json.dumps({"alg": "RS256", "kid": "1", name: value}).encode()
                head = base64.urlsafe_b64encode(written).rstrip(b"=").decode()
                assert await check(f"{head}.{body}.{signature}") is None, (name, value)


@pytest.mark.parametrize("head", [b"[" * 9_000, b"[]", b"null", b"\xff", b'"RS256"', b"", b"1" * 5_000])
@async_test
async def test_a_header_that_is_no_object_is_refused_and_never_fails(head: bytes) -> None:
    check = JwtVerifier(issuer="https://id.example", audience=AUDIENCE)
    assert await check(f"{base64.urlsafe_b64encode(head).decode().rstrip('=')}.e30.e30") is None
    assert await check(f"\ud800{head.decode('latin-1')}.e30.e30") is None


@async_test
async def test_keys_that_are_not_for_signatures_are_never_used() -> None:
    async with issuer() as at:
        secret = base64.urlsafe_b64encode(b"k" * 32).decode()
        at.keys = [
            {"kty": "oct", "k": secret, "kid": "1", "alg": "HS256"},
            jwk(KEY, kid="2", use="enc"),
            {"kty": "RSA", "n": "bad", "e": "AQAB", "kid": "3"},
            "not a key",  # type: ignore[list-item]
            {"kty": "EC", "crv": ["P-256"]},
            {"kty": "RSA", "alg": ["RS256"]},
            jwk(KEY, kid="4", alg="RS512"),
            jwk(KEY, kid="5"),
        ]
        check = verifier(at)
        assert await check(at.token(KEY, headers={"kid": "5"})) is not None, "the others do no harm"
        for kid in ("1", "2", "3", "4"):
            assert await check(at.token(KEY, headers={"kid": kid})) is None, kid


@async_test
async def test_a_curve_fits_its_algorithm() -> None:
    async with issuer() as at:
        curve = ec.generate_private_key(ec.SECP256R1())
        at.keys = [jwk(curve, kid="1")]
        assert await verifier(at)(at.token(curve, headers={"kid": "1"}, algorithm="ES256")) is not None


@async_test
async def test_keys_are_fetched_once_and_a_new_key_is_found_without_a_restart() -> None:
    async with issuer() as at:
        at.keys = [jwk(KEY, kid="old")]
        clock = VirtualClock(time.time())
        check = verifier(at, clock=clock)
        for number in range(5):
            assert await check(at.token(KEY, headers={"kid": "old"}, jti=str(number))) is not None
        assert at.seen["/keys"] == 1
        at.keys = [jwk(OTHER, kid="new")]
        assert await check(at.token(OTHER, headers={"kid": "new"})) is not None
        assert await check(at.token(KEY, headers={"kid": "old"}, jti="late")) is None, "its key was removed"
        assert at.seen["/keys"] == 3


@async_test
async def test_a_client_that_names_unknown_keys_does_not_make_us_fetch_each_time() -> None:
    async with issuer() as at:
        at.keys = [jwk(KEY, kid="1")]
        clock = VirtualClock(time.time())
        check = verifier(at, clock=clock)
        for seconds, fetches in ((0, 5), (11, 6), (11, 7), (70, 12)):
            clock.advance(seconds)
            for number in range(20):
                assert await check(at.token(OTHER, headers={"kid": f"guess-{number}"}, jti=seconds)) is None
            assert at.seen["/keys"] == fetches


@async_test
async def test_tokens_that_come_while_the_keys_are_fetched_wait_for_them() -> None:
    async with issuer() as at:
        clock = VirtualClock(time.time())
        check = verifier(at, clock=clock)
        for number in range(10):
            assert await check(at.token(OTHER, headers={"kid": f"guess-{number}"})) is None
        clock.advance(11)
        at.keys, at.gate = [jwk(KEY, kid="1")], asyncio.Event()
        tokens = [at.token(KEY, headers={"kid": "1"}, jti=str(number)) for number in range(2)]
        first = asyncio.create_task(check(tokens[0]))
        await at.gate_waited.wait()
        second = asyncio.create_task(check(tokens[1]))
        await asyncio.sleep(0)
        at.gate.set()
        assert None not in await asyncio.gather(first, second)
        assert at.seen["/keys"] == 6


@async_test
async def test_a_fetch_that_was_abandoned_is_no_refusal() -> None:
    async with issuer() as at:
        at.keys, at.gate = [jwk(KEY, kid="1")], asyncio.Event()
        clock = VirtualClock(time.time())
        check = verifier(at, clock=clock)
        token = at.token(KEY, headers={"kid": "1"})
        for _ in range(5):
            waiting = asyncio.create_task(check(token))
            await at.gate_waited.wait()
            at.gate_waited.clear()
            waiting.cancel()
            await asyncio.wait({waiting})
        with pytest.raises(AuthorizationFailed, match="did not answer in time"):
            await check(token)
        at.gate.set()
        clock.advance(11)
        assert await check(token) is not None


@async_test
async def test_keys_that_grow_old_are_renewed_in_the_background() -> None:
    async with issuer() as at:
        at.keys = [jwk(KEY, kid="1", alg="RS256")]
        clock = VirtualClock()
        keys = KeySet(at.base, "", frozenset({"RS256"}), clock)
        assert len(await keys.find("1", "RS256")) == 1
        clock.advance(601)
        assert len(await keys.find("1", "RS256")) == 1
        await until(lambda: at.seen["/keys"] == 2)
        at.fails = True
        clock.advance(700)
        assert len(await keys.find("1", "RS256")) == 1, (
            "the old keys stay in use while the server is unavailable"
        )


@async_test
async def test_a_server_that_cannot_be_reached_is_no_refusal() -> None:
    async with issuer() as at:
        at.keys, at.fails = [jwk(KEY, kid="1")], True
        clock = VirtualClock(time.time())
        check = verifier(at, clock=clock)
        for _ in range(20):
            with pytest.raises(AuthorizationFailed):
                await check(at.token(KEY, headers={"kid": "1"}))
        assert at.seen["/.well-known/oauth-authorization-server"] == 5, "no storm of requests"
        at.fails = False
        clock.advance(11)
        assert await check(at.token(KEY, headers={"kid": "1"})) is not None


@pytest.mark.parametrize("path", ["/.well-known/oauth-authorization-server", "/keys"])
@pytest.mark.parametrize("document", [b'{"keys":' * 30_000, b'{"\xff":1}', b"[]", b"x" * 300_000])
@async_test
async def test_a_document_that_cannot_be_read_is_no_refusal_and_the_old_keys_stay(
    path: str, document: bytes
) -> None:
    async with issuer() as at:
        at.keys = [jwk(KEY, kid="1")]
        clock = VirtualClock(time.time())
        keys = KeySet(at.base, "", frozenset({"RS256"}), clock)
        assert len(await keys.find("1", "RS256")) == 1
        at.raw[path] = document
        with pytest.raises(AuthorizationFailed, match=r"not a JSON object|cannot be read"):
            await keys.find("2", "RS256")
        assert len(await keys.find("1", "RS256")) == 1


@async_test
async def test_metadata_of_another_issuer_is_not_used() -> None:
    async with issuer() as at:
        at.keys, at.metadata = [jwk(KEY)], {"issuer": "https://evil.example"}
        with pytest.raises(AuthorizationFailed, match="another issuer"):
            await verifier(at)(at.token(KEY))


@async_test
async def test_the_address_of_the_keys_can_be_given() -> None:
    async with issuer() as at:
        at.keys = [jwk(KEY)]
        assert await verifier(at, jwks_url=f"{at.base}/keys")(at.token(KEY)) is not None
        assert at.seen["/.well-known/oauth-authorization-server"] == 0


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"algorithms": ["HS256"]}, "HS256"),
        ({"algorithms": ["none"]}, "none"),
        ({"algorithms": []}, "empty list"),
        ({"audience": ""}, "audience"),
        ({"audience": []}, "audience"),
        ({"issuer": "http://id.example"}, "https"),
        ({"jwks_url": "http://127.0.0.1/keys"}, "may not send"),
        ({"issuer": ""}, "issuer"),
    ],
)
def test_settings_that_are_not_safe_are_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        JwtVerifier(**{"issuer": "https://id.example", "audience": AUDIENCE, **options})
