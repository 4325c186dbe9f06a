"""The audit: one event for each refusal and each administrative act, with a limit of lines and nothing secret."""

import asyncio
import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any, get_args

import pytest

from limpet.auth import Principal
from limpet.auth.verifiers import AnyOf, JwtVerifier
from limpet.config import Limits, RateLimits, Settings, Times
from limpet.engine.audit import ACTS, REASONS, Act, Reason
from limpet.engine.sessions import session_key
from limpet.fronts.http.read.addresses import Addresses, counted
from limpet.fronts.http.read.request import RawRequest
from limpet.testing.store.limits import tight
from tests.asgi import Call
from tests.messages import LATEST, notification
from tests.unit.fronts.http.bench import Bench, bench, front_test
from tests.unit.fronts.http.test_auth import Tokens, modern_call, opened, said

ANN = Principal(subject="ann", issuer="test").key
BOB = Principal(subject="bob", issuer="test").key


async def audited(b: Bench) -> list[tuple[str, dict[str, object]]]:
    """Return the events of the audit so far."""
    await asyncio.sleep(0.001)
    return [(name, facts) for name, facts in b.observer.notes if name.startswith("audit.")]


async def reasons(b: Bench) -> list[object]:
    """Return the reasons of the refusals so far."""
    return [facts.get("reason") for name, facts in await audited(b) if name == "audit.refused"]


# Refusals


@front_test
async def test_each_refused_token_host_and_origin_is_one_event() -> None:
    async with bench(verifier=Tokens()) as b:
        stranger = b.peer(token="secret", client="10.0.0.7")
        assert (await stranger.call(1).done()).status == 401
        assert (await b.peer().call(1).done()).status == 401
        ann = await opened(b)
        assert (await ann.call(1, headers={"host": "evil.example"}).done()).status == 421
        assert (await ann.call(1, headers={"origin": "https://evil.example"}).done()).status == 403
        assert (await ann.get(path="/elsewhere", headers={"host": "evil.example"}).done()).status == 421
        assert await audited(b) == [
            ("audit.refused", {"reason": "token", "address": "10.0.0.7"}),
            ("audit.refused", {"reason": "token", "address": "127.0.0.1"}),
            ("audit.refused", {"reason": "host", "address": "127.0.0.1"}),
            ("audit.refused", {"reason": "origin", "address": "127.0.0.1"}),
            ("audit.refused", {"reason": "host", "address": "127.0.0.1"}),
        ]
        assert b.engine.audit.counts == {"token": 2, "host": 2, "origin": 1}


@pytest.mark.parametrize("algorithm", [["RS256"], {}, 256, None])
@front_test
async def test_a_jwt_whose_header_has_a_wrong_type_is_a_refused_token_that_counts(algorithm: Any) -> None:
    check = JwtVerifier(issuer="https://id.example", audience="https://tools.example/mcp")
    head = urlsafe_b64encode(json.dumps({"alg": algorithm}).encode()).decode().rstrip("=")
    async with bench(Settings(rates=RateLimits(refusals="2/m")), verifier=AnyOf(check)) as b:
        tries = [await b.peer(token=f"{head}.e30.e{n}30").call(1).done() for n in range(3)]
        assert [tried.status for tried in tries] == [401, 401, 429]
        assert await reasons(b) == ["token", "token", "rate_address"]


@front_test
async def test_malformed_large_slow_and_foreign_requests_are_events_with_the_principal() -> None:
    limits = Limits(body=2_000, body_seconds=5)
    async with bench(Settings(limits=limits), verifier=Tokens()) as b:
        ann = await opened(b)
        tried: list[tuple[Callable[[], Call], int, str]] = [
            (lambda: ann.send("POST", b"{not json"), 400, "malformed"),
            (lambda: ann.send("POST", b"x" * 2_001), 413, "too_large"),
            (lambda: ann.send("POST", b"", headers={"content-type": "text/plain"}), 415, "media_type"),
            (lambda: ann.get("unknown.1.1"), 400, "event_id"),
            (lambda: ann.send("POST", b"{", 60.0, b"}"), 408, "slow"),
            (
                lambda: ann.sessionless("tools/call", {"name": "quick", "requestState": "x"}),
                400,
                "request_state",
            ),
        ]
        for send, status, reason in tried:
            assert (await send().done()).status == status, reason
            assert (await audited(b))[-1][1]["reason"] == reason
        # The head is refused before the token is checked.
        known = [facts.get("principal") for _, facts in await audited(b)]
        assert known == [ANN[:8], ANN[:8], None, ANN[:8], ANN[:8], ANN[:8]]


@front_test
async def test_a_foreign_session_is_audited_and_an_unknown_session_is_not() -> None:
    async with bench(verifier=Tokens()) as b:
        ann, bob = await opened(b), b.peer(token="bob", client="10.0.0.7")
        bob.session, bob.version = ann.session, LATEST
        foreign = [
            await bob.call(1).done(),
            await bob.get().done(),
            await bob.delete(),
            await bob.post(notification("notifications/initialized")).done(),
        ]
        bob.session = "unknown"
        unknown = await bob.call(1).done()
        assert {said(call)[:2] == said(unknown)[:2] for call in (foreign[0], *foreign[:1])} == {True}
        assert [call.status for call in (*foreign, unknown)] == [404] * 5
        facts = {"reason": "session", "address": "10.0.0.7"}
        names = {"principal": BOB[:8], "session": session_key(ann.session)[:8]}
        assert await audited(b) == [("audit.refused", facts | names)] * 4
        assert ann.session not in str(b.observer.notes)
        assert (await ann.call(1).done()).status == 200


@front_test
async def test_an_anonymous_client_from_another_host_is_audited() -> None:
    async with bench() as b:
        assert (await b.peer(client="10.0.0.7").call(1).done()).status == 403
        assert await audited(b) == [("audit.refused", {"reason": "anonymous", "address": "10.0.0.7"})]


@front_test
async def test_a_call_over_a_limit_and_a_session_too_many_are_audited() -> None:
    limits = tight(sessionless_calls=1, sessions=1)
    async with bench(Settings(limits=limits), verifier=Tokens()) as b:
        client = b.peer(token="ann")
        held = client.sessionless("tools/call", {"name": "held"})
        await asyncio.sleep(0.1)
        assert (await modern_call(client).done()).status == 429
        await opened(b)
        assert (await b.peer(token="bob").initialize()).status == 503
        assert await reasons(b) == ["busy", "sessions"]
        b.release.set()
        await held.done()


# Acts


@front_test
async def test_a_deleted_session_and_a_changed_key_are_administrative_acts() -> None:
    async with bench(Settings(times=Times(key_rotation=1_000, parked=100)), verifier=Tokens()) as b:
        ann = await opened(b)
        key = session_key(ann.session)
        assert (await ann.delete()).status == 204
        facts = {"act": "session_deleted", "address": "127.0.0.1", "principal": ANN[:8], "session": key[:8]}
        assert await audited(b) == [("audit.done", facts)]
        await asyncio.sleep(1_001)
        assert (await audited(b))[-1] == ("audit.done", {"act": "key_changed"})
        assert b.engine.audit.counts == {"session_deleted": 1, "key_changed": 1}


# Limits of lines


@front_test
async def test_a_flood_of_refusals_is_a_few_lines_and_a_count() -> None:
    async with bench(verifier=Tokens()) as b:
        for _ in range(500):
            await b.peer(token="wrong", client="10.0.0.7").call(1).done()
        assert len(await audited(b)) == 10
        await b.peer(token="wrong", client="10.0.0.8").call(1).done()
        assert (await audited(b))[-1][1]["address"] == "10.0.0.8"
        assert b.engine.audit.counts["token"] == 501
        await asyncio.sleep(11)
        assert (await audited(b))[-1] == ("audit.suppressed", {"of": "token", "count": 490})
        await asyncio.sleep(60)
        assert len(await audited(b)) == 12, "a number of zero is not reported"


@front_test
async def test_many_addresses_together_have_a_limit_too_and_hide_no_other_reason() -> None:
    async with bench(verifier=Tokens()) as b:
        for number in range(500):
            await b.peer(token="wrong", client=f"10.0.1.{number % 250}").call(1).done()
        assert len(await audited(b)) == 30
        ann = await opened(b)
        await ann.call(1, headers={"host": "evil.example"}).done()
        assert (await audited(b))[-1][1]["reason"] == "host"


@front_test
async def test_sessions_that_are_opened_and_deleted_in_a_loop_do_not_fill_the_log() -> None:
    async with bench(verifier=Tokens()) as b:
        for _ in range(50):
            await (await opened(b)).delete()
        assert len(await audited(b)) == 10
        assert b.engine.audit.counts["session_deleted"] == 50


# The tables


def test_the_tables_have_every_reason_and_every_act() -> None:
    assert tuple(REASONS) == get_args(Reason)
    assert tuple(ACTS) == get_args(Act)


# Addresses


def request(client: str | None, forwarded: str = "") -> RawRequest:
    headers = [(b"x-forwarded-for", forwarded.encode())] if forwarded else []
    return RawRequest.of("POST", "/mcp", headers, client)


@pytest.mark.parametrize(
    ("client", "forwarded", "found"),
    [
        ("203.0.113.9", "", "203.0.113.9"),
        ("203.0.113.9", "198.51.100.1", "203.0.113.9"),  # No proxy: every client can write the header.
        ("10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "192.0.2.66, 198.51.100.1", "198.51.100.1"),  # The first one is invented.
        ("10.0.0.1", "198.51.100.1, 10.0.0.2", "198.51.100.1"),
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", "198.51.100.1:443", "198.51.100.1"),
        ("10.0.0.1", "[2001:db8::1]:443", "2001:db8::1"),
        ("10.0.0.1", "::ffff:198.51.100.1", "198.51.100.1"),
        ("::ffff:10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "unknown", "10.0.0.1"),
        ("10.0.0.1", "198.51.100.1, nonsense, 10.0.0.2", "10.0.0.2"),
        ("10.0.0.1", "", "10.0.0.1"),
        (None, "198.51.100.1", "198.51.100.1"),
        (None, "", "local"),
    ],
)
def test_a_clients_address_is_the_one_that_trusted_proxies_report(
    client: str | None, forwarded: str, found: str
) -> None:
    assert Addresses(["10.0.0.0/8"]).of(request(client, forwarded)) == found


def test_without_trusted_proxies_the_header_is_not_read() -> None:
    assert Addresses([]).of(request("10.0.0.1", "198.51.100.1")) == "10.0.0.1"
    assert Addresses([]).of(request(None, "198.51.100.1")) == "local"


@front_test
async def test_the_audit_names_the_address_that_a_trusted_proxy_reports() -> None:
    async with bench(verifier=Tokens(), trusted_proxies=["127.0.0.1"]) as b:
        await b.peer(token="wrong").call(1, headers={"x-forwarded-for": "198.51.100.1"}).done()
        assert (await audited(b))[0][1]["address"] == "198.51.100.1"


@front_test
async def test_an_anonymous_client_behind_a_trusted_proxy_of_this_machine_is_not_one_of_this_machine() -> (
    None
):
    async with bench(trusted_proxies=["127.0.0.1"]) as b:
        for address, status in (("198.51.100.1", 403), ("127.0.0.1", 200)):
            opened = await b.peer().initialize(headers={"x-forwarded-for": address})
            assert opened.status == status


FORWARDED = [
    {"x-forwarded-for": "198.51.100.1"},
    {"x-forwarded-for": "127.0.0.1"},
    {"forwarded": "for=198.51.100.1"},
    {"via": "1.1 proxy"},
    {"x-real-ip": "198.51.100.1"},
]


@front_test
async def test_a_forwarded_request_of_an_unknown_proxy_is_not_one_of_this_machine_and_one_warning_says_so() -> (
    None
):
    async with bench() as b:
        assert (await b.peer().initialize()).status == 200
        for headers in FORWARDED:
            refused = await b.peer().initialize(headers=headers)
            assert refused.status == 403
            assert "--trusted-proxies" in refused.json["error"]["message"]
        on_socket = b.peer()
        on_socket.client = None
        assert (await on_socket.initialize(headers=FORWARDED[0])).status == 403
        assert (await on_socket.initialize()).status == 200
        assert b.observer.named("proxy.untrusted") == [
            {"address": "127.0.0.1", "option": "--trusted-proxies"}
        ]
        assert await reasons(b) == ["anonymous"] * 6
    async with bench(allow_anonymous=True) as b:
        assert (await b.peer().initialize(headers=FORWARDED[0])).status == 200
        assert not b.observer.named("proxy.untrusted")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"x-forwarded-for": "127.0.0.1"}, 200),
        ({"x-forwarded-for": "127.0.0.1", "via": "1.1 proxy"}, 200),
        ({}, 200),
        ({"via": "1.1 proxy"}, 403),
        ({"forwarded": "for=127.0.0.1"}, 403),
        ({"x-forwarded-for": "unknown"}, 403),
        ({"x-forwarded-for": "unknown, 127.0.0.1"}, 403),
        ({"x-forwarded-for": "198.51.100.1, 127.0.0.1"}, 403),
    ],
)
@front_test
async def test_a_trusted_proxy_of_this_machine_must_report_that_a_client_is_of_this_machine(
    headers: dict[str, str], status: int
) -> None:
    async with bench(trusted_proxies=["127.0.0.1"]) as b:
        assert (await b.peer().initialize(headers=headers)).status == status


def test_a_limit_counts_the_network_of_an_ipv6_address() -> None:
    assert counted("2001:db8::1") == counted("2001:db8::ffff:1") == "2001:db8::/64"
    assert counted("198.51.100.1") == "198.51.100.1"
    assert counted("local") == "local"
