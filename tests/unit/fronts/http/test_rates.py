"""Rates over HTTP, on stdio and between replicas: which requests count, and the client's answer."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any

import jwt
import msgspec
import pytest
from jwt import PyJWK

from limpet import Context, Server, Settings
from limpet.asks import InputRequired
from limpet.auth import AuthRequest, Principal
from limpet.auth.verifiers import JwtVerifier
from limpet.config import Limits, Rate, RateLimits
from limpet.engine.caller import Caller
from limpet.engine.engine import Engine
from limpet.errors import ConfigError, RateLimited, StoreUnavailable
from limpet.fronts.http.read.request import RawRequest
from limpet.routes import HttpRequest, HttpResponse
from limpet.stores.base import Store
from limpet.stores.memory import MemoryStore
from limpet.stores.redis.store import RedisStore
from limpet.stores.sqlite import SqliteStore
from limpet.testing import ScriptedBack, VirtualClock
from limpet.wire.jsonrpc import Request
from tests.asgi import Call, Peer
from tests.duplex import DuplexClient
from tests.messages import notification, request
from tests.redis_server import needs_redis, redis_server
from tests.sqlite.support import store_path
from tests.support import LoopClock, async_test, until, virtual_test
from tests.unit.auth.verifiers.issuer import jwk, rsa_key
from tests.unit.fronts.http.bench import OLDEST, Bench, bench, front_test
from tests.unit.fronts.http.test_audit import reasons
from tests.unit.fronts.http.test_auth import Tokens, opened


def rated(**rates: Any) -> Settings:
    return Settings(rates=RateLimits(**rates))


def guest_call(peer: Peer, tool: str = "quick", **params: Any) -> Call:
    return peer.sessionless("tools/call", {"name": tool, **params})


def check_refused(call: Call, limit: str, rate: str, seconds: int) -> None:
    """Check the whole refusal of a call over a rate."""
    assert call.status == 429
    assert call.headers["retry-after"] == str(seconds)
    assert call.headers["limpet-refused"] == "not-executed"
    error = call.json["error"]
    assert error["code"] == -31001
    assert {**error["data"], "correlation": ""} == {"limit": limit, "rate": rate, "correlation": ""}
    assert rate in error["message"]


# Principals


@front_test
async def test_a_principal_has_a_burst_and_then_its_rate_in_both_eras() -> None:
    async with bench(rated(principal="5/s"), verifier=Tokens()) as b:
        ann = await opened(b)
        for number in range(4):
            assert (await ann.call(number).done()).status == 200
        refused = await ann.call(9).done()
        check_refused(refused, "principal", "5/s", 1)
        assert refused.json["id"] == 9
        check_refused(await guest_call(b.peer(token="ann")).done(), "principal", "5/s", 1)
        assert (await guest_call(b.peer(token="bob")).done()).status == 200, "bob has his own rate"
        assert await reasons(b) == ["rate_principal"] * 2
        await asyncio.sleep(0.2)
        assert (await ann.call(9).done()).status == 200
        assert (await ann.call(10).done()).status == 429
        assert len(b.runs) == 6


PING = {"jsonrpc": "2.0", "id": "p", "method": "ping"}


async def took(call: Call) -> tuple[int, float]:
    """Return the status of a call, and the seconds until its end."""
    begun = asyncio.get_running_loop().time()
    await call.done()
    return call.status, round(asyncio.get_running_loop().time() - begun, 1)


@front_test
async def test_messages_of_work_that_runs_are_counted_and_slow_their_connection_instead_of_a_refusal() -> (
    None
):
    async with bench(rated(principal="60/m"), verifier=Tokens()) as b:
        ann = await opened(b)
        call = await ann.call(1, "ask").until(1)
        for _ in range(29):
            assert await took(ann.post(PING)) == (200, 0.0)
            assert await took(ann.post(notification("notifications/initialized"))) == (202, 0.0)
        # The rate is used up.
        check_refused(await ann.call(2).done(), "principal", "60/m", 1)
        assert await took(ann.post(PING)) == (200, 1.0)
        assert await took(ann.post(notification("notifications/initialized"))) == (202, 0.0)
        answer = {"jsonrpc": "2.0", "id": call.messages[0]["id"], "result": {}}
        answered = ann.post(answer)
        await call.done()
        assert call.messages[-1]["id"] == 1
        assert not answered.status, "the answer has arrived, and its connection is slower"
        assert await took(answered) == (202, 1.0)
        assert (await ann.delete()).status == 204


@front_test
async def test_a_cancellation_over_the_rate_has_its_effect_at_once() -> None:
    async with bench(rated(principal="2/h"), verifier=Tokens()) as b:
        ann = await opened(b)
        call = ann.call(1, "held")
        await until(lambda: b.runs == ["held"])
        cancelled = ann.post(notification("notifications/cancelled", {"requestId": 1}))
        assert (await took(call))[1] == 0.0
        assert await took(cancelled) == (202, 5.0), "at most five seconds"


@front_test
async def test_answers_and_cancellations_of_a_batch_whose_requests_are_refused_are_taken() -> None:
    async with bench(rated(principal="2/m"), verifier=Tokens()) as b:
        ann = await opened(b, "ann", OLDEST)
        call = ann.call(1, "held")
        await until(lambda: b.runs == ["held"])
        cancel = notification("notifications/cancelled", {"requestId": 1})
        check_refused(
            await ann.post([request(2, "tools/call", {"name": "quick"}), cancel]).done(),
            "principal",
            "2/m",
            30,
        )
        await call.done()
        assert b.runs == ["held"]


@front_test
async def test_a_call_of_a_session_counts_also_if_it_has_a_state_that_sessions_do_not_have() -> None:
    async with bench(rated(principal="2/m", tools={"quick": "9/m"}), verifier=Tokens()) as b:
        ann = await opened(b)
        params = {"name": "quick", "requestState": "x"}
        posted = [ann.post(request(number, "tools/call", params)) for number in (1, 2)]
        assert [(await call.done()).status for call in posted] == [200, 429]
        assert len(b.runs) == 1


@async_test
async def test_a_retry_that_calls_its_handler_again_counts() -> None:
    server = Server("desk", verifier=Tokens(), settings=rated(principal="3/m"))

    @server.tool
    async def reserve(ctx: Context) -> str | InputRequired:
        if ctx.request_state is None:
            return InputRequired(requests={}, state="table 7")
        return ctx.request_state

    app = server.asgi()
    async with aclosing(server.engine):
        state = (await guest_call(Peer(app, token="ann"), "reserve").done()).json["result"]["requestState"]
        retries = [
            await guest_call(Peer(app, token=token), "reserve", requestState=state).done()
            for token in ("ann", "ann", "ann", "bob")
        ]
        assert [retry.status for retry in retries] == [200, 200, 429, 400]


@front_test
async def test_anonymous_clients_count_by_address() -> None:
    async with bench(rated(principal="1/m"), allow_anonymous=True, trusted_proxies=["127.0.0.1"]) as b:
        assert (await guest_call(b.peer(client="203.0.113.1")).done()).status == 200
        assert (await guest_call(b.peer(client="203.0.113.1")).done()).status == 429
        assert (await guest_call(b.peer(client="203.0.113.2")).done()).status == 200
        proxied = b.peer(client="127.0.0.1")
        for address, status in (("198.51.100.1", 200), ("198.51.100.2", 200), ("198.51.100.1", 429)):
            headers = {"x-forwarded-for": address}
            call = proxied.sessionless("tools/call", {"name": "quick"}, headers=headers)
            assert (await call.done()).status == status
        # One client of IPv6 has a whole network.
        assert (await guest_call(b.peer(client="2001:db8::1")).done()).status == 200
        assert (await guest_call(b.peer(client="2001:db8::2")).done()).status == 429


@front_test
async def test_each_request_of_a_batch_counts_and_a_batch_over_the_rate_runs_nothing() -> None:
    async with bench(rated(principal="4/m"), verifier=Tokens()) as b:
        ann = await opened(b, "ann", OLDEST)
        call = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "quick"}}
        assert (await ann.post([{**call, "id": 1}, {**call, "id": 2}]).done()).status == 200
        check_refused(await ann.post([{**call, "id": 3}, {**call, "id": 4}]).done(), "principal", "4/m", 15)
        assert b.runs == ["quick", "quick"]


# Tools


@front_test
async def test_a_tool_has_a_rate_for_all_clients_or_for_each_principal() -> None:
    tools = {"quick": "2/m", "held": "1/m per principal"}
    async with bench(rated(tools=tools), verifier=Tokens()) as b:
        b.release.set()
        ann, bob = b.peer(token="ann"), b.peer(token="bob")
        assert [(await guest_call(one).done()).status for one in (ann, bob, ann)] == [200, 200, 429]
        check_refused(await guest_call(bob).done(), "tool", "2/m", 30)
        assert [(await guest_call(one, "held").done()).status for one in (ann, bob)] == [200, 200]
        check_refused(await guest_call(ann, "held").done(), "tool", "1/m per principal", 60)
        assert (await guest_call(ann, "ticks").done()).status == 200, "other tools have no rate"
        assert await reasons(b) == ["rate_tool"] * 3


@front_test
async def test_a_call_that_a_tool_refuses_is_not_counted_for_its_principal() -> None:
    async with bench(rated(principal="2/m", tools={"quick": "1/m"}), verifier=Tokens()) as b:
        b.release.set()
        ann = b.peer(token="ann")
        statuses = [(await guest_call(ann).done()).status for _ in range(3)]
        assert statuses == [200, 429, 429]
        assert (await guest_call(ann, "held").done()).status == 200


@virtual_test
async def test_a_tool_declares_its_rate_also_while_the_server_runs_and_when_it_is_included() -> None:
    inner, server = Server("inner"), Server("outer", verifier=Tokens())

    @inner.tool(rate="1/m")
    async def search() -> str:
        return "found"

    server.include(inner, "in")
    app = server.asgi()
    ann = Peer(app, token="ann")
    async with aclosing(server.engine):
        assert [(await guest_call(ann, "in_search").done()).status for _ in range(2)] == [200, 429]

        @server.tool(rate="2/m per principal")
        async def late() -> str:
            return "late"

        assert [(await guest_call(ann, "late").done()).status for _ in range(3)] == [200, 200, 429]
        server.remove_tool("late")
        inner.remove_tool("search")
        assert not server.engine.rates.is_on


def test_the_settings_override_the_rate_that_a_tool_declares() -> None:
    server = Server("s", settings=rated(tools={"search": "7/s"}))
    server.engine.rates.declare({"search": Rate.read("1/s"), "other": Rate.read("2/s")})
    rates = server.engine.rates
    for _ in range(7):
        rates.check(Request(1, "tools/call", {"name": "search"}), Caller("ann"), "")
    with pytest.raises(RateLimited, match="7/s"):
        rates.check(Request(1, "tools/call", {"name": "search"}), Caller("ann"), "")


@virtual_test
async def test_a_call_without_the_scope_of_a_tool_neither_uses_up_nor_shows_its_rate() -> None:
    async def verifier(token: str) -> Principal | None:
        return Principal(subject=token, scopes=frozenset({"mail"} if token == "ann" else ()))

    server = Server("mail", verifier=verifier)

    @server.tool(rate="2/m", scopes={"mail"})
    async def send() -> str:
        return "sent"

    @server.tool(rate="1/m", scopes={"mail"}, hidden=True)
    async def secret() -> str:
        return "hidden"

    app = server.asgi()
    ann, bob = Peer(app, token="ann"), Peer(app, token="bob")
    async with aclosing(server.engine):
        assert [(await guest_call(bob, "send").done()).status for _ in range(4)] == [403] * 4
        assert [(await guest_call(ann, "send").done()).status for _ in range(3)] == [200, 200, 429]
        unknown = {(await guest_call(bob, tool).done()).status for tool in ("secret", "secret", "unknown")}
        assert len(unknown) == 1
        assert (await guest_call(ann, "secret").done()).status == 200


@pytest.mark.parametrize(
    "text", ["", "10", "10/", "0/s", "-1/s", "1.5/s", "10/w", "10/s ", "10 / s", "10/s per tool"]
)
def test_a_text_that_is_not_a_rate_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="100/s"):
        Rate.read(text, "rate")
    with pytest.raises(ConfigError, match=r"tools\.search="):
        RateLimits(tools={"search": text})

    with pytest.raises(ConfigError, match="tool noon"):

        @Server("s").tool(rate=text)
        async def noon() -> None:
            """Do nothing."""


@pytest.mark.parametrize("name", ["principal", "refusals"])
def test_only_the_rate_of_a_tool_is_per_principal(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        msgspec.convert({name: "1/s per principal"}, RateLimits)


@pytest.mark.parametrize("text", ["1/s", "10/m", "300/h", "5/d per principal"])
def test_a_rate_is_shown_as_it_was_written(text: str) -> None:
    assert str(Rate.read(text)) == text


# Refused requests


async def storm(b: Bench, count: int, **options: Any) -> list[int]:
    """Send requests with different wrong tokens; return their statuses."""
    return [(await b.peer(token=f"wrong{n}", **options).initialize()).status for n in range(count)]


@front_test
async def test_wrong_tokens_of_an_address_get_429_and_its_valid_tokens_pass() -> None:
    async def verifier(token: str) -> Principal | None:
        return Principal(subject="ann") if token.startswith("good") else None

    async with bench(rated(refusals="5/m"), verifier=verifier) as b:
        assert (await guest_call(b.peer(token="good")).done()).status == 200
        assert await storm(b, 8) == [401] * 5 + [429] * 3
        refused = await b.peer(token="wrong").initialize()
        check_refused(refused, "address", "5/m", 12)
        assert (await b.peer().initialize()).status == 429, "also without a token"
        # The address is shared: neither a client with an accepted token nor one with a renewed or first token is shut out.
        for token in ("good", "good2", "good3"):
            assert (await guest_call(b.peer(token=token)).done()).status == 200
        assert await storm(b, 1, client="203.0.113.9") == [401], "other addresses notice nothing"
        await asyncio.sleep(13)
        assert b.engine.rates.exhausted == set()
        assert await storm(b, 1) == [401]
        assert set(await reasons(b)) == {"token", "rate_address"}


@front_test
async def test_after_640_wrong_tokens_of_a_shared_address_a_renewed_jwt_passes() -> None:
    key, clock = rsa_key(), LoopClock()
    check = JwtVerifier(issuer="https://id.example", audience="https://tools.example", clock=clock)
    check._keys._keys = [PyJWK(jwk(key), "RS256")]
    usual = {"iss": "https://id.example", "aud": "https://tools.example", "sub": "ann"}

    def token(number: int) -> str:
        return jwt.encode({**usual, "exp": int(clock.wall()) + 600 + number}, key, algorithm="RS256")

    async with bench(verifier=check) as b:
        # The wrong ones begin as the valid ones do: only their signatures differ.
        wrong, valid = token(0).rpartition(".")[0], token(1)
        statuses = [(await b.peer(token=f"{wrong}.{n:04}").initialize()).status for n in range(640)]
        assert statuses == [401] * 600 + [429] * 40
        assert (await guest_call(b.peer(token=valid)).done()).status == 200


@front_test
async def test_few_wrong_tokens_of_an_address_are_checked_at_once_and_a_valid_token_passes_meanwhile() -> (
    None
):
    checking: set[str] = set()
    asked = asyncio.Event()

    async def verifier(token: str) -> Principal | None:
        if token.startswith("ann"):
            return Principal(subject="ann")
        checking.add(token)
        if b.engine.rates.exhausted:
            await asked.wait()
        return None

    async with bench(rated(refusals="5/h"), verifier=verifier) as b:
        assert await storm(b, 5) == [401] * 5
        checking.clear()
        alike = [b.peer(token=f"wrong token {n}").call(n) for n in range(20)]
        await asyncio.sleep(0.001)
        assert len(checking) == 4
        different = [b.peer(token=f"{n} is wrong").call(n) for n in range(3)]
        await asyncio.sleep(0.001)
        assert len(checking) == 7
        assert (await guest_call(b.peer(token="ann")).done()).status == 200
        different += [b.peer(token=f"{n} is wrong").call(n) for n in range(3, 20)]
        await asyncio.sleep(0.001)
        assert len(checking) == 8
        # A token that was accepted before needs none of these places, and another address has its own.
        assert (await guest_call(b.peer(token="ann")).done()).status == 200
        assert (await guest_call(b.peer(token="ann2", client="203.0.113.9")).done()).status == 200
        asked.set()
        assert {(await call.done()).status for call in alike + different} == {429}
        assert not b.app._identity._checks._running  # type: ignore[union-attr]


@async_test
async def test_a_route_answers_wrong_tokens_of_an_address_with_429_and_serves_its_valid_ones() -> None:
    async def verifier(token: str) -> Principal | None:
        return Principal(subject="ann") if token.startswith("good") else None

    server = Server("export", verifier=verifier, settings=rated(refusals="2/m"))

    @server.route("/export", principal=True)
    async def export(request: HttpRequest) -> HttpResponse:
        return HttpResponse(request.method)

    app = server.asgi()

    async def status(token: str) -> int | None:
        return (await Peer(app, token=token).send("GET", path="/export").done()).status

    async with aclosing(server.engine):
        assert await status("good") == 200
        assert [await status(f"wrong{n}") for n in range(4)] == [401, 401, 429, 429]
        assert [await status("good"), await status("good2")] == [200, 200]


@front_test
async def test_refused_origins_and_anonymous_clients_count_and_unknown_sessions_do_not() -> None:
    async with bench(rated(refusals="2/m")) as b:
        far = b.peer(client="203.0.113.9")
        assert [(await far.initialize()).status for _ in range(3)] == [403, 403, 429]
        near = b.peer()
        evil = {"origin": "https://evil.example"}
        assert [(await near.initialize(headers=evil)).status for _ in range(3)] == [403, 403, 429]
        near.session = "unknown"
        near.version = "2025-11-25"
        # After a restart all clients behind a proxy find their sessions gone, and begin again because of the 404.
        assert [(await near.call(1).done()).status for _ in range(3)] == [404] * 3


@front_test
async def test_by_default_refusals_are_limited_generously_and_calls_are_not() -> None:
    async with bench(verifier=Tokens()) as b:
        assert not b.engine.rates.is_on
        assert await storm(b, 601) == [401] * 600 + [429]


@front_test
async def test_without_a_rate_of_refusals_none_is_counted() -> None:
    async with bench(rated(refusals=""), verifier=Tokens()) as b:
        assert set(await storm(b, 700)) == {401}


@front_test
async def test_a_storm_is_counted_by_the_address_that_a_trusted_proxy_reports() -> None:
    async with bench(rated(refusals="2/m"), verifier=Tokens(), trusted_proxies=["127.0.0.1"]) as b:
        for address, statuses in (("198.51.100.1", [401, 401, 429]), ("198.51.100.2", [401])):
            headers = {"x-forwarded-for": address}
            tried = [(await b.peer(token="no").initialize(headers=headers)).status for _ in statuses]
            assert tried == statuses


@front_test
async def test_the_memory_of_accepted_tokens_and_of_stormy_addresses_is_bounded() -> None:
    async def verifier(token: str, request: AuthRequest) -> Principal | None:
        return Principal(subject="ann") if token.startswith("good") else None

    async with bench(rated(refusals="1/m"), verifier=verifier) as b:
        rates = b.engine.rates
        for number in range(20_100):
            rates.refused(f"10.{number}")
        assert len(rates.exhausted) <= 10_000
        identity = b.app._identity
        assert identity is not None
        for number in range(10_010):
            await identity.of(
                RawRequest.of("POST", "/mcp", [(b"authorization", b"Bearer good%d" % number)], None)
            )
        assert len(identity._accepted) == 10_000
        assert identity.has_accepted(b.head("good10009"))
        assert not identity.has_accepted(b.head("good0"))


# stdio, and clients in the same process


@virtual_test
async def test_on_a_duplex_connection_a_rate_is_a_json_rpc_error() -> None:
    async def call(_exchange: object) -> object:
        return {"content": []}

    back = ScriptedBack({"tools/call": call, "ping": call})
    engine = Engine(back, rated(principal="3/m", tools={"t": "1/m"}), clock=VirtualClock())
    client = DuplexClient(engine, Caller(""))
    async with aclosing(engine):
        await client.open()
        await client.say("tools/call", 1, name="t")
        await client.say("tools/call", 2, name="t")
        assert (await client.answer(1))["result"] == {"content": []}
        error = (await client.answer(2))["error"]
        assert error["code"] == -31001
        assert error["data"].items() >= {"limit": "principal", "rate": "3/m"}.items()
        await client.sessionless("tools/call", "m", name="t")
        assert (await client.answer("m"))["error"]["code"] == -31001
        begun = asyncio.get_running_loop().time()
        await client.say("ping", 3)
        assert (await client.answer(3))["result"] == {"content": []}
        assert asyncio.get_running_loop().time() - begun == 5.0, "the next message is read later"
        assert len(back.handled) == 2, "one call, and the ping"
        assert engine.audit.counts["rate_principal"] == 2


# Replicas


@contextmanager
def sqlite_stores(clock: VirtualClock, count: int) -> Iterator[list[Store]]:
    with store_path() as path:
        yield [SqliteStore(path, Limits(), clock, replica=f"r{number}") for number in range(count)]


@contextmanager
def redis_stores(clock: VirtualClock, count: int) -> Iterator[list[Store]]:
    with redis_server() as server:
        yield [RedisStore(server.url, Limits(), clock, replica=f"r{number}") for number in range(count)]


KINDS = [pytest.param(sqlite_stores, id="sqlite"), pytest.param(redis_stores, id="redis", marks=needs_redis)]


@asynccontextmanager
async def replicas(
    kind: Any, settings: Settings, count: int = 3
) -> AsyncIterator[tuple[VirtualClock, list[Engine]]]:
    """Yield engines that share a store, and the clock that all of them have. Nothing runs by itself."""
    clock = VirtualClock()
    with kind(clock, count) as stores:
        engines = [Engine(ScriptedBack(), settings, store=store, clock=clock) for store in stores]
        try:
            yield clock, engines
        finally:
            for store in stores:
                await store.aclose()


def passes(engine: Engine, who: str = "ann") -> bool:
    try:
        engine.rates.check(Request(1, "tools/call", {"name": "t"}), Caller(who), "")
    except RateLimited:
        return False
    return True


@pytest.mark.parametrize("kind", KINDS)
@async_test
async def test_replicas_exceed_a_rate_by_a_burst_and_two_seconds_each_and_pay_it_back(kind: Any) -> None:
    rate, seconds = 10, 20
    async with replicas(kind, rated(principal=f"{rate}/s")) as (clock, engines):
        passed = 0
        highest = 0.0
        for tick in range(seconds * 10):
            for number, engine in enumerate(engines):
                # They do not compare at the same moment.
                if tick % 10 == 3 * number:
                    await engine.rates.reconcile()
                for _ in range(5):
                    passed += passes(engine)
            highest = max(highest, passed - (rate + rate * tick / 10))
            clock.advance(0.1)
        assert rate < highest <= (len(engines) - 1) * (rate + 2 * rate)
        # In the long run it is the rate, plus the calls of one more interval.
        assert passed <= rate + rate * seconds + (len(engines) - 1) * 3 * rate
        assert passed >= rate * seconds * 0.9


@pytest.mark.parametrize("kind", KINDS)
@async_test
async def test_a_replica_knows_the_calls_that_others_have_admitted_before_its_own_first_one(
    kind: Any,
) -> None:
    async with replicas(kind, rated(tools={"t": "3/h"})) as (clock, engines):
        one, two, three = engines
        assert [passes(one) for _ in range(4)] == [True, True, True, False]
        for _ in range(3):
            for engine in (one, two):
                await engine.rates.reconcile()
            clock.advance(1)
        assert not passes(two)
        assert passes(three), "it has not compared yet"


@pytest.mark.parametrize("kind", KINDS)
@async_test
async def test_a_storm_at_one_replica_is_known_to_the_others(kind: Any) -> None:
    async with replicas(kind, rated(refusals="2/h")) as (_, engines):
        one, two, _three = engines
        assert [one.rates.refused("203.0.113.9") is None for _ in range(3)] == [True, True, False]
        two.rates.refused("198.51.100.1")
        await one.rates.reconcile()
        await two.rates.reconcile()
        assert two.rates.exhausted
        assert two.rates.over("203.0.113.9") is not None


class CountedStore(MemoryStore):
    """A store that several could share, as far as it says, and that counts notices."""

    is_shared = True

    def __init__(self) -> None:
        super().__init__()
        self.posted: list[bytes] = []
        self.is_away = False

    async def post_notice(self, notice: bytes, *, seconds: float) -> list[bytes]:
        if self.is_away:
            raise StoreUnavailable("away")
        self.posted.append(notice)
        return []


@async_test
async def test_no_call_waits_for_the_store_and_all_counters_are_one_write() -> None:
    store = CountedStore()
    engine = Engine(
        ScriptedBack(), rated(principal="9/s", tools={"t": "9/s"}), store=store, clock=VirtualClock()
    )
    for number in range(500):
        assert passes(engine, f"user{number % 100}") == (number < 9)
    assert store.posted == []
    await engine.rates.reconcile()
    [report] = store.posted
    assert len(report) < 500
    store.is_away = True
    await engine.rates.reconcile()
    store.is_away = False
    await engine.rates.reconcile()
    assert len(store.posted) == 2, "an unavailable store ends nothing"


@async_test
async def test_without_rates_and_without_refusals_nothing_is_sent_to_the_store() -> None:
    store = CountedStore()
    engine = Engine(ScriptedBack(), store=store, clock=VirtualClock())
    for _ in range(3):
        await engine.rates.reconcile()
    assert store.posted == []
    engine.rates.refused("203.0.113.9")
    for _ in range(10):
        await engine.rates.reconcile()
    assert len(store.posted) == 5


@virtual_test
async def test_a_running_engine_compares_once_a_second() -> None:
    store = CountedStore()
    engine = Engine(ScriptedBack(), rated(principal="9/s"), store=store, clock=LoopClock())
    engine._sweep()
    await asyncio.sleep(5.5)
    assert len(store.posted) == 5
    for job in engine._sweeping:
        job.cancel()
