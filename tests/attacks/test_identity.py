"""Attacks on identity: each row is one attempt, and has the response that it must get.

`ROWS` names the test of every row, here or elsewhere, and a test checks that each exists. What the store decides is tried on
each store.
"""

import asyncio
import hmac
import json
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from limpet.auth import Principal
from limpet.auth.verifiers import JwtVerifier, TrustedHeader
from limpet.config import HttpSettings, Limits, RateLimits, Settings, Times
from tests.asgi import Call, Peer
from tests.attacks.house import ANN, ANN_AGAIN, BOB, META, STORES, House, house, kept
from tests.messages import LATEST, initialize, notification, request
from tests.support import async_test, until
from tests.unit.auth.verifiers.issuer import Issuer, issuer, jwk, rsa_key

ROOT: Final = Path(__file__).parents[2]
HERE: Final = "tests/attacks/test_identity.py"
ATTACKS: Final = "tests/http/test_attacks.py"
STREAM: Final = request(1, "tools/call", {"name": "stream", "_meta": {"progressToken": 1}})
AUDIENCE: Final = "https://tools.example/mcp"

ROWS: Final[dict[str, tuple[str, str]]] = {
    "use the session of another principal: call, read, resume, delete, answer, cancel": (
        HERE,
        "test_another_principal_learns_and_changes_nothing_of_a_session",
    ),
    "tell a foreign session from an unknown one by the response": (
        HERE,
        "test_another_principal_learns_and_changes_nothing_of_a_session",
    ),
    "use a session id without a token, or with an expired, foreign or forged one": (
        HERE,
        "test_a_token_that_is_not_valid_for_this_server_is_401_with_a_challenge",
    ),
    "keep a stream open after the token has expired": (
        "tests/unit/fronts/http/test_auth.py",
        "test_streams_end_with_the_token_and_another_token_resumes_them",
    ),
    "keep a sessionless call running after the token has expired": (
        "tests/unit/fronts/http/test_auth.py",
        "test_a_sessionless_call_finishes_within_a_bound_after_its_token_has_expired",
    ),
    "keep a listener open after the token has expired": (
        "tests/unit/engine/test_listening.py",
        "test_an_expired_token_ends_it_with_the_completion_result",
    ),
    "choose the session id, at initialize or later": (
        ATTACKS,
        "test_a_session_id_of_the_clients_choice_is_never_adopted",
    ),
    "guess a session id": (ATTACKS, "test_minted_ids_do_not_repeat_and_have_no_structure"),
    "open a second reader on the stream of another principal": (
        ATTACKS,
        "test_a_stranger_takes_over_no_stream",
    ),
    "resume a stream of another session, or of another principal, by its event id": (
        HERE,
        "test_an_event_id_of_another_session_or_principal_resumes_nothing",
    ),
    "begin a call and let the victim resume it": (
        HERE,
        "test_an_event_id_of_another_session_or_principal_resumes_nothing",
    ),
    "answer a question that was put to another principal": (
        HERE,
        "test_another_principal_learns_and_changes_nothing_of_a_session",
    ),
    "send answers twice, changed, late or for nothing": (
        ATTACKS,
        "test_answers_are_taken_once_from_their_own_session_and_in_time",
    ),
    "open sessions without end, to crowd out others": (
        HERE,
        "test_a_principal_that_opens_many_sessions_evicts_only_its_own",
    ),
    "open sessions without end, without a token": (
        ATTACKS,
        "test_anonymous_clients_evict_idle_sessions_and_none_that_works",
    ),
    "replay, change or steal the state of a suspended call": (
        HERE,
        "test_a_request_state_of_another_user_call_or_time_gets_one_error",
    ),
    "use the state handle of another user": (HERE, "test_a_state_handle_of_another_user_is_unknown"),
    "read, change or cancel the task of another user": (HERE, "test_the_task_of_another_user_is_unknown"),
    "send two tokens or two session ids, for two readers": (
        HERE,
        "test_identity_that_is_given_twice_is_refused",
    ),
    "put the token into the URL, a cookie or the body": (HERE, "test_a_token_counts_in_its_header_only"),
    "name oneself in the header of a trusted proxy": (
        HERE,
        "test_the_header_of_a_proxy_counts_from_the_proxy_only",
    ),
    "invent the own address in X-Forwarded-For": (
        "tests/unit/fronts/http/test_audit.py",
        "test_a_clients_address_is_the_one_that_trusted_proxies_report",
    ),
    "call from a page of another origin, or by another host name, with a valid token": (
        HERE,
        "test_a_valid_token_does_not_help_a_foreign_origin_or_host",
    ),
    "call a tool without its scope, or find out whether a hidden one exists": (
        "tests/unit/fronts/http/test_rates.py",
        "test_a_call_without_the_scope_of_a_tool_neither_uses_up_nor_shows_its_rate",
    ),
    "try many tokens": (
        "tests/unit/fronts/http/test_rates.py",
        "test_wrong_tokens_of_an_address_get_429_and_its_valid_tokens_pass",
    ),
    "call more often than allowed, at several replicas": (
        "tests/unit/fronts/http/test_rates.py",
        "test_replicas_exceed_a_rate_by_a_burst_and_two_seconds_each_and_pay_it_back",
    ),
    "make the verifier fail or hang": (
        "tests/unit/fronts/http/test_auth.py",
        "test_a_verifier_that_fails_is_503_and_only_the_type_of_its_error_is_logged",
    ),
    "fill the log with refusals": (
        "tests/unit/fronts/http/test_audit.py",
        "test_many_addresses_together_have_a_limit_too_and_hide_no_other_reason",
    ),
    "forge a line of the log by a name": (ATTACKS, "test_logs_hold_one_line_per_event_and_no_secret"),
    "read a token in a log, a store or an error": (
        "tests/attacks/test_token_scan.py",
        "test_no_token_is_in_a_log_a_store_or_a_response",
    ),
    "put a principal's name into a key of the store": (
        HERE,
        "test_a_hostile_subject_is_only_a_hash_in_the_store",
    ),
}
"""By the attack: the file and the name of its test."""


@pytest.mark.parametrize("row", ROWS)
def test_every_row_has_its_test(row: str) -> None:
    file, name = ROWS[row]
    assert re.search(rf"^(?:async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE), row


def told(call: Call) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Return all that a client can tell apart."""
    return call.status, call.raw_headers, call.body


async def audited(h: House, reason: str) -> int:
    """Return how often a refusal was reported, after the lookups that follow an answer."""
    await until(lambda: not h.engine.audit._lookups)
    return h.engine.audit.counts[reason]  # type: ignore[index]


async def asking(h: House) -> tuple[Peer, Call, dict[str, Any]]:
    """Return ann's client in a session, her call that waits for an answer, and the question."""
    ann = h.peer(ANN)
    opening = request("init", "initialize", initialize(LATEST, capabilities={"elicitation": {}}))
    opened = await ann.post(opening).done()
    ann.session, ann.version = opened.headers["mcp-session-id"], LATEST
    call = await ann.call(1, "ask").until(1)
    return ann, call, call.messages[0]


# Sessions


@pytest.mark.parametrize("store", STORES)
@async_test
async def test_another_principal_learns_and_changes_nothing_of_a_session(store: str) -> None:
    with kept(store) as where:
        async with house(where.url) as h:
            ann, call, question = await asking(h)
            standalone = await ann.get().begun()
            bob, unknown = h.peer(BOB), h.peer(BOB)
            bob.version = unknown.version = LATEST
            bob.session, unknown.session = ann.session, "0" * 64
            answer = {
                "jsonrpc": "2.0",
                "id": question["id"],
                "result": {"action": "accept", "content": {"name": "bob"}},
            }

            def attempts(peer: Peer) -> list[Call]:
                return [
                    peer.call(2, "echo"),
                    peer.call(1, "ask"),
                    peer.post(answer),
                    peer.post(notification("notifications/cancelled", {"requestId": 1})),
                    peer.get(),
                    peer.get(call.ids[-1]),
                    peer.get("no.event.id"),
                    peer.send("DELETE"),
                ]

            before = where.everything()
            for foreign, absent in zip(attempts(bob), attempts(unknown), strict=True):
                assert (await foreign.done()).status == 404
                assert told(foreign) == told(await absent.done())
            if store == "sqlite":
                assert where.everything().count(b"bob") == before.count(b"bob")
            assert await audited(h, "session") == 8, "each foreign one, and no unknown one"
            assert not call.task.done()
            assert not standalone.task.done()
            ann.token = ANN_AGAIN  # A new token of the same subject continues.
            answer["result"] = {"action": "accept", "content": {"name": "ann"}}
            assert (await ann.post(answer).done()).status == 202
            assert "ann" in str((await call.done()).messages[-1])
            assert (await ann.delete()).status == 204


@pytest.mark.parametrize("store", STORES)
@async_test
async def test_an_event_id_of_another_session_or_principal_resumes_nothing(store: str) -> None:
    with kept(store) as where:
        async with house(where.url) as h:
            ann, other, bob = await h.opened(ANN), await h.opened(ANN), await h.opened(BOB)
            call = await ann.post(STREAM).until(1)
            event = call.ids[-1]
            stream, sequence, tag = event.split(".")
            forged = [
                f"{stream}.{int(sequence) + 1}.{tag}",
                f"{stream}.{sequence}.{int(tag) + 1 if tag.isdecimal() else 1}",
            ]
            for peer, event_id in (
                (other, event),
                (bob, event),
                *((ann, one) for one in forged),
                (ann, "x" * 10_000),
            ):
                refused = await peer.get(event_id).done()
                assert refused.status == 400
                assert refused.json["error"]["data"] == {"reason": "event_id_unresumable"}
                assert "progress" not in refused.body.decode()
            assert await audited(h, "event_id") == 5
            # The attacker's call is the attacker's: its event id opens nothing in a session of the victim.
            lure = await bob.post(STREAM).until(1)
            assert (await ann.get(lure.ids[-1]).done()).status == 400
            assert not call.task.done()


@async_test
async def test_a_principal_that_opens_many_sessions_evicts_only_its_own() -> None:
    limits = Limits(sessions_per_principal=5, sessions=50)

    async def anyone(token: str) -> Principal | None:
        return Principal(subject=token)

    async with house(verifying=anyone, settings=Settings(limits=limits)) as h:
        victims = [await h.opened(f"user{number}") for number in range(20)]
        for _ in range(100):
            await h.opened("flood")
        assert len(await h.engine.store.sessions()) == 25
        for victim in victims:
            assert (await victim.post(request(1, "ping", {})).done()).status == 200
        statuses = [(await h.peer(f"more{number}").initialize()).status for number in range(30)]
        assert statuses == [200] * 25 + [503] * 5
        assert (await victims[0].post(request(2, "ping", {})).done()).status == 200


# Tokens


@asynccontextmanager
async def with_jwts() -> AsyncIterator[tuple[House, Issuer, Any]]:
    key = rsa_key()
    async with issuer() as at:
        at.keys = [jwk(key, kid="1")]
        check = JwtVerifier(issuer=at.base, audience=AUDIENCE, leeway=0)
        async with house(verifying=check) as h:
            yield h, at, key


def signed_with_public_key(at: Issuer, key: rsa.RSAPrivateKey) -> str:
    """Return a token whose secret is public, if the server takes its public key as one. PyJWT refuses to make it."""
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    claims = {"iss": at.base, "aud": AUDIENCE, "sub": "ann", "exp": time.time() + 60}
    parts = [urlsafe_b64encode(json.dumps(one).encode()) for one in ({"alg": "HS256", "kid": "1"}, claims)]
    text = b".".join(part.rstrip(b"=") for part in parts)
    signature = urlsafe_b64encode(hmac.digest(public, text, "sha256")).rstrip(b"=")
    return (text + b"." + signature).decode()


@async_test
async def test_a_token_that_is_not_valid_for_this_server_is_401_with_a_challenge() -> None:
    async with with_jwts() as (h, at, key):
        good = {"kid": "1"}
        ann = await h.opened(at.token(key, headers=good, sub="ann"))
        wrong = {
            "no token": "",
            "not a token": "lp-marker-nonsense",
            "expired": at.token(key, headers=good, exp=time.time() - 1),
            "not yet valid": at.token(key, headers=good, nbf=time.time() + 60),
            "for another server": at.token(key, headers=good, aud="https://other.example/mcp"),
            "of another issuer": at.token(key, headers=good, iss="https://evil.example"),
            "signed by another key": at.token(rsa_key(), headers=good),
            "without a subject": at.token(key, headers=good, sub=None),
            "without a signature": jwt.encode(
                {"iss": at.base, "aud": AUDIENCE, "sub": "ann"}, "", algorithm="none"
            ),
            "signed with the public key": signed_with_public_key(at, key),
            "changed": at.token(key, headers=good, sub="ann")[:-3] + "AAA",
        }
        for name, token in wrong.items():
            ann.token = token
            for call in (
                ann.call(1, "echo"),
                ann.get(),
                ann.send("DELETE"),
                ann.sessionless("tools/list", {}),
            ):
                assert (await call.done()).status == 401, name
                challenge = call.headers["www-authenticate"]
                assert challenge.startswith("Bearer ")
                assert "/.well-known/oauth-protected-resource" in challenge
                assert ("invalid_token" in challenge) is bool(token)
                assert "mcp-session-id" not in call.headers
        assert await audited(h, "token") == 4 * len(wrong)
        ann.token = at.token(key, headers=good, sub="ann", jti="another token")
        assert (await ann.post(request(9, "ping", {})).done()).status == 200, "the session is as it was"


@pytest.mark.parametrize("header", ["authorization", "mcp-session-id"])
@async_test
async def test_identity_that_is_given_twice_is_refused(header: str) -> None:
    async with house() as h:
        ann = await h.opened(ANN)
        value = {"authorization": f"Bearer {BOB}", "mcp-session-id": "0" * 64}[header]
        twice = await ann.send("POST", b"{}", raw=[(header.encode(), value.encode())]).done()
        assert twice.status == 400
        assert header in twice.json["error"]["message"]
        assert await audited(h, "malformed") == 1


@async_test
async def test_a_token_counts_in_its_header_only() -> None:
    async with house() as h:
        peer = h.peer("")
        body = json.dumps({**request(1, "initialize", initialize(LATEST)), "access_token": ANN}).encode()
        tried = [
            peer.send("POST", body, query_string=f"access_token={ANN}".encode()),
            peer.send("POST", body, headers={"cookie": f"access_token={ANN}; Authorization=Bearer {ANN}"}),
            peer.send("POST", body, headers={"x-api-key": ANN, "proxy-authorization": f"Bearer {ANN}"}),
        ]
        assert [(await call.done()).status for call in tried] == [401] * 3


@async_test
async def test_the_header_of_a_proxy_counts_from_the_proxy_only() -> None:
    check = TrustedHeader("X-User", networks=["10.0.0.0/8"])
    async with house(verifying=check, http=HttpSettings(trusted_proxies=("10.0.0.0/8",))) as h:
        named = {"x-user": "ann"}
        assert (await h.peer("", client="10.0.0.1").initialize(headers=named)).status == 200
        assert (await h.peer("", client="203.0.113.9").initialize(headers=named)).status == 401
        spoofed = {
            **named,
            "x-forwarded-for": "10.0.0.1",
            "forwarded": "for=10.0.0.1",
            "x-real-ip": "10.0.0.1",
        }
        assert (await h.peer("", client="203.0.113.9").initialize(headers=spoofed)).status == 401


@pytest.mark.parametrize(
    ("headers", "status", "reason"),
    [
        ({"origin": "https://evil.example"}, 403, "origin"),
        ({"origin": "null"}, 403, "origin"),
        ({"origin": "http://localhost.evil.example"}, 403, "origin"),
        ({"host": "evil.example"}, 421, "host"),
        ({"host": "localhost:80@evil.example"}, 421, "host"),
        ({"host": "localhost.evil.example"}, 421, "host"),
    ],
)
@async_test
async def test_a_valid_token_does_not_help_a_foreign_origin_or_host(
    headers: dict[str, str], status: int, reason: str
) -> None:
    async with house() as h:
        ann = await h.opened(ANN)
        for call in (ann.call(1, "echo", headers=headers), ann.get(headers=headers)):
            assert (await call.done()).status == status
            assert "access-control-allow-origin" not in call.headers
        assert await audited(h, reason) == 2


# Kept data of a principal


@async_test
async def test_a_request_state_of_another_user_call_or_time_gets_one_error() -> None:
    brief = house(settings=Settings(times=Times(parked=0.1)))
    async with house() as h, house() as elsewhere, brief as forgetful:
        ann, bob = h.peer(ANN), h.peer(BOB)
        parked = (await ann.sessionless("tools/call", {"name": "ask"}, meta=META).done()).json["result"]
        state, [key] = parked["requestState"], parked["inputRequests"]
        responses = {key: {"action": "accept", "content": {"name": "x"}}}
        retry = {"name": "ask", "requestState": state, "inputResponses": responses}
        flipped = state[:-2] + ("A" if state[-2] != "A" else "B") + state[-1]
        wrong: list[tuple[Peer, dict[str, Any]]] = [
            (bob, retry),
            (ann, {**retry, "requestState": flipped}),
            (ann, {**retry, "name": "echo"}),
            (ann, {**retry, "arguments": {"more": 1}}),
            (elsewhere.peer(ANN), retry),
        ]
        answers = set()
        for peer, params in wrong:
            refused = await peer.sessionless("tools/call", params, meta=META).done()
            answers.add((refused.status, refused.json["error"]["code"], refused.json["error"]["message"]))
        first = await ann.sessionless("tools/call", retry, meta=META).done()
        assert "'x'" in str(first.json["result"])
        changed = {**retry, "inputResponses": {key: {"action": "decline"}}}
        refused = await ann.sessionless("tools/call", changed, meta=META).done()
        answers.add((refused.status, refused.json["error"]["code"], refused.json["error"]["message"]))
        late = forgetful.peer(ANN)
        parked = (await late.sessionless("tools/call", {"name": "ask"}, meta=META).done()).json["result"]
        await asyncio.sleep(0.2)  # The state's own time is the subject.
        expired = {**retry, "requestState": parked["requestState"]}
        refused = await late.sessionless("tools/call", expired, meta=META).done()
        answers.add((refused.status, refused.json["error"]["code"], refused.json["error"]["message"]))
        [(status, code, _)] = answers
        assert (status, code) == (400, -31003)
        assert await audited(h, "request_state") == 5
        assert await audited(forgetful, "request_state") == 1


@pytest.mark.parametrize("store", STORES)
@async_test
async def test_a_state_handle_of_another_user_is_unknown(store: str) -> None:
    with kept(store) as where:
        async with house(where.url) as h:
            ann, bob = h.peer(ANN), h.peer(BOB)
            begun = await ann.sessionless("tools/call", {"name": "begin"}).done()
            handle = begun.json["result"]["content"][0]["text"]

            async def look(peer: Peer, name: str) -> Any:
                params = {"name": "look", "arguments": {"handle": name}}
                return (await peer.sessionless("tools/call", params).done()).json["result"]

            assert (await look(ann, handle))["content"][0]["text"] == "ann"
            foreign = await look(bob, handle)
            assert foreign["isError"]
            assert foreign == await look(bob, "0" * len(handle))


@pytest.mark.parametrize("store", STORES)
@async_test
async def test_the_task_of_another_user_is_unknown(store: str) -> None:
    with kept(store) as where:
        async with house(where.url) as h:
            ann, bob = h.peer(ANN), h.peer(BOB)
            begun = (await ann.sessionless("tools/call", {"name": "later"}, meta=META).done()).json["result"]
            task = begun["taskId"]
            rest: dict[str, Any] = {
                "tasks/get": {},
                "tasks/update": {"inputResponses": {}},
                "tasks/cancel": {},
            }
            for method, more in rest.items():
                foreign = await bob.sessionless(method, {"taskId": task, **more}, meta=META).done()
                absent = await bob.sessionless(method, {"taskId": "0" * len(task), **more}, meta=META).done()
                assert "error" in foreign.json
                assert told(foreign) == told(absent)
            mine = (await ann.sessionless("tasks/get", {"taskId": task}, meta=META).done()).json["result"]
            assert mine["status"] == "working"


@pytest.mark.parametrize("store", STORES)
@async_test
async def test_a_hostile_subject_is_only_a_hash_in_the_store(store: str) -> None:
    hostile = "lp-marker-*{}:\r\n'; DROP TABLE session; --"

    async def anyone(token: str) -> Principal | None:
        return Principal(subject=hostile + token, issuer=hostile)

    with kept(store) as where:
        rates = Settings(rates=RateLimits(principal="100/s"))
        async with house(where.url, verifying=anyone, settings=rates) as h:
            one, two = await h.opened("1"), await h.opened("2")
            assert (await one.post(request(1, "ping", {})).done()).status == 200
            two.session = one.session
            assert (await two.post(request(1, "ping", {})).done()).status == 404
            await h.engine.rates.reconcile()
            assert b"DROP TABLE" not in where.everything()
