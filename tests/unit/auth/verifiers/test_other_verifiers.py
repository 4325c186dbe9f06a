"""Introspection, fixed tokens, headers of a proxy, and several verifiers at once."""

import base64
import time
from typing import Any

import pytest

from limpet.auth import AuthRequest, Principal, known_tokens, with_request
from limpet.auth.known_tokens import ENTRY_BYTES, MOST, MOST_BYTES, KnownTokens
from limpet.auth.verifiers import AnyOf, Introspection, StaticTokens, TrustedHeader
from limpet.core.ledger import Ledger
from limpet.errors import AuthorizationFailed, ConfigError
from limpet.testing import VirtualClock
from tests.support import async_test
from tests.unit.auth.verifiers.issuer import Issuer, issuer

ADA = Principal(subject="ada")
TOKEN = "a-token-of-ada-0123"
AUDIENCE = "https://tools.example/mcp"
ACTIVE: dict[str, Any] = {"active": True, "sub": "ada", "aud": AUDIENCE}


def introspection(at: Issuer, **options: Any) -> Introspection:
    return Introspection(
        f"{at.base}/introspect", client_id="me:1", client_secret="s%", audience=AUDIENCE, **options
    )


@async_test
async def test_an_active_token_is_a_principal_and_is_asked_about_once() -> None:
    async with issuer() as at:
        at.tokens["t"] = {**ACTIVE, "iss": at.base, "scope": "read", "exp": time.time() + 60}
        check = introspection(at)
        found = [await check("t") for _ in range(3)]
        assert [one.subject for one in found if one is not None] == ["ada"] * 3
        assert at.seen["/introspect"] == 1
        assert at.credentials == ["Basic " + base64.b64encode(b"me%3A1:s%25").decode()]


@async_test
async def test_an_answer_is_asked_for_again_when_it_is_old_and_no_later_than_the_token_expires() -> None:
    async with issuer() as at:
        now = time.time()
        clock = VirtualClock(now)
        at.tokens["t"] = {**ACTIVE, "exp": now + 10}
        check = introspection(at, clock=clock, leeway=0.0, cache_seconds=30.0)
        assert await check("t") is not None
        clock.advance(11)
        assert await check("t") is None, "it has expired"
        assert at.seen["/introspect"] == 2
        clock.advance(31)
        at.tokens["t"] = ACTIVE
        assert await check("t") is not None


@pytest.mark.parametrize(
    "answer",
    [
        {**ACTIVE, "active": False},
        {**ACTIVE, "active": "true"},
        {"active": True, "aud": AUDIENCE},
        {"active": True, "sub": "ada"},
        {**ACTIVE, "aud": "https://other.example"},
        {**ACTIVE, "aud": ["https://other.example"]},
        {**ACTIVE, "aud": ""},
        {**ACTIVE, "exp": 5},
        {**ACTIVE, "exp": 10**400},
    ],
)
@async_test
async def test_a_token_that_is_not_active_or_not_for_us_is_refused(answer: dict[str, Any]) -> None:
    async with issuer() as at:
        at.tokens["t"] = answer
        assert await introspection(at)("t") is None


@async_test
async def test_a_server_that_fails_is_no_refusal() -> None:
    async with issuer() as at:
        at.fails = True
        with pytest.raises(AuthorizationFailed, match="500"):
            await introspection(at)("t")


@async_test
async def test_an_answer_that_is_nested_too_deeply_is_no_refusal() -> None:
    async with issuer() as at:
        at.raw["/introspect"] = b'{"active":true,"own":' + b"[" * 1_300 + b"]" * 1_300 + b"}"
        with pytest.raises(AuthorizationFailed):
            await introspection(at)("t")


def test_an_introspection_needs_https_and_credentials() -> None:
    with pytest.raises(ConfigError, match="https"):
        Introspection("http://id.example/introspect", client_id="a", client_secret="b", audience=AUDIENCE)
    with pytest.raises(ConfigError, match="client_secret"):
        Introspection("https://id.example/introspect", client_id="a", client_secret="", audience=AUDIENCE)


@pytest.mark.parametrize("audience", ["", [], [""], [AUDIENCE, ""]])
def test_an_introspection_needs_an_audience(audience: Any) -> None:
    with pytest.raises(ConfigError, match="Introspection needs an audience"):
        Introspection("https://id.example/introspect", client_id="a", client_secret="b", audience=audience)


@async_test
async def test_fixed_tokens_are_compared_as_a_whole() -> None:
    check = StaticTokens({TOKEN: ADA, "a-token-of-bob-4567": "bob"})
    assert await check(TOKEN) == ADA
    assert await check("a-token-of-bob-4567") == Principal(subject="bob")
    for wrong in ("", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "\ud800"):
        assert await check(wrong) is None
    assert TOKEN not in repr(vars(check))
    with pytest.raises(ConfigError, match="16 characters"):
        StaticTokens({"short": ADA})


@pytest.mark.parametrize(
    ("address", "headers", "subject"),
    [
        ("10.1.2.3", {"x-user": "ada"}, "ada"),
        ("::ffff:10.1.2.3", {"x-user": "ada"}, "ada"),
        ("10.1.2.3", {}, None),
        ("10.1.2.3", {"x-user": ""}, None),
        ("10.1.2.3", {"x-user": "a\0b"}, None),
        ("192.0.2.1", {"x-user": "ada"}, None),
        ("", {"x-user": "ada"}, None),
        ("not an address", {"x-user": "ada"}, None),
    ],
)
@async_test
async def test_a_header_counts_only_from_the_proxy(
    address: str, headers: dict[str, str], subject: str | None
) -> None:
    check = TrustedHeader("X-User", networks=["10.0.0.0/8"])
    found = await check("", AuthRequest(headers, address))
    assert (found and found.subject) == subject


@pytest.mark.parametrize("networks", [[], ["10.0.0.0/40"], ["0.0.0.0/0"], ["::/0"]])
def test_a_header_needs_networks_that_can_be_trusted(networks: list[str]) -> None:
    with pytest.raises(ConfigError):
        TrustedHeader("X-User", networks=networks)


@async_test
async def test_the_first_verifier_that_accepts_decides_and_a_failure_counts_only_if_none_does() -> None:
    async def broken(token: str) -> Principal | None:
        raise ConnectionError

    proxied = TrustedHeader("X-User", networks=["127.0.0.1"])
    check = AnyOf(broken, StaticTokens({TOKEN: ADA}), proxied)
    assert await check(TOKEN, AuthRequest({}, "192.0.2.1")) == ADA
    named = await check("", AuthRequest({"x-user": "bob"}, "127.0.0.1"))
    assert named is not None
    assert named.subject == "bob"
    with pytest.raises(ConnectionError):
        await check("wrong-wrong-wrong", AuthRequest({}, "192.0.2.1"))
    assert await AnyOf(StaticTokens({TOKEN: ADA}))("wrong-wrong-wrong", AuthRequest({}, "")) is None
    with pytest.raises(ConfigError):
        AnyOf()


@async_test
async def test_a_token_that_all_refuse_is_not_checked_again_for_ten_seconds_and_a_header_counts_at_once() -> (
    None
):
    asked: list[str] = []

    async def checks(token: str) -> Principal | None:
        asked.append(token)
        return None

    clock = VirtualClock()
    check = AnyOf(checks, TrustedHeader("X-User", networks=["127.0.0.1"]), clock=clock)
    for _ in range(3):
        assert await check("wrong", AuthRequest({}, "127.0.0.1")) is None
    assert asked == ["wrong"]
    assert await check("wrong", AuthRequest({"x-user": "bob"}, "127.0.0.1")) is not None
    clock.advance(10)
    assert await check("wrong", AuthRequest({}, "127.0.0.1")) is None
    assert asked == ["wrong"] * 2


def test_a_verifier_takes_the_token_or_the_token_and_the_request() -> None:
    async def plain(token: str) -> Principal | None: ...
    async def optional(token: str, strict: bool = True) -> Principal | None: ...
    async def both(token: str, request: AuthRequest) -> Principal | None: ...
    async def three(token: str, request: AuthRequest, more: int) -> Principal | None: ...

    assert with_request(plain) is None
    assert with_request(optional) is None
    assert with_request(both) is both
    with pytest.raises(ConfigError):
        with_request(three)  # type: ignore[arg-type]


def test_known_tokens_are_bounded_forgotten_in_time_and_not_kept_as_text() -> None:
    known = KnownTokens(10.0)
    known.put("t", ADA, 0.0)
    known.put("bad", None, 0.0)
    assert known.get("t", 9.9) == (ADA,)
    assert known.get("bad", 9.9) == (None,)
    assert known.get("t", 10.0) is None
    assert known.get("unknown", 0.0) is None
    for number in range(MOST + 50):
        known.put(str(number), ADA, 0.0)
    assert len(known) == MOST
    assert known.get("0", 1.0) is None
    known.put("soon", Principal(subject="x", expires=3.0), 0.0)
    assert known.get("soon", 3.0) is None


# The memory of verifiers


def test_known_tokens_are_bounded_in_bytes_and_charged_and_make_room_when_there_is_little() -> None:
    known = KnownTokens(10.0)
    for number in range(40):
        known.put(str(number), ADA, 0.0, MOST_BYTES // 16)
    assert len(known) == 15
    assert known.get("39", 1.0) == (ADA,)
    ledger, part = Ledger(1_000_000), 10_000
    charged = KnownTokens(10.0)
    charged.charge_to(lambda: ledger.account("known tokens"))
    charged.put("a", ADA, 0.0, part)
    assert ledger.used == part + ENTRY_BYTES
    charged.put("a", ADA, 0.0, 2 * part)
    assert ledger.used == 2 * part + ENTRY_BYTES, "the same token again"
    for number in range(1_000):
        charged.put(str(number), ADA, 0.0, part)
    assert 40 < len(charged) < 50, "half of the figure"
    assert ledger.used == len(charged) * (part + ENTRY_BYTES) < ledger.total
    assert charged.get("999", 1.0) == (ADA,)
    del charged
    assert ledger.used == 0


@async_test
async def test_wrong_tokens_do_not_make_accepted_ones_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_tokens, "MOST", 5)
    async with issuer() as at:
        at.tokens["t"] = ACTIVE
        check = introspection(at)
        assert await check("t") is not None
        for number in range(10):
            assert await check(f"wrong{number}") is None
        assert check.known("t") is not None


@async_test
async def test_claims_that_take_too_much_memory_are_refused() -> None:
    async with issuer() as at:
        at.tokens["few"] = {**ACTIVE, "groups": ["g"] * 1_000}
        at.tokens["many"] = {**ACTIVE, "groups": [{}] * 1_000}
        check = introspection(at)
        assert await check("few") is not None
        with pytest.raises(AuthorizationFailed, match="too large"):
            await check("many")


@async_test
async def test_several_verifiers_remember_what_the_first_ones_remember() -> None:
    async with issuer() as at:
        at.tokens["t"] = ACTIVE
        remembers = introspection(at)
        both = AnyOf(remembers, introspection(at))
        assert both.known("t") is None
        assert await remembers("t") is not None
        assert both.known("t") == remembers.known("t")
        assert AnyOf(StaticTokens({"a" * 16: "ann"}), remembers).known("t") is None, "the first must be asked"


@async_test
async def test_a_refused_token_is_not_a_known_one() -> None:
    async with issuer() as at:
        check = introspection(at)
        assert await check("unknown") is None
        assert check.known("unknown") is None
