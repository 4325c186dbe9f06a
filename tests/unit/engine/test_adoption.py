"""Engines that share a store: the calls of a dead one are run again by another, or end with outcome unknown."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final
from unittest.mock import patch

from typing_extensions import override

from holdfast.auth import Principal
from holdfast.config import Limits, Settings, Times
from holdfast.engine.caller import Caller
from holdfast.engine.exchange import Client, Exchange, SessionExchange
from holdfast.engine.exchanges import Repeat
from holdfast.errors import NoBackChannel
from holdfast.stores.base import Answered
from holdfast.testing import ScriptedBack, SeededRandom
from holdfast.wire.jsonrpc import Request
from tests.simulation.cluster import Cluster
from tests.simulation.world import SimKeeper
from tests.support import LoopClock
from tests.unit.engine.harness import CALL, PRINCIPAL, EngineHarness, Json, echo, engine_test, gate

LEASE: Final = 3.0
NOTICED: Final = LEASE + 2.0
"""Seconds after which the calls of a dead replica were handled."""
SETTINGS: Final = Settings(reruns=2, times=Times(lease=LEASE, lease_renewal=1.0))
AGAIN: Final = {"name": "again"}
LOST: Final = -31002

Script = Callable[[Exchange], Awaitable[object]]


class Tools(ScriptedBack):
    """Calls of the tool `again` may be run again."""

    def __init__(self, script: Script) -> None:
        super().__init__({CALL: script})
        self.idempotent = {"again"}

    @override
    async def is_idempotent(self, request: Request, client: Client | None = None) -> bool:
        return request.params.get("name") in self.idempotent


@asynccontextmanager
async def fleet(*scripts: Script, settings: Settings = SETTINGS) -> AsyncIterator[list[EngineHarness]]:
    """Run an engine for each script, over one store, with one session."""
    cluster = Cluster(settings.limits, LoopClock())
    harnesses: list[EngineHarness] = []
    with patch("holdfast.engine.replica.LeaseKeeper", SimKeeper):
        for number, script in enumerate(scripts):
            harness = EngineHarness(Tools(script), settings, cluster.connect(f"r{number}").store)
            harness.engine.runtime.random = SeededRandom(number)
            await harness.engine.ensure_started()
            harnesses.append(harness)
        session = await harnesses[0].open()
        for harness in harnesses:
            harness.session = session
        try:
            yield harnesses
        finally:
            for harness in harnesses:
                await harness.engine.aclose()


def die(harness: EngineHarness) -> None:
    """Let an engine be taken for dead: it renews nothing and sweeps nothing more. Its handlers hang on."""
    replica = harness.engine.replica
    assert replica._keeper is not None
    assert harness.engine._sweeping
    replica._keeper.stop()
    for job in harness.engine._sweeping:
        job.cancel()


async def end_of(harness: EngineHarness, stream: str) -> Json:
    """Return the terminal message of a stream."""
    get = await harness.get(stream)
    await get.task
    return get.messages[-1]


async def lost(harness: EngineHarness, stream: str) -> bool:
    return bool((await end_of(harness, stream)).get("error", {}).get("code") == LOST)


@engine_test
async def test_an_idempotent_call_of_a_dead_replica_is_run_again_and_any_other_is_not() -> None:
    stuck, going_on = gate()
    async with fleet(stuck, echo) as (one, two):
        posts = [await one.post(1, params={**AGAIN, "x": 5}), await one.post(2, params={"name": "once"})]
        again, once = (post.exchange.claim.stream for post in posts)
        die(one)
        await asyncio.sleep(NOTICED)
        repeat = await two.submit(1, params={**AGAIN, "x": 5})
        assert isinstance(repeat, Repeat), (
            "a client that was cut and repeats gets the answer, and there is no third run"
        )
        assert await end_of(two, again) == {"jsonrpc": "2.0", "id": 1, "result": {"id": 1, **AGAIN, "x": 5}}
        assert await lost(two, once)
        assert [exchange.request.id for exchange in two.back.handled] == [1]
        assert [note["run"] for note in two.noted.named("exchange.adopted")] == [2]
        assert len(two.noted.named("exchange.reaped")) == 1
        going_on.set()
        await asyncio.sleep(1)
        assert len(one.noted.named("exchange.fenced")) == 2, "a replica that wakes up writes nothing"


@engine_test
async def test_no_request_is_stored_or_run_again_unless_the_operator_turned_it_on() -> None:
    stuck, _ = gate()
    async with fleet(stuck, echo, settings=Settings(times=SETTINGS.times)) as (one, two):
        post = await one.post(1, params=AGAIN)
        assert post.exchange.claim.payload == b""
        die(one)
        await asyncio.sleep(NOTICED)
        assert await lost(two, post.exchange.claim.stream)
        assert two.back.handled == []


@engine_test
async def test_only_calls_that_may_run_again_are_kept() -> None:
    async with fleet(echo) as (one,):
        kept, plain = await one.post(1, params=AGAIN), await one.post(2, params={"name": "once"})
        assert kept.exchange.claim.payload
        assert plain.exchange.claim.payload == b""
        connected = await one.open(channel=_Nowhere())
        exchange = await one.submit(3, params=AGAIN, session=connected)
        assert isinstance(exchange, SessionExchange)
        assert exchange.claim.payload == b"", "no client could come back for its answer"
    async with fleet(echo, settings=Settings(reruns=2, stateless=True)) as (one,):
        assert (await one.post(1, params=AGAIN)).exchange.claim.payload == b""


class _Nowhere:
    async def send(self, message: bytes) -> None:
        """Lose it."""


@engine_test
async def test_a_call_is_abandoned_where_the_authors_code_fails_when_asked_whether_it_may_run() -> None:
    stuck, _ = gate()
    async with fleet(stuck, echo) as (one, two):
        post = await one.post(1, params=AGAIN)
        die(one)
        with patch.object(two.back, "is_idempotent", side_effect=RuntimeError("on purpose")):
            await asyncio.sleep(NOTICED)
        assert await lost(two, post.exchange.claim.stream)
        assert two.back.handled == []


@engine_test
async def test_a_call_that_the_replica_does_not_declare_idempotent_is_not_run_again() -> None:
    stuck, _ = gate()
    async with fleet(stuck, echo) as (one, two):
        assert isinstance(two.back, Tools)
        two.back.idempotent.clear()
        post = await one.post(1, params=AGAIN)
        die(one)
        await asyncio.sleep(NOTICED)
        assert two.engine.runtime.sessions == {}, "nothing of it lives here"
        assert await lost(two, post.exchange.claim.stream)
        assert two.back.handled == []


@engine_test
async def test_a_call_that_kills_its_replicas_is_abandoned_after_a_number_of_runs() -> None:
    stuck, _ = gate()
    async with fleet(stuck, stuck, stuck, stuck) as harnesses:
        post = await harnesses[0].post(1, params=AGAIN)
        dead: list[EngineHarness] = []
        await asyncio.sleep(1)
        for _ in range(3):
            dead.append(
                next(harness for harness in harnesses if harness.back.handled and harness not in dead)
            )
            die(dead[-1])
            await asyncio.sleep(NOTICED)
        assert sorted(len(harness.back.handled) for harness in harnesses) == [0, 1, 1, 1]
        [living] = [harness for harness in harnesses if not harness.back.handled]
        assert await lost(living, post.exchange.claim.stream)


@engine_test
async def test_a_second_run_has_the_principal_and_the_headers_but_no_credentials() -> None:
    stuck, _ = gate()
    async with fleet(stuck, echo) as (one, two):
        principal = Principal(subject="ann", scopes=frozenset({"read"}), claims={"tenant": 7})
        secret = {"authorization": "Bearer x", "cookie": "x", "proxy-authorization": "x"}
        caller = Caller(PRINCIPAL, principal, {"x-tenant": "seven", **secret})
        exchange = await one.engine.exchanges.submit(one.key, caller, Request(1, CALL, dict(AGAIN)))
        assert isinstance(exchange, SessionExchange)
        assert b"Bearer" not in exchange.claim.payload
        die(one)
        await asyncio.sleep(NOTICED)
        [again] = two.back.handled
        assert again.caller == Caller(PRINCIPAL, principal, {"x-tenant": "seven"})
        assert again.key == exchange.key


@engine_test
async def test_a_principal_that_cannot_be_kept_costs_the_second_run_and_not_the_first() -> None:
    async with fleet(echo) as (one,):
        caller = Caller(PRINCIPAL, Principal(subject="ann", claims={"odd": object()}))
        exchange = await one.engine.exchanges.submit(one.key, caller, Request(1, CALL, dict(AGAIN)))
        assert isinstance(exchange, SessionExchange)
        assert exchange.claim.payload == b""
        await asyncio.sleep(1)
        assert exchange.has_ended


@engine_test
async def test_messages_of_the_first_run_stay_and_those_of_the_second_follow() -> None:
    stuck, _ = gate()

    async def told_and_stuck(exchange: Exchange) -> object:
        await exchange.notify("notifications/message", {"run": 1})
        return await stuck(exchange)

    async def told(exchange: Exchange) -> object:
        await exchange.notify("notifications/message", {"run": 2})
        return {}

    async with fleet(told_and_stuck, told) as (one, two):
        post = await one.post(1, params=AGAIN)
        await asyncio.sleep(1)
        die(one)
        await asyncio.sleep(NOTICED)
        get = await two.get(post.exchange.claim.stream)
        await get.task
        assert [message["params"]["run"] for message in get.messages[:-1]] == [1, 2]
        assert "result" in get.messages[-1]


@engine_test
async def test_the_second_run_asks_again_and_an_answer_to_the_first_is_refused() -> None:
    async def asks(exchange: Exchange) -> object:
        return await exchange.ask("elicitation/create", {})

    async with fleet(asks, asks) as (one, two):
        post = await one.post(1, params=AGAIN)
        await asyncio.sleep(1)
        die(one)
        await asyncio.sleep(NOTICED)
        get = await two.get(post.exchange.claim.stream)
        await asyncio.sleep(1)
        first, second = get.messages
        assert first["id"] != second["id"]
        assert await two.answer(first, {"run": 1}) is Answered.UNKNOWN
        assert await two.answer(second, {"run": 2}) is Answered.FIRST
        await get.task
        assert get.messages[-1]["result"] == {"run": 2}


@engine_test
async def test_a_json_only_call_sends_only_its_result_in_the_second_run_too() -> None:
    stuck, _ = gate()
    refused: list[Any] = []

    async def tells(exchange: Exchange) -> object:
        try:
            await exchange.notify("notifications/message", {})
        except NoBackChannel as error:
            refused.append(error)
        return {}

    async with fleet(stuck, tells) as (one, _two):
        await one.post(1, params=AGAIN, streams=False)
        die(one)
        await asyncio.sleep(NOTICED)
        assert len(refused) == 1


@engine_test
async def test_a_second_run_waits_for_its_slot_and_is_abandoned_without_one() -> None:
    stuck, _ = gate()
    limits = Limits(running=1, queued=1, queue_seconds=20.0)
    settings = Settings(reruns=2, limits=limits, times=SETTINGS.times)
    async with fleet(stuck, stuck, settings=settings) as (one, two):
        posts = [await one.post(number, params=AGAIN) for number in range(2)]
        streams = [post.exchange.claim.stream for post in posts]
        die(one)
        await asyncio.sleep(NOTICED)
        [running] = two.back.handled
        waiting = next(stream for stream in streams if stream != running.key)
        assert len(two.noted.named("exchange.adopted")) == 2
        await asyncio.sleep(20)
        assert await lost(two, waiting), "busy would say that nothing was done"


@engine_test
async def test_a_second_run_without_a_place_in_the_queue_is_abandoned() -> None:
    stuck, _ = gate()
    settings = Settings(reruns=2, limits=Limits(running=1, queued=0), times=SETTINGS.times)
    async with fleet(stuck, stuck, settings=settings) as (one, two):
        session = two.engine.runtime.local_session(one.session.record)
        session.gate._inside = 1
        post = await one.post(1, params=AGAIN)
        die(one)
        await asyncio.sleep(NOTICED)
        assert two.back.handled == []
        assert await lost(two, post.exchange.claim.stream)


@engine_test
async def test_a_call_that_still_runs_here_is_not_run_again_after_the_lease_ended() -> None:
    stuck, going_on = gate()
    async with fleet(stuck) as (one,):
        post = await one.post(1, params=AGAIN)
        assert one.engine.replica._keeper is not None
        one.engine.replica._keeper.stop()
        await asyncio.sleep(LEASE)
        await one.engine.replica._retake_lease()
        await asyncio.sleep(NOTICED)
        assert len(one.back.handled) == 1
        going_on.set()
        assert (await post.whole())[-1]["result"] == {"id": 1}
        assert one.noted.named("exchange.fenced") == []


@engine_test
async def test_a_payload_that_cannot_be_read_ends_as_outcome_unknown() -> None:
    stuck, _ = gate()
    async with fleet(stuck, echo) as (one, two):
        with patch(
            "holdfast.engine.exchanges.encode_forwarded", lambda *_, **__: b'{"of":"a later release"}'
        ):
            post = await one.post(1, params=AGAIN)
        die(one)
        await asyncio.sleep(NOTICED)
        assert await lost(two, post.exchange.claim.stream)
        assert two.back.handled == []


@engine_test
async def test_two_replicas_that_ask_on_one_stream_get_an_answer_each() -> None:
    async with fleet(echo, echo) as harnesses:
        asking = [asyncio.create_task(_roots(harness)) for harness in harnesses]
        get = await harnesses[0].get()
        await asyncio.sleep(1)
        for number, ask in enumerate(get.messages):
            assert await harnesses[0].answer(ask, {"n": number}) is Answered.FIRST
        assert sorted([(await asked)["n"] for asked in asking]) == [0, 1]


async def _roots(harness: EngineHarness) -> Json:
    session = harness.engine.runtime.local_session(harness.session.record)
    answer: Json = await harness.engine.sessions.ask(session, "roots/list", {})
    return answer
