"""Authentication: tokens, principals, expiry, and anonymous clients, local and remote."""

import asyncio
from typing import Any
from weakref import ref

import pytest

from limpet.auth import AuthRequest, Principal, Verifier
from limpet.auth.verifiers import AnyOf
from limpet.config import Limits, Settings, Times
from limpet.errors import AuthorizationFailed
from limpet.fronts.http.decide import identity
from limpet.fronts.http.read.request import RawRequest
from tests.asgi import Call, Peer
from tests.messages import LATEST, metadata, notification
from tests.support import LoopClock, until
from tests.unit.fronts.http.bench import MIDDLE, REVISIONS, Bench, bench, front_test


class Tokens:
    """A verifier that knows a few tokens: `ann` and `bob` forever, `ann-60` for ann and sixty seconds.

    Others make it fail: `raise`, `hang`, `nonsense`.
    """

    async def __call__(self, token: str) -> Principal | None:
        """Return whose it is."""
        if token == "raise":
            raise ConnectionError(f"no answer about {token}")
        if token == "hang":
            await asyncio.Event().wait()
        if token == "nonsense":
            return "ann"  # type: ignore[return-value]
        subject, _, seconds = token.partition("-")
        if subject not in {"ann", "bob"}:
            return None
        expires = LoopClock().wall() + float(seconds) if seconds else None
        return Principal(subject=subject, issuer="test", expires=expires)


async def opened(b: Bench, who: str = "ann", version: str = LATEST) -> Peer:
    """Return a client with a token and a session."""
    peer = b.peer(token=who)
    assert (await peer.initialize(version)).status == 200
    return peer


def said(call: Call) -> tuple[int, Any]:
    """Return the parts of an answer that a client could compare."""
    return call.status, call.raw_headers, call.json["error"]  # type: ignore[return-value]


# Tokens


@pytest.mark.parametrize(
    ("authorization", "challenge"),
    [
        (None, "Bearer"),
        ("Bearer wrong", 'Bearer error="invalid_token"'),
        ("Bearer ", 'Bearer error="invalid_token"'),
        ("Bearer", 'Bearer error="invalid_token"'),
        ("Basic YW5uOmFubg==", 'Bearer error="invalid_token"'),
        ("ann", 'Bearer error="invalid_token"'),
    ],
)
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
@front_test
async def test_without_a_valid_token_there_is_401_and_a_challenge(
    authorization: str | None, challenge: str, method: str
) -> None:
    async with bench(verifier=Tokens()) as b:
        p = await opened(b)
        refused = await p.send(method, b"{}", headers={"authorization": authorization}).done()
        assert refused.status == 401
        assert refused.headers["www-authenticate"] == challenge
        assert refused.json["error"]["code"] == -32600
        assert (await p.call(1).done()).status == 200


@pytest.mark.parametrize("authorization", ["Bearer ann", "bearer ann", "BEARER  ann "])
@front_test
async def test_the_scheme_is_read_as_http_has_it(authorization: str) -> None:
    async with bench(verifier=Tokens()) as b:
        assert (await b.peer().initialize(headers={"authorization": authorization})).status == 200


@front_test
async def test_the_principal_and_headers_of_each_request_reach_its_exchange() -> None:
    async with bench(verifier=Tokens()) as b:
        p = await opened(b)
        await p.call(1, headers={"x-trace": "abc"}).done()
        [exchange] = b.back.handled
        assert exchange.principal is not None
        assert exchange.principal.subject == "ann"
        assert exchange.headers["X-Trace"] == "abc"
        assert "x-other" not in exchange.headers


@front_test
async def test_tokens_count_from_other_machines_too() -> None:
    async with bench(verifier=Tokens()) as b:
        assert (await b.peer(token="ann", client="203.0.113.9").initialize()).status == 200


@front_test
async def test_a_refused_token_is_not_checked_again_for_ten_seconds() -> None:
    checked: list[str] = []

    async def verifier(token: str) -> Principal | None:
        checked.append(token)
        return Principal(subject="ann") if token == "good" else None

    async with bench(verifier=verifier) as b:
        for _ in range(5):
            assert (await b.peer(token="bad").initialize()).status == 401
            assert (await b.peer(token="good").initialize()).status == 200
        assert checked == ["bad", *["good"] * 5]
        await asyncio.sleep(10)
        assert (await b.peer(token="bad").initialize()).status == 401
        assert checked.count("bad") == 2


@front_test
async def test_a_verifier_may_take_the_request_and_then_needs_no_token() -> None:
    async def verifier(token: str, request: AuthRequest) -> Principal | None:
        named = request.headers.get("x-user") if request.address == "10.0.0.7" else None
        return Principal(subject=named) if named and not token else None

    async with bench(verifier=verifier) as b:
        proxied = b.peer(client="10.0.0.7")
        assert (await proxied.initialize(headers={"x-user": "ann"})).status == 200
        assert (await b.peer(client="10.0.0.8").initialize(headers={"x-user": "ann"})).status == 401
        assert (
            await b.peer(client="10.0.0.7", token="t").initialize(headers={"x-user": "ann"})
        ).status == 401
        assert (await b.peer(client="10.0.0.7").initialize()).headers["www-authenticate"] == "Bearer"
        # The same token may be right in the next request, so that nothing is remembered.
        assert (await b.peer(client="10.0.0.7").initialize(headers={"x-user": "bob"})).status == 200


# Other people's sessions


@front_test
async def test_another_principals_session_is_answered_like_an_unknown_session() -> None:
    async with bench(verifier=Tokens()) as b:
        ann = await opened(b, "ann")
        call = await ann.call(1, "ask").until(1)
        answer = {"jsonrpc": "2.0", "id": call.messages[0]["id"], "result": {}}
        cancel = notification("notifications/cancelled", {"requestId": 1})
        bob, lost = b.peer(token="bob"), b.peer(token="bob")
        bob.session, lost.session = ann.session, "0" * 64
        for peer_id, event in ((2, call.ids[0]), (3, "")):
            tried = [
                [
                    p.call(peer_id),
                    p.get(event),
                    p.get("x.y.z"),
                    p.send("DELETE"),
                    p.post(answer),
                    p.post(cancel),
                ]
                for p in (bob, lost)
            ]
            for theirs, unknown in zip(*tried, strict=True):
                assert (await theirs.done()).status == 404
                assert said(theirs) == said(await unknown.done())
        assert b.runs == ["ask"]
        assert not call.task.done()
        assert (await ann.post(answer).done()).status == 202
        assert "result" in (await call.done()).messages[-1]


@front_test
async def test_an_initialize_with_another_principals_session_id_opens_a_new_session() -> None:
    async with bench(verifier=Tokens()) as b:
        ann = await opened(b, "ann")
        bob = b.peer(token="bob")
        bob.session = ann.session
        assert (await bob.initialize()).status == 200
        assert bob.session != ann.session
        assert (await ann.call(1).done()).status == 200


@front_test
async def test_a_new_token_of_the_same_principal_continues_the_session() -> None:
    async with bench(verifier=Tokens()) as b:
        p = await opened(b, "ann-60")
        p.token = "ann"
        assert (await p.call(1).done()).status == 200


# Expiry


@pytest.mark.parametrize("version", REVISIONS)
@front_test
async def test_streams_end_with_the_token_and_another_token_resumes_them(version: str) -> None:
    async with bench(verifier=Tokens()) as b:
        p = await opened(b, "ann", version)
        p.token = "ann-60"
        call, listener = await p.call(1, "ticks").until(2), await p.get().begun()
        await asyncio.sleep(59)
        assert [call.task.done(), listener.task.done()] == [False, False]
        await asyncio.sleep(1.5)
        assert call.complete
        assert listener.complete
        assert "detached" not in b.back.events
        p.token = "ann"
        b.release.set()
        resumed = await p.get(call.ids[-1]).done()
        assert [message["id"] for message in resumed.messages] == [1]


@front_test
async def test_a_resumed_stream_ends_with_its_own_token() -> None:
    async with bench(verifier=Tokens()) as b:
        p = await opened(b)
        call = await p.call(1, "ticks").until(2)
        p.token = "ann-60"
        await p.get(call.ids[-1]).done()
        assert asyncio.get_running_loop().time() == pytest.approx(60)


@front_test
async def test_a_stream_that_never_falls_silent_ends_with_the_token_too() -> None:
    async with bench(verifier=Tokens()) as b:
        p = await opened(b, "ann", MIDDLE)
        p.token = "ann-60.5"
        call = p.call(1, "talk")
        await asyncio.sleep(65)
        assert call.complete
        assert len(call.messages) == 61


@front_test
async def test_a_batchs_streams_end_with_the_token() -> None:
    async with bench(verifier=Tokens()) as b:
        p = await opened(b, "ann", REVISIONS[2])
        p.token = "ann-60"
        body = [
            {"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": {"name": "held"}} for n in (1, 2)
        ]
        call = await p.post(body).begun()
        await asyncio.sleep(61)
        assert call.complete


@front_test
async def test_a_sessionless_call_finishes_within_a_bound_after_its_token_has_expired() -> None:
    async with bench(Settings(times=Times(after_expiry=40)), verifier=Tokens()) as b:
        late, held = b.peer(token="ann-60"), b.peer(token="ann")
        cut, short = (
            late.sessionless("tools/call", {"name": "held"}),
            late.sessionless("tools/call", {"name": "talk"}),
        )
        free = held.sessionless("tools/call", {"name": "held"})
        await asyncio.sleep(95)
        assert [call.task.done() for call in (cut, short, free)] == [False] * 3
        await asyncio.sleep(7)
        for call in (await cut.done(), await short.done()):
            error = call.messages[-1]["error"]
            assert (error["code"], error["message"]) == (-32800, "Request cancelled: its token has expired")
        assert len(b.engine.sessionless.working()) == 1
        b.release.set()
        assert (await free.done()).messages[-1]["result"]["tool"] == "held"


@front_test
async def test_a_parked_call_outlives_its_token_and_its_retry_is_judged_by_its_own() -> None:
    async with bench(Settings(times=Times(after_expiry=0)), verifier=Tokens()) as b:
        peer, meta = b.peer(token="ann-60"), metadata(capabilities={"roots": {}})
        parked = (await peer.sessionless("tools/call", {"name": "ask"}, meta=meta).done()).json["result"]
        await asyncio.sleep(120)
        answers: Any = {key: {"roots": []} for key in parked["inputRequests"]}
        retry = {"name": "ask", "requestState": parked["requestState"], "inputResponses": answers}
        tried = []
        for token in ("ann--1", "bob", "ann"):
            peer.token = token
            tried.append(await peer.sessionless("tools/call", retry, meta=meta).done())
        assert [call.status for call in tried] == [401, 400, 200]
        assert tried[-1].json["result"]["answer"] == {"roots": []}
        assert b.runs == ["ask"]


# Anonymous


@pytest.mark.parametrize(
    ("client", "allow", "status"),
    [
        ("127.0.0.1", None, 200),
        ("127.0.0.53", None, 200),
        ("::1", None, 200),
        ("::ffff:127.0.0.1", None, 200),
        ("10.0.0.7", None, 403),
        ("203.0.113.9", None, 403),
        ("::ffff:10.0.0.7", None, 403),
        ("fe80::1%eth0", None, 403),
        ("testclient", None, 403),
        ("203.0.113.9", True, 200),
        ("127.0.0.1", False, 403),
        ("203.0.113.9", False, 403),
    ],
)
@front_test
async def test_anonymous_clients_are_served_from_this_machine_or_by_explicit_flag(
    client: str, allow: bool | None, status: int
) -> None:
    async with bench(allow_anonymous=allow) as b:
        answer = await b.peer(client=client).initialize()
        assert answer.status == status
        if status == 403:
            assert "allow_anonymous" in answer.json["error"]["message"]
            assert await b.store.sessions() == []


@front_test
async def test_a_client_without_an_address_is_one_of_this_machine() -> None:
    """That is how a unix socket looks."""
    async with bench() as b:
        p = b.peer()
        p.client = None
        assert (await p.initialize()).status == 200


# Expired principals, and verifiers that fail


def modern_call(peer: Peer) -> Call:
    return peer.sessionless("tools/call", {"name": "quick"})


@pytest.mark.parametrize("seconds", ["0", "-60"])
@front_test
async def test_a_principal_whose_time_is_over_is_not_served(seconds: str) -> None:
    async with bench(verifier=Tokens()) as b:
        p = await opened(b)
        client = b.peer(token="ann")
        assert (await modern_call(client).done()).status == 200
        p.token = client.token = f"ann-{seconds}"
        for call in (p.call(1), p.get(), p.send("DELETE"), modern_call(client)):
            assert (await call.done()).status == 401
            assert call.headers["www-authenticate"] == 'Bearer error="invalid_token"'
        assert b.runs == ["quick"]
        p.token = "ann"
        assert (await p.call(1).done()).status == 200, "the session is as it was"


@pytest.mark.parametrize(
    ("token", "kind"), [("raise", "ConnectionError"), ("hang", "TimeoutError"), ("nonsense", "TypeError")]
)
@front_test
async def test_a_verifier_that_fails_is_503_and_only_the_type_of_its_error_is_logged(
    token: str, kind: str
) -> None:
    async with bench(verifier=Tokens()) as b:
        call = await b.peer(token=token).initialize()
        assert (call.status, call.headers["retry-after"]) == (503, "1")
        assert token not in call.body.decode()
        assert asyncio.get_running_loop().time() == pytest.approx(10.0 if token == "hang" else 0.0)
        [facts] = b.observer.named("verifier.failed")
        assert facts["error"] == kind
        assert token not in str(facts)
        assert (await opened(b)).session


@front_test
async def test_a_failing_authorization_server_is_named_with_the_reason() -> None:
    class Failing:
        authorization_servers = ("https://id.example",)

        async def __call__(self, token: str) -> Principal | None:
            if token == "own":
                raise ValueError(token)
            raise AuthorizationFailed("https://id.example/keys?key=secret answered 500 instead of the keys")

    async with bench(verifier=Failing()) as b:
        for token in ("any", "own"):
            assert (await b.peer(token=token).initialize()).status == 503
        ours, own = b.observer.named("verifier.failed")
        assert ours["authorization_server"] == own["authorization_server"] == "https://id.example"
        assert ours["reason"] == "https://id.example/keys?… answered 500 instead of the keys"
        assert "reason" not in own, "the text of an author's error may have the token"


@front_test
async def test_readyz_says_that_no_token_can_be_checked_and_stays_ready() -> None:
    class Flaky:
        asked = "https://id.example/introspect"
        fails = True

        async def __call__(self, token: str) -> Principal | None:
            if self.fails:
                raise AuthorizationFailed("no answer")
            return Principal(subject=token)

    verifier = Flaky()
    async with bench(verifier=verifier) as b:
        assert (await b.peer(token="any").initialize()).status == 503
        [facts] = b.observer.named("verifier.failed")
        assert (facts["authorization_server"], facts["reason"]) == (verifier.asked, "no answer")
        ready = await b.peer().send("GET", path="/readyz").done()
        line = f"ready, but no new token can be checked: {verifier.asked} fails\n"
        assert (ready.status, ready.body.decode()) == (200, line)
        verifier.fails = False
        assert (await b.peer(token="any").initialize()).status == 200
        assert (await b.peer().send("GET", path="/readyz").done()).body == b"ready\n"


@front_test
async def test_a_verifier_that_fails_for_every_request_does_not_fill_the_log() -> None:
    async with bench(verifier=Tokens()) as b:
        for _ in range(100):
            await b.peer(token="raise").initialize()
        assert b.noted("verifier.failed") == 10
        await asyncio.sleep(1.0)
        await b.peer(token="raise").initialize()
        assert b.observer.named("verifier.failed")[-1]["held_back"] == 90


# Verifiers that remember


class Remembering:
    """A verifier that remembers each token for a minute."""

    def __init__(self) -> None:
        self.checked: list[str] = []
        self.looked = 0
        self._known: dict[str, tuple[Principal, float]] = {}

    def known(self, token: str) -> tuple[Principal, float] | None:
        self.looked += 1
        found = self._known.get(token)
        return found if found is not None and found[1] > LoopClock().wall() else None

    async def __call__(self, token: str) -> Principal | None:
        self.checked.append(token)
        if token == "wrong":
            return None
        self._known[token] = Principal(subject=token), LoopClock().wall() + 60
        return self._known[token][0]


@front_test
async def test_a_token_that_its_verifier_remembers_is_not_checked_again_in_that_time() -> None:
    verifier = Remembering()
    async with bench(verifier=verifier) as b:
        peer = b.peer(token="ann")
        for _ in range(5):
            assert (await modern_call(peer).done()).status == 200
        assert verifier.checked == ["ann"]
        assert (await modern_call(b.peer(token="wrong")).done()).status == 401
        assert (await modern_call(b.peer()).done()).status == 401
        await asyncio.sleep(60)
        assert (await modern_call(peer).done()).status == 200
        assert verifier.checked == ["ann", "wrong", "ann"]


class Stricter(Remembering):
    """Checks more than its base class, which remembers tokens that it refuses."""

    async def __call__(self, token: str) -> Principal | None:
        principal = await super().__call__(token)
        return None if token == "blocked" else principal


@pytest.mark.parametrize("verifier", [Stricter(), AnyOf(Stricter())], ids=["alone", "one of several"])
@front_test
async def test_a_verifier_that_changes_the_check_of_its_base_class_is_always_called(
    verifier: Verifier,
) -> None:
    async with bench(verifier=verifier) as b:
        for _ in range(3):
            assert (await modern_call(b.peer(token="ann")).done()).status == 200
            assert (await modern_call(b.peer(token="blocked")).done()).status == 401


@front_test
async def test_a_head_remembers_its_principal_until_the_date_that_the_verifier_has_set() -> None:
    verifier = Remembering()
    async with bench(verifier=verifier) as b:
        identity = b.app._identity
        assert identity is not None
        sent = RawRequest.of("POST", "/mcp", [(b"authorization", b"Bearer ann")], "127.0.0.1")
        assert identity.remembered(sent) is None
        found = await identity.of(sent)
        assert [identity.remembered(sent) for _ in range(5)] == [found] * 5
        assert verifier.looked == 2, "once before it was known, and once after"
        await asyncio.sleep(60)
        assert identity.remembered(sent) is None


@front_test
async def test_a_head_does_not_keep_a_principal_that_its_verifier_has_forgotten() -> None:
    verifier = Remembering()
    async with bench(verifier=verifier) as b:
        identity = b.app._identity
        assert identity is not None
        sent = RawRequest.of("POST", "/mcp", [(b"authorization", b"Bearer ann")], "127.0.0.1")
        kept = ref(await identity.of(sent))
        assert identity.remembered(sent) is kept()
        verifier._known.clear()
        assert kept() is None
        assert identity.remembered(sent) is None


@front_test
async def test_a_verifier_that_remembers_nothing_is_called_for_each_request() -> None:
    async with bench(verifier=Tokens()) as b:
        identity = b.app._identity
        assert identity is not None
        sent = RawRequest.of("POST", "/mcp", [(b"authorization", b"Bearer ann")], "127.0.0.1")
        await identity.of(sent)
        assert identity.remembered(sent) is None


@front_test
async def test_addresses_take_turns_when_many_tokens_must_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "_AT_ONCE", 8)
    asked: list[str] = []
    go_on = asyncio.Semaphore(0)

    async def slow(token: str) -> Principal | None:
        asked.append(token)
        await go_on.acquire()
        return Principal(subject="bob", issuer="test") if token == "bob" else None

    async with bench(verifier=slow, settings=Settings(limits=Limits(verifier_seconds=1_000))) as b:
        flood = [b.peer(token=f"wrong{number}", client="192.0.2.1").call(1) for number in range(40)]
        await until(lambda: len(asked) >= 7)
        await asyncio.sleep(1)
        assert len(asked) == 7, "one place stays free for other addresses"
        others = [b.peer(token=f"other{number}", client="192.0.2.2").call(1) for number in range(7)]
        await until(lambda: len(asked) >= 8)
        bob = b.peer(token="bob", client="192.0.2.3").call(1)
        for _ in range(5):
            go_on.release()
        await until(lambda: "bob" in asked)
        for _ in range(50):
            go_on.release()
        assert [(await call.done()).status for call in (*flood, *others)] == [401] * 47
        assert (await bob.done()).status == 400, "its token is valid; it has no session"
