"""Sessions with a home: two or three engines over one store, and replicas that are played by the test itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from math import inf
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace
from typing_extensions import override

from limpet.auth import Principal
from limpet.auth.scopes import Needs
from limpet.config import Limits, Settings, Times
from limpet.core.fate import FateInput
from limpet.core.lifecycle import SessionInput
from limpet.engine.back import Outside
from limpet.engine.caller import Caller
from limpet.engine.claims import Repeat
from limpet.engine.engine import Engine
from limpet.engine.exchange import Exchange, SessionExchange
from limpet.engine.home import Homes
from limpet.engine.inbox import Received
from limpet.engine.listener_homes import EACH_SWEEP
from limpet.engine.messages import ForwardedRequest, Message, Notify, decode_message
from limpet.errors import (
    Busy,
    DuplicateId,
    InsufficientScope,
    OutcomeUnknown,
    SessionGone,
    Stopping,
    UpstreamUnavailable,
)
from limpet.stores.base import Claim, Claimed, Orphan, SessionRecord, replicas
from limpet.testing import ScriptedBack, SeededRandom
from limpet.testing.store.limits import tight
from limpet.wire.jsonrpc import Request
from tests.simulation.cluster import Cluster, ReplicaConnection
from tests.support import LoopClock, until
from tests.unit.engine.harness import (
    CALL,
    CALLER,
    PRINCIPAL,
    EngineHarness,
    Get,
    echo,
    engine_test,
    gate,
    settle_down,
)

# The leases of the engines do not end here: a test ends them by hand.
TIMES: Final = Times(lease=1e4, lease_renewal=1e3, stream_age=(1e5, 2e5), sweep=1e5, stream_after=0.25)
LEASE: Final = 10.0


class World:
    """Engines over one store. The session is opened by the first one, which is its home."""

    def __init__(self, limits: Limits, times: Times = TIMES) -> None:
        self.settings = Settings(times=times, limits=limits)
        self.cluster = Cluster(limits, LoopClock())
        self.replicas: dict[str, EngineHarness] = {}

    async def add(self, name: str, back: ScriptedBack) -> EngineHarness:
        made = EngineHarness(back, self.settings, None)
        made.engine = Engine(
            back,
            self.settings,
            store=self.cluster.connect(name).store,
            clock=LoopClock(),
            random=SeededRandom(len(self.replicas) + 7),
            observer=made.noted,
        )
        await made.engine.ensure_started()
        self.replicas[name] = made
        return made

    def home(self, key: str) -> str:
        return self.cluster._sessions[key].record.home

    def start_count(self) -> int:
        return sum(len(made.back.handled) for made in self.replicas.values())


@asynccontextmanager
async def pair(
    script: Any = echo, limits: Limits = Limits(), back: type[ScriptedBack] = ScriptedBack
) -> AsyncIterator[tuple[World, EngineHarness, EngineHarness]]:
    """Yield a world, the home, and the replica where the client's requests arrive."""
    world = World(limits)
    home, other = [await world.add(name, back({CALL: script}, has_home=True)) for name in ("home", "other")]
    home.session = other.session = await home.open()
    try:
        yield world, home, other
    finally:
        for made in world.replicas.values():
            await made.engine.aclose()


@asynccontextmanager
async def orphaned(
    times: Times = TIMES, back: type[ScriptedBack] = ScriptedBack
) -> AsyncIterator[tuple[World, EngineHarness, ReplicaConnection]]:
    """Yield a replica, and a session whose home is played by the test."""
    world = World(Limits(), times)
    other = await world.add("other", back({CALL: echo}, has_home=True))
    ghost = world.cluster.connect("ghost")
    await ghost.renew(LEASE)
    other.session = await other.open()
    world.cluster._sessions[other.key].record = replace(other.session.record, home="ghost")
    try:
        yield world, other, ghost
    finally:
        await other.engine.aclose()


def homes_of(made: EngineHarness) -> Homes:
    assert made.engine._homes is not None
    return made.engine._homes


async def read(made: EngineHarness, repeat: SessionExchange | Repeat) -> list[dict[str, Any]]:
    """Read a call that runs elsewhere to its end."""
    assert isinstance(repeat, Repeat)
    got = Get(made, await made.engine.readers.repeat(repeat.session, repeat.stream))
    await got.task
    return got.messages


@engine_test
async def test_a_request_that_arrives_elsewhere_runs_at_the_home_and_is_answered_in_one_piece() -> None:
    async with pair() as (world, home, other):
        answer = await other.call(1, params={"a": "ü"})
        assert answer["result"] == {"id": 1, "a": "ü"}
        assert (len(home.back.handled), other.back.handled) == (1, [])
        assert await home.call(2) == await other.call(2), (
            "its id is free again, and the home needs no message"
        )
        assert world.home(home.key) == "home"
        session = world.cluster._sessions[home.key]
        await settle_down()
        assert (session.readers, session.running) == (0, 0), "no reader is left behind"
        assert other.engine.runtime.sessions == {}, "the other replica keeps nothing of the session"


class Scoped(ScriptedBack):
    """Every call needs the scope `cook`; those of the tool `vault` are hidden without it."""

    @override
    async def start(self, outside: Outside) -> None:
        self.access.rules = self

    def needs(self, request: Request, caller: Caller, session: str) -> Needs:
        cook = frozenset({"cook"})
        return Needs(cook, cook if request.params.get("name") == "vault" else frozenset())

    def declared(self) -> list[Needs]:
        return [Needs(frozenset({"cook"}))]

    def basic(self, request: Request | None = None) -> frozenset[str]:
        return frozenset()


@engine_test
async def test_a_request_without_its_scope_is_refused_before_it_is_sent_to_the_home() -> None:
    wait, event = gate()
    async with pair(wait, back=Scoped) as (world, home, other):
        ada = Principal(subject="ada")
        cook = Principal(subject="ada", scopes=frozenset({"cook"}))
        submit, key = other.engine.exchanges.submit, other.key

        def call(principal: Principal, name: str = "") -> Any:
            caller = Caller(PRINCIPAL, principal)
            return submit(key, caller, Request(1, CALL, {"name": name}), b"digest")

        with pytest.raises(InsufficientScope):
            await call(ada)
        begun = await call(cook)
        await settle_down()
        assert len(home.back.handled) == 1, "the refused one had no effect, and its id was free"
        with pytest.raises(InsufficientScope):
            await call(ada)
        with pytest.raises(DuplicateId):
            await call(ada, "vault")
        event.set()
        assert (await read(other, begun))[-1]["result"] == {"id": 1}
        assert world.start_count() == 1
        assert other.engine.access.marked(begun.stream, Caller(cook.key, cook)) == frozenset({"cook"})


@engine_test
async def test_a_call_that_takes_long_is_read_from_its_stream() -> None:
    wait, event = gate()
    async with pair(wait) as (world, _, other):
        repeat = await other.submit(1)
        reading = asyncio.create_task(read(other, repeat))
        await settle_down()
        event.set()
        assert (await reading)[-1]["result"] == {"id": 1}
        await settle_down()
        assert world.start_count() == 1
        assert not world.cluster._sessions[other.key].ids, "the id is free once its answer was read"


@engine_test
async def test_the_first_message_of_a_call_is_not_delayed() -> None:
    wait, event = gate()

    async def tell(exchange: Exchange) -> object:
        await exchange.notify("notifications/message", {"n": 1})
        return await wait(exchange)

    async with pair(tell) as (_, _, other):
        begun = asyncio.get_running_loop().time()
        repeat = await other.submit(1)
        assert asyncio.get_running_loop().time() - begun < TIMES.stream_after
        reading = asyncio.create_task(read(other, repeat))
        await settle_down()
        event.set()
        assert [message.get("method") for message in await reading] == ["notifications/message", None]


@engine_test
async def test_a_message_before_a_quick_end_is_not_lost() -> None:
    async def tell(exchange: Exchange) -> object:
        await exchange.notify("notifications/message", {"n": 1})
        return {}

    async with pair(tell) as (_, _, other):
        messages = await read(other, await other.submit(1))
        assert [message.get("method") for message in messages] == ["notifications/message", None]


@engine_test
async def test_a_large_answer_is_read_from_the_stream() -> None:
    async def large(exchange: Exchange) -> object:
        return {"text": "x" * 100_000}

    async with pair(large) as (_, _, other):
        assert len((await read(other, await other.submit(1)))[-1]["result"]["text"]) == 100_000


@engine_test
async def test_large_answers_that_are_over_the_limit_of_their_session_together_are_all_read() -> None:
    async def large(exchange: Exchange) -> object:
        return {"text": "x" * 100_000}

    async with pair(large, tight(session_bytes=250_000, stream_bytes=200_000)) as (_, _, other):
        calls = [await other.submit(number) for number in range(6)]
        for call in calls:
            assert len((await read(other, call))[-1]["result"]["text"]) == 100_000


@engine_test
async def test_an_id_in_flight_is_refused_at_every_replica_and_a_lost_post_is_repeated() -> None:
    wait, event = gate()
    async with pair(wait) as (world, home, other):
        first = await other.submit(1, digest=b"one")
        with pytest.raises(DuplicateId):
            await other.submit(1, digest=b"two")
        reader = await other.engine.readers.repeat(first.session, first.stream)  # type: ignore[union-attr]
        await Get(other, reader).cut()
        again = await home.submit(1, digest=b"one")
        event.set()
        assert (await read(home, again))[-1]["result"] == {"id": 1}
        assert world.start_count() == 1


@engine_test
async def test_limits_of_the_home_refuse_before_and_after_a_wait() -> None:
    wait, event = gate()
    async with pair(wait, Limits(running=1, queued=1, queue_seconds=5.0)) as (world, _, other):
        first = await other.submit(1)
        queued = asyncio.create_task(other.submit(2))
        await settle_down()
        with pytest.raises(Busy):
            await other.submit(3)
        with pytest.raises(Busy, match="no slot became free"):
            await queued
        event.set()
        assert (await read(other, first))[-1]["result"] == {"id": 1}
        assert world.start_count() == 1


@engine_test
async def test_another_principal_gets_no_session_from_a_replica_that_knows_the_home() -> None:
    async with pair() as (world, _, other):
        await other.call(1)
        request = msgspec.structs.replace((await other.submit(2)).request)  # type: ignore[union-attr]
        stranger = replace(CALLER, key="stranger")
        with pytest.raises(SessionGone):
            await other.engine.exchanges.submit(other.key, stranger, replace(request, id=3), b"")
        assert world.start_count() == 2


@engine_test
async def test_a_cancellation_and_a_notification_reach_the_home() -> None:
    wait, _ = gate()
    async with pair(wait) as (_, home, other):
        repeat = await other.submit(1)
        await other.cancel(1)
        assert (await read(other, repeat))[-1]["error"]["code"] == -32800
        await other.engine.sessions.notify(other.key, PRINCIPAL, "notifications/roots/list_changed", {"a": 1})
        await settle_down()
        assert home.back.notified == [("notifications/roots/list_changed", {"a": 1})]
        assert other.back.notified == []


@engine_test
async def test_the_home_releases_a_session_that_another_replica_closes() -> None:
    wait, _ = gate()
    async with pair(wait) as (_, home, other):
        await other.submit(1)
        session = await other.engine.sessions.find(other.key, PRINCIPAL)
        assert await other.engine.sessions.close(session, SessionInput.DELETED)
        await settle_down()
        assert "left" in home.back.events
        with pytest.raises(SessionGone):
            await other.submit(2)


@engine_test
async def test_an_answer_whose_client_went_while_the_replica_waited_is_kept_for_a_repeat() -> None:
    wait, event = gate()
    async with pair(wait) as (world, home, other):
        waiting = asyncio.create_task(other.submit(1, digest=b"one"))
        await settle_down()
        waiting.cancel()
        await asyncio.wait([waiting])
        event.set()
        await settle_down()
        again = await home.submit(1, digest=b"one")
        assert (await read(home, again))[-1]["result"] == {"id": 1}
        assert world.start_count() == 1


@engine_test
async def test_an_answer_whose_receiving_replica_is_gone_is_kept_for_a_repeat() -> None:
    async with pair() as (world, home, other):
        world.cluster._leases[world.cluster.connect("other").owner] = 0.001
        await asyncio.sleep(1)
        posted = asyncio.create_task(other.submit(1, digest=b"one"))
        await settle_down()
        again = await home.submit(1, digest=b"one")
        assert (await read(home, again))[-1]["result"] == {"id": 1}
        assert world.start_count() == 1
        posted.cancel()
        await asyncio.wait([posted])


@pytest.mark.parametrize("fate", ["taken", "left", "dead"])
@engine_test
async def test_an_equal_request_waits_until_the_replica_with_the_connection_reports_the_fate_of_the_answer(
    fate: str,
) -> None:
    async with pair() as (world, home, other):
        exchange = await other.submit(1, digest=b"same")
        assert isinstance(exchange, SessionExchange)
        equal = asyncio.create_task(home.submit(1, digest=b"same"))
        await asyncio.sleep(0.5)
        assert not equal.done(), "its client may have the answer, and use the id again"
        if fate == "taken":
            exchange.writer.report(FateInput.WROTE)
            exchange.writer.report(FateInput.TAKEN)
        if fate != "dead":
            await other.engine.readers.close(exchange)
        await asyncio.sleep(LEASE + 1 if fate == "dead" else 1)
        answer = await equal
        assert isinstance(answer, SessionExchange if fate == "taken" else Repeat)
        await settle_down()
        assert world.start_count() == (2 if fate == "taken" else 1)
        if isinstance(answer, Repeat):
            assert (await read(home, answer))[-1]["result"] == {"id": 1}


@engine_test
async def test_a_record_with_a_long_description_of_its_client_is_not_remembered() -> None:
    async with pair() as (_, home, other):
        assert (await other.call(1))["result"] == {"id": 1}
        assert list(homes_of(other)._known) == [other.key]
        own: dict[str, Any] = {str(at): {"a": {}} for at in range(900)}
        home.session = other.session = await home.open(capabilities={"experimental": own})
        assert (await other.call(2))["result"] == {"id": 2}
        assert other.key not in homes_of(other)._known


@engine_test
async def test_a_forwarded_request_is_charged_at_the_home_to_its_own_principal_and_session() -> None:
    released = asyncio.Event()

    async def wait(_: Exchange) -> object:
        await released.wait()
        return {}

    async with pair(wait, Limits(memory=40_000_000)) as (_, home, other):
        ledger = home.engine.load.ledger
        answer = await other.submit(1, params={"a": "x" * 100_000})
        assert ledger.used > 100_000
        assert ledger.account(PRINCIPAL, other.key).used > 100_000
        assert ledger.account("forwarded").used == 0, (
            "the bytes that were read are in the charge of the message"
        )
        # Another client has taken all but the reserve: new work of this one is refused, and nothing runs.
        others = ledger.account("others").open()
        others.set(int(ledger.total * 0.925) - ledger.used)
        with pytest.raises(Busy):
            await other.submit(2)
        released.set()
        assert (await read(other, answer))[-1]["result"] == {}
        assert len(home.back.handled) == 1


@engine_test
async def test_a_home_with_a_full_inbox_stays_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair() as (world, _, other):
        monkeypatch.setattr(replicas, "INBOX", 0)
        with pytest.raises(Busy, match="too much to do"):
            await other.submit(1)
        assert world.home(other.key) == "home"


@engine_test
async def test_a_notification_for_a_former_home_is_dropped_there() -> None:
    async with pair() as (_, home, other):
        home.engine.draining = True
        await other.call(1)
        inbox = other.engine.replica._inbox
        message = Message.of("notify", "n", Notify(other.key, "notifications/x", {}))
        assert await inbox.send("home", message, seconds=60)
        await settle_down()
        assert home.back.notified == []


@engine_test
async def test_a_replica_forgets_the_home_of_a_session_that_is_gone() -> None:
    async with pair() as (world, _, other):
        await other.call(1)
        for name in ("home", "other"):
            world.cluster.connect(name).on_wake = None
        await world.cluster.close(other.key, SessionInput.DELETED)
        for name in ("home", "other"):
            world.cluster.connect(name).on_wake = world.replicas[name].engine._wake
        with pytest.raises(SessionGone):
            await other.submit(2)
        assert not homes_of(other)._known


# The home goes


@engine_test
async def test_a_session_whose_home_is_gone_gets_a_new_one() -> None:
    async with orphaned() as (world, other, ghost):
        await ghost.release()
        calls = [asyncio.create_task(other.call(number)) for number in range(5)]
        assert [(await one)["result"]["id"] for one in calls] == [0, 1, 2, 3, 4]
        assert world.home(other.key) == "other"
        # Another request may learn only now that the former home is gone.
        assert (await homes_of(other).take_from("ghost", other.key)).home == "other"
        assert other.back.events.count("moved") == 1
        assert len(other.noted.named("session.moved")) == 1


@engine_test
async def test_a_stranger_gets_no_session_whose_home_is_gone_and_does_not_move_it() -> None:
    async with orphaned() as (world, other, ghost):
        await other.engine.sessions.find(other.key, PRINCIPAL)
        homes_of(other)._know(world.cluster._sessions[other.key].record)
        await ghost.release()
        stranger = replace(CALLER, key="stranger")
        with pytest.raises(SessionGone):
            await other.engine.exchanges.submit(other.key, stranger, Request(3, CALL, {}), b"")
        assert world.home(other.key) == "ghost"
        assert other.back.events.count("moved") == 0


@engine_test
async def test_a_home_whose_lease_ended_in_an_outage_stays_the_home() -> None:
    async with orphaned() as (world, other, ghost):
        sent = asyncio.create_task(other.call(1))
        first, _ = await submitted(ghost)
        await asyncio.sleep(LEASE - 1)
        homes_of(other)._inbox.recovery.failed()
        await asyncio.sleep(5)
        later = asyncio.create_task(other.call(2))
        await asyncio.sleep(5)
        assert world.home(other.key) == "ghost", "it can still renew its lease"
        await ghost.renew(LEASE)
        while len(waiting := await ghost.inbox()) < 2:
            await asyncio.sleep(0.1)
        assert waiting[0].name == first
        assert not sent.done()
        assert not later.done()
        await ghost.release()
        # It has not renewed its lease for long enough: it is gone.
        assert [(await one)["result"]["id"] for one in (sent, later)] == [1, 2]
        assert world.home(other.key) == "other"


@engine_test
async def test_a_pause_of_this_process_counts_as_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    async with orphaned() as (_, other, _):
        recovery = homes_of(other)._inbox.recovery
        assert not recovery.check_running()
        now = LoopClock().now()
        monkeypatch.setattr(recovery, "_now", lambda: now + TIMES.lease)
        assert recovery.check_running()
        monkeypatch.setattr(recovery, "_now", lambda: now + 2 * TIMES.lease)
        recovery.tick()
        assert recovery.check_running(), "also if the tick comes first"
        for later in (2.3, 2.6):
            monkeypatch.setattr(recovery, "_now", lambda later=later: now + later * TIMES.lease)
            recovery.tick()
        assert not recovery.check_running()


@engine_test
async def test_a_request_that_a_dead_home_did_not_take_runs_at_the_new_one() -> None:
    async with orphaned() as (world, other, ghost):
        begun = asyncio.get_running_loop().time()
        assert (await other.call(1))["result"] == {"id": 1}
        assert LEASE <= asyncio.get_running_loop().time() - begun < LEASE + 2
        assert world.home(other.key) == "other"
        await ghost.renew(LEASE)
        assert await ghost.inbox() == [], "it was taken back"


async def submitted(ghost: ReplicaConnection) -> tuple[str, ForwardedRequest]:
    """Wait until a request is in the inbox of a home that the test plays."""
    while not (waiting := await ghost.inbox()):
        await asyncio.sleep(0.1)
    message = decode_message(waiting[0].payload)
    assert message.kind == "submit"
    return waiting[0].name, msgspec.json.decode(message.body, type=ForwardedRequest)


@engine_test
async def test_a_request_that_a_dead_home_took_is_not_started_again() -> None:
    async with orphaned() as (world, other, ghost):
        posted = asyncio.create_task(other.submit(1))
        name, _ = await submitted(ghost)
        await ghost.remove_forwarded(name)
        answer = await posted
        with pytest.raises(OutcomeUnknown):
            await read(other, answer)
        assert world.start_count() == 0
        assert (await other.call(2))["result"] == {"id": 2}, "the next request has a new home"


@engine_test
async def test_a_request_that_a_dead_home_claimed_ends_with_the_end_that_others_wrote() -> None:
    for takes in (True, False):
        async with orphaned() as (world, other, ghost):
            posted = asyncio.create_task(other.submit(1))
            name, submit = await submitted(ghost)
            claimed = await ghost.claim(other.key, PRINCIPAL, Claim(1, submit.stream, b""))
            assert isinstance(claimed, Claimed)
            if takes:
                await ghost.remove_forwarded(name)
            begun = asyncio.get_running_loop().time()
            answer = await posted
            assert asyncio.get_running_loop().time() - begun < LEASE + 2
            orphan = Orphan(other.key, submit.stream, 1, ghost.owner)
            assert await other.engine.store.reap(orphan, b'{"id":1,"error":{"code":-31002}}', tag=5)
            assert (await read(other, answer))[-1]["error"]["code"] == -31002
            assert world.start_count() == 0


@engine_test
async def test_a_request_whose_reply_is_lost_is_read_from_its_stream() -> None:
    async with pair() as (world, home, other):
        world.cluster.connect("other").on_wake = None
        world.cluster._leases[world.cluster.connect("home").owner] = inf
        posted = asyncio.create_task(other.submit(1))
        await settle_down()
        assert world.cluster._inboxes["other"]
        world.cluster._inboxes["other"].clear()
        answer = await posted
        assert (await read(other, answer))[-1]["result"] == {"id": 1}
        assert len(home.back.handled) == 1


@engine_test
async def test_a_home_that_wakes_up_after_it_lost_the_session_starts_nothing() -> None:
    for has_ended in (True, False):
        wait, event = gate()
        async with pair(wait) as (world, home, other):
            paused = world.cluster.connect("home")
            paused.on_wake = None
            posted = asyncio.create_task(other.call(1))
            await settle_down()
            [(_, payload)] = world.cluster._inboxes["home"].values()
            world.cluster._leases[paused.owner] = 0.001
            await until(lambda: bool(other.back.handled), every=0.1)
            # While it runs, its claim protects; after that, the home in the record does.
            if has_ended:
                event.set()
                await posted
                assert not world.cluster._sessions[other.key].exchanges
            inbox, message = home.engine.inbox, decode_message(payload)
            body, take = inbox.handlers["submit"]
            await take(Received(inbox, message, msgspec.json.decode(message.body, type=body), payload))
            event.set()
            assert (await posted)["result"] == {"id": 1}
            assert (len(home.back.handled), len(other.back.handled)) == (0, 1)
            assert ("left" in home.back.events) is has_ended


@engine_test
async def test_a_home_that_stops_gives_the_session_away_and_finishes_its_calls() -> None:
    wait, event = gate()
    async with pair(wait) as (world, home, other):
        first = await other.submit(1)
        home.engine.draining = True
        event.set()
        assert (await other.call(2))["result"] == {"id": 2}
        assert world.home(other.key) == "other"
        assert (await read(other, first))[-1]["result"] == {"id": 1}
        assert (len(home.back.handled), len(other.back.handled)) == (1, 1)


@engine_test
async def test_a_replica_that_stops_sends_no_new_call_to_the_home_and_still_reads_there() -> None:
    wait, event = gate()
    async with pair(wait) as (_, home, other):
        first = await other.submit(1, digest=b"same")
        assert isinstance(first, Repeat)
        await (await other.get(first.stream)).cut()
        other.engine.draining = True
        with pytest.raises(Stopping):
            await other.submit(2)
        again = await other.submit(1, digest=b"same")
        event.set()
        assert (await read(other, again))[-1]["result"] == {"id": 1}
        other.engine.draining = False
        assert (await other.call(2))["result"] == {"id": 2}, "its id is free"
        assert [exchange.request.id for exchange in home.back.handled] == [1, 2]


@engine_test
async def test_a_replica_with_an_old_entry_finds_the_new_home() -> None:
    async with pair() as (world, home, other):
        third = await world.add("third", ScriptedBack({CALL: echo}, has_home=True))
        third.session = other.session
        for made in (home, other, third):
            await made.call(1)
        home.engine.draining = True
        assert (await other.call(2))["result"] == {"id": 2}
        home.engine.draining = False
        assert (await home.call(3))["result"] == {"id": 3}
        assert home.back.events.count("left") == 1
        assert (await third.call(4))["result"] == {"id": 4}
        assert home.back.events.count("left") == 2, "it was asked, and is not the home"
        assert [len(made.back.handled) for made in (home, other, third)] == [3, 3, 0]


class Strict(ScriptedBack):
    @override
    async def moved(self, record: SessionRecord) -> None:
        raise SessionGone


@engine_test
async def test_a_back_that_cannot_go_on_has_the_session_closed() -> None:
    async with pair(back=Strict) as (world, home, other):
        home.engine.draining = True
        with pytest.raises(SessionGone):
            await other.submit(1)
        assert other.key not in world.cluster._sessions
        assert world.start_count() == 0


# Clients that only listen

SWEEPING: Final = msgspec.structs.replace(TIMES, sweep=1.0)


@engine_test
async def test_a_client_that_only_listens_gets_a_new_home_after_the_lease_and_its_back_begins() -> None:
    async with orphaned(SWEEPING) as (world, other, _):
        await other.get()
        await asyncio.sleep(LEASE - 2)
        assert other.back.events == ["start", "opened"], "its home lives"
        await asyncio.sleep(4)
        assert world.home(other.key) == "other"
        await asyncio.sleep(60)
        assert other.back.events == ["start", "opened", "moved", "serve"]
        assert len(other.noted.named("session.moved")) == 1


@engine_test
async def test_a_session_without_an_open_stream_gets_no_home_and_costs_no_look_at_the_leases() -> None:
    async with orphaned(SWEEPING) as (world, other, ghost):
        looks = 0
        replicas = other.engine.store.replicas

        async def counted() -> dict[str, float]:
            nonlocal looks
            looks += 1
            return await replicas()

        other.engine.store.replicas = counted  # type: ignore[method-assign]
        await ghost.release()
        await asyncio.sleep(60)
        assert (world.home(other.key), looks) == ("ghost", 0)
        await other.get()
        await asyncio.sleep(2)
        assert (world.home(other.key), looks) == ("other", 1), "and none after it has a home"


@engine_test
async def test_some_of_the_sessions_of_a_dead_home_move_with_each_sweep() -> None:
    async with orphaned(SWEEPING) as (world, other, ghost):
        keys = []
        for _ in range(EACH_SWEEP * 2 + 1):
            other.session = await other.open()
            keys.append(other.key)
            record = world.cluster._sessions[other.key].record
            world.cluster._sessions[other.key].record = replace(record, home="ghost")
            await other.get()
        await asyncio.sleep(0.5)
        await ghost.release()
        moved = []
        for _ in range(3):
            await asyncio.sleep(1)
            moved.append(sum(world.home(key) == "other" for key in keys))
        assert moved == [EACH_SWEEP, EACH_SWEEP * 2, EACH_SWEEP * 2 + 1]


@engine_test
async def test_only_the_replica_of_the_active_reader_becomes_the_home() -> None:
    async with orphaned(SWEEPING) as (world, other, ghost):
        third = await world.add("third", ScriptedBack({CALL: echo}, has_home=True))
        third.session = other.session
        async with aclosing(third.engine):
            await other.get()
            await third.get()
            await ghost.release()
            await asyncio.sleep(10)
            assert world.home(other.key) == "third"
            assert other.back.events == ["start", "opened"]
            assert third.back.events == ["start", "moved", "serve"]


@engine_test
async def test_a_home_that_a_failover_of_the_store_has_lost_is_taken_again_for_a_listener() -> None:
    async with orphaned(SWEEPING) as (world, other, ghost):
        await other.get()
        await ghost.release()
        await asyncio.sleep(2)
        assert world.home(other.key) == "other"
        session = world.cluster._sessions[other.key]
        session.record = replace(session.record, home="ghost")
        assert not await homes_of(other).confirm_home(other.key), "its back asks this once a minute"
        await asyncio.sleep(2)
        assert world.home(other.key) == "other"
        assert other.back.events.count("serve") == 2


class Unready(ScriptedBack):
    """Cannot serve a session at the first attempt."""

    @override
    async def serve(self, record: SessionRecord, caller: Caller) -> None:
        await super().serve(record, caller)
        if self.events.count("serve") == 1:
            raise UpstreamUnavailable("the server behind cannot be reached")


@engine_test
async def test_a_back_that_cannot_begin_is_asked_again_later() -> None:
    async with orphaned(SWEEPING, Unready) as (_, other, ghost):
        await other.get()
        await ghost.release()
        await asyncio.sleep(20)
        assert other.back.events.count("serve") == 1
        await asyncio.sleep(100)
        assert other.back.events.count("serve") == 2
        assert len(other.noted.named("session.moved")) == len(other.noted.named("session.unserved")) == 1


@engine_test
async def test_no_home_is_taken_for_a_listener_during_a_stop_or_right_after_an_outage() -> None:
    async with orphaned(SWEEPING) as (world, other, ghost):
        await other.get()
        other.engine.draining = True
        await ghost.release()
        await asyncio.sleep(10)
        homes_of(other)._inbox.recovery.failed()
        other.engine.draining = False
        await asyncio.sleep(4)
        assert world.home(other.key) == "ghost"
        await asyncio.sleep(TIMES.lease)
        assert world.home(other.key) == "other"


@engine_test
async def test_a_listener_of_a_strict_session_learns_that_it_is_closed() -> None:
    async with orphaned(SWEEPING, Strict) as (world, other, ghost):
        got = await other.get()
        await ghost.release()
        await got.task
        assert other.key not in world.cluster._sessions


@engine_test
async def test_a_back_learns_which_sessions_it_still_has_and_closes_one_by_its_key() -> None:
    async with pair() as (world, home, other):
        inside = homes_of(home)
        assert await inside.confirm_home(home.key)
        home.engine.draining = True
        await other.call(1)
        assert not await inside.confirm_home(home.key)
        assert not await inside.confirm_home("unknown")
        await other.engine.sessions.close_key(other.key, SessionInput.SHUTDOWN)
        assert other.key not in world.cluster._sessions
