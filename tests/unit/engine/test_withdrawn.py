"""A request starts only while a connection waits for it: checked after every wait on the way to the start."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from math import inf
from typing import Any, cast
from unittest.mock import patch

import msgspec
import pytest
from msgspec.structs import replace

from limpet.config import Limits
from limpet.core.rules.calls import reap
from limpet.core.rules.streams import forget
from limpet.engine.claims import REUSE_SECONDS, Repeat
from limpet.engine.exchange import SessionExchange
from limpet.engine.messages import REPLY, Message, Refused
from limpet.errors import (
    OUTCOME_UNKNOWN,
    Busy,
    DuplicateId,
    OutcomeUnknown,
    StoreUnavailable,
    Withdrawn,
)
from limpet.stores.base import Claim, Refusal
from limpet.testing import ScriptedBack
from limpet.wire.jsonrpc import Request, encode
from tests.simulation.cluster import Cluster, ReplicaConnection
from tests.stores import ScriptedStore
from tests.unit.engine.harness import (
    CALL,
    CALLER,
    PRINCIPAL,
    EngineHarness,
    Json,
    echo,
    engine_harness,
    engine_test,
    gate,
    settle_down,
)
from tests.unit.engine.test_duplexes import connect
from tests.unit.engine.test_home import homes_of, orphaned, pair, read, submitted
from tests.unit.engine.test_reaping import SETTINGS, fleet
from tests.unit.engine.test_turns import ORDERED, Runs

ONE_SLOT = Limits(running=1, queued=8)


class Connection:
    """The connection of a request, as the engine sees it."""

    address = ""
    account = None

    def __init__(self) -> None:
        self.gone = False
        self.unread_end = False
        """Its end is in a socket that was not read yet."""
        self._on_gone: Callable[[], object] = lambda: None

    def watch(self, on_gone: Callable[[], object]) -> None:
        self._on_gone = on_gone
        if self.gone:
            on_gone()

    async def look(self) -> None:
        await asyncio.sleep(0.05)
        if self.unread_end:
            self.leave()

    def leave(self) -> None:
        self.gone = True
        self._on_gone()


async def sent(
    made: EngineHarness, connection: Connection, request_id: int = 1, digest: bytes = b"call"
) -> SessionExchange | Repeat:
    """Send a request on a connection."""
    request = Request(request_id, CALL, {})
    caller = replace(CALLER, waiter=connection)
    return await made.engine.exchanges.submit(made.key, caller, request, digest)


def pause(made: EngineHarness) -> None:
    """Let the engine find that it could not run until now, from now on."""
    made.engine.pulse.stop()
    made.engine.pulse._trusted_until = -inf


def ids(made: EngineHarness) -> list[Any]:
    return [exchange.request.id for exchange in made.back.handled]


# The claim's answer


@engine_test
async def test_a_request_whose_client_leaves_while_it_is_claimed_does_not_start() -> None:
    store = ScriptedStore(is_shared=True)
    async with engine_harness(store=store) as d:
        store.delay("claim", before=1, after=1)
        connection = Connection()
        sending = asyncio.create_task(sent(d, connection))
        await asyncio.sleep(1.5)
        connection.leave()
        with pytest.raises(Withdrawn):
            await sending
        assert d.back.handled == []
        assert len(d.noted.named("request.dropped")) == 1
        store.recover()
        assert isinstance(await sent(d, Connection()), SessionExchange), "its id is free"


@engine_test
async def test_a_request_whose_client_has_left_is_not_even_claimed() -> None:
    async with engine_harness() as d:
        connection = Connection()
        connection.leave()
        with pytest.raises(Withdrawn):
            await sent(d, connection)
        assert d.engine.runtime.sessions[d.key].exchanges == {}


@engine_test
async def test_the_end_of_a_connection_that_was_not_read_yet_is_read_first_after_a_pause() -> None:
    store = ScriptedStore(is_shared=True)
    async with engine_harness(store=store) as d:
        connection = Connection()
        store.delay("claim", after=1)
        sending = asyncio.create_task(sent(d, connection))
        await asyncio.sleep(0.5)
        connection.unread_end = True
        pause(d)
        with pytest.raises(Withdrawn):
            await sending
        store.recover()
        assert isinstance(await sent(d, Connection(), 2), SessionExchange), "this client is there"
        await settle_down()
        assert ids(d) == [2]


# The slot


@engine_test
async def test_a_queued_request_whose_client_has_left_passes_its_slot_on() -> None:
    wait, event = gate()
    async with engine_harness(ScriptedBack({CALL: wait}), limits=ONE_SLOT) as d:
        first = await d.post(1)
        for number in (2, 3):
            await (await d.post(number)).cut()
        last = await d.post(4)
        event.set()
        assert [(await post.whole())[-1]["id"] for post in (first, last)] == [1, 4]
        assert ids(d) == [1, 4]
        assert len(d.noted.named("request.dropped")) == 2
        assert d.session.gate.inside == 0
        assert "result" in await d.call(2), "its id is free"


@engine_test
async def test_a_queued_request_starts_for_a_repeat_that_has_attached() -> None:
    wait, event = gate()
    async with engine_harness(ScriptedBack({CALL: wait}), limits=ONE_SLOT) as d:
        first = await d.post(1)
        await (await d.post(2, digest=b"call")).cut()
        repeat = await d.submit(2, digest=b"call")
        assert isinstance(repeat, Repeat)
        reader = asyncio.create_task(d.engine.readers.repeat(repeat.session, repeat.stream))
        await settle_down()
        event.set()
        await first.whole()
        messages: list[dict[str, Any]] = []
        may_read = asyncio.Event()
        may_read.set()
        await d.pump(await reader, messages, may_read)
        assert messages[-1]["id"] == 2
        assert ids(d) == [1, 2]


@engine_test
async def test_a_queued_request_starts_if_its_client_has_an_event_id_and_can_come_back() -> None:
    wait, event = gate()
    async with engine_harness(ScriptedBack({CALL: wait}), limits=ONE_SLOT) as d:
        first = await d.post(1)
        await (await d.post(2, digest=b"call")).cut()
        repeat = await d.submit(2, digest=b"call")
        assert isinstance(repeat, Repeat)
        reader = await d.engine.readers.repeat(repeat.session, repeat.stream)
        await d.engine.readers.detach(reader)
        event.set()
        await first.whole()
        get = await d.get(repeat.stream, reader.cursor)
        await get.task
        assert get.messages[-1]["id"] == 2


@engine_test
async def test_a_queued_request_that_ends_while_the_pause_is_checked_frees_its_slot_once() -> None:
    wait, event = gate()
    async with engine_harness(ScriptedBack({CALL: wait}), limits=ONE_SLOT) as d:
        first = await d.post(1)
        second = await sent(d, Connection(), 2)
        last = await d.post(3)
        pause(d)
        event.set()
        await first.whole()
        await d.cancel(2)
        assert (await last.whole())[-1]["id"] == 3
        await asyncio.sleep(1)
        assert isinstance(second, SessionExchange)
        assert (ids(d), second.task, d.session.gate.inside) == ([1, 3], None, 0)


@engine_test
async def test_a_queued_request_is_dropped_after_a_pause_if_the_end_of_its_connection_was_not_read() -> None:
    wait, event = gate()
    async with engine_harness(ScriptedBack({CALL: wait}), limits=ONE_SLOT) as d:
        first = await d.post(1)
        gone, there = Connection(), Connection()
        for number, connection in ((2, gone), (3, there)):
            await sent(d, connection, number)
        gone.unread_end = True
        pause(d)
        event.set()
        await first.whole()
        await asyncio.sleep(1)
        assert ids(d) == [1, 3]


# The turn


@pytest.mark.parametrize("replicas", [1, 2])
@engine_test
async def test_the_turn_of_a_request_whose_client_has_left_passes_on(replicas: int) -> None:
    runs = Runs()
    async with fleet(*[runs] * replicas, settings=ORDERED) as harnesses:
        one, other = harnesses[0], harnesses[-1]
        first = await one.post(1)
        await (await other.post(2)).cut()
        last = await one.post(3)
        for post in (first, last):
            await post.whole()
        assert runs.order == [1, 3]
        assert asyncio.get_running_loop().time() < 2.5, "the turn was passed on at once"
        assert "result" in await one.call(2)


# The home


@engine_test
async def test_a_request_is_withdrawn_from_its_home_when_its_connection_ends_elsewhere() -> None:
    async with orphaned() as (_, other, ghost):
        connection = Connection()
        sending = asyncio.create_task(sent(other, connection))
        name, submit = await submitted(ghost)
        connection.leave()
        await settle_down()
        claimed = await ghost.claim(other.key, PRINCIPAL, Claim(1, submit.stream, b"call"))
        assert claimed is Refusal.WITHDRAWN, "the home reads it with its claim"
        reply = msgspec.json.encode(Message.of(REPLY, name, Refused(reason=claimed)))
        await ghost.forward("other", f"re.{name}", reply, seconds=60)
        with pytest.raises(Withdrawn):
            await sending


@engine_test
async def test_a_home_starts_no_request_whose_connection_ended_elsewhere_before_its_claim() -> None:
    async with pair() as (world, home, other):
        await other.call(9)
        connection = Connection()
        # The home does not read its inbox while the client leaves.
        with patch.object(homes_of(home)._inbox, "wake_up", lambda: None):
            sending = asyncio.create_task(sent(other, connection))
            await settle_down()
            connection.leave()
            await settle_down()
        homes_of(home)._inbox.wake_up()
        with pytest.raises(Withdrawn):
            await sending
        assert world.start_count() == 1
        assert home.noted.named("request.dropped") or other.noted.named("request.dropped")


@engine_test
async def test_a_home_starts_no_request_whose_connection_ended_elsewhere_while_it_waited_for_its_slot() -> (
    None
):
    wait, event = gate()
    async with pair(wait, ONE_SLOT) as (world, home, other):
        first = await other.submit(1)
        gone, there = Connection(), Connection()
        sending = [asyncio.create_task(sent(other, gone, 2)), asyncio.create_task(sent(other, there, 3))]
        await settle_down()
        gone.leave()
        await settle_down()
        event.set()
        await read(other, first)
        with pytest.raises(Busy, match="ended before the request could start"):
            await sending[0]
        assert isinstance(await sending[1], SessionExchange)
        assert ids(home) == [1, 3]
        assert world.start_count() == 2


def end_elsewhere(cluster: Cluster, key: str, stream: str, *, forgotten: bool = False) -> None:
    """Let other replicas end a call, because they have declared its owner dead."""
    doc = cluster._sessions[key]
    end = encode({"jsonrpc": "2.0", "id": 2, "error": {"code": OUTCOME_UNKNOWN, "message": "unknown"}})
    assert reap(doc, stream, doc.exchanges[stream].owner, end, cluster.at(), tag=7)
    if forgotten:
        forget(doc, stream)


@pytest.mark.parametrize("forgotten", [False, True])
@engine_test
async def test_a_home_starts_no_request_that_others_have_ended_while_it_waited_for_its_slot(
    forgotten: bool,
) -> None:
    wait, event = gate()
    async with pair(wait, ONE_SLOT) as (world, home, other):
        first = await other.submit(1)
        sending = asyncio.create_task(sent(other, Connection(), 2))
        await settle_down()
        exchanges = world.cluster._sessions[home.key].exchanges
        [stream] = [name for name, one in exchanges.items() if one.id == 2]
        end_elsewhere(world.cluster, home.key, stream, forgotten=forgotten)
        event.set()
        await read(other, first)
        with pytest.raises(OutcomeUnknown) if forgotten else nullcontext():
            assert (await read(other, await sending))[-1]["error"]["code"] == OUTCOME_UNKNOWN
        assert ids(home) == [1], "it did not start"
        assert not [name for name, one in exchanges.items() if one.running], "no claim is left"


@engine_test
async def test_after_a_pause_a_replica_starts_no_queued_request_that_others_have_ended() -> None:
    wait, event = gate()
    async with fleet(wait, echo, settings=replace(SETTINGS, limits=ONE_SLOT)) as (one, _):
        first = await one.post(1)
        queued = await sent(one, Connection(), 2)
        assert isinstance(queued, SessionExchange)
        connection = cast("ReplicaConnection", one.engine.store)
        end_elsewhere(connection._cluster, one.key, queued.claim.stream)
        pause(one)
        event.set()
        await first.whole()
        await asyncio.sleep(1)
        assert (ids(one), queued.is_fenced) == ([1], True)


@engine_test
async def test_the_copies_that_wait_for_a_dead_home_do_not_run_after_their_clients_have_left() -> None:
    async with orphaned() as (world, other, ghost):
        connections = [Connection() for _ in range(5)]
        sending = [asyncio.create_task(sent(other, connection)) for connection in connections]
        await submitted(ghost)
        for connection in connections:
            connection.leave()
        last = asyncio.create_task(sent(other, Connection()))
        await ghost.release()
        assert isinstance(await last, SessionExchange)
        for copy in sending:
            with pytest.raises(Withdrawn):
                await copy
        assert ids(other) == [1]
        assert world.home(other.key) == "other"


@engine_test
async def test_a_request_that_its_host_has_cancelled_is_withdrawn_too() -> None:
    async with orphaned() as (_, other, ghost):
        sending = asyncio.create_task(sent(other, Connection()))
        _, submit = await submitted(ghost)
        sending.cancel()
        await settle_down()
        claimed = await ghost.claim(other.key, PRINCIPAL, Claim(1, submit.stream, b"call"))
        assert claimed is Refusal.WITHDRAWN


# stdio


@engine_test
async def test_on_a_connection_for_a_whole_session_only_a_peer_that_no_longer_reads_counts() -> None:
    wait, event = gate()
    async with engine_harness(ScriptedBack({CALL: wait}), limits=ONE_SLOT) as d:
        wire = await connect(d)
        await d.submit(1)
        queued = await d.submit(2)
        wire.is_gone = True
        event.set()
        await settle_down()
        with pytest.raises(Withdrawn):
            await d.submit(3)
        assert isinstance(queued, SessionExchange)
        assert (ids(d), queued.task) == ([1], None)


# A repeat that meets the giving back


@engine_test
async def test_a_repeat_of_a_request_that_was_given_back_at_another_replica_claims_its_id_and_runs() -> None:
    wait, event = gate()
    settings = replace(SETTINGS, limits=ONE_SLOT)
    async with fleet(wait, echo, settings=settings) as (one, two):
        first = await one.post(1)
        await (await one.post(2, digest=b"call")).cut()
        repeat = await two.submit(2, digest=b"call")
        assert isinstance(repeat, Repeat)
        following = asyncio.create_task(two.engine.readers.repeat(repeat.session, repeat.stream))
        await settle_down()
        event.set()
        await first.whole()
        with pytest.raises(Withdrawn):
            await following
        assert (await two.call(2, digest=b"call"))["id"] == 2
        assert (ids(one), ids(two)) == ([1], [2])


@engine_test
async def test_a_request_waits_until_a_claim_whose_answer_was_lost_elsewhere_is_given_back() -> None:
    async with fleet(echo, echo) as (one, two):
        store = one.engine.store
        claim, is_away = store.claim, True

        async def lossy(*args: Any) -> Any:
            claimed = await claim(*args) if is_away and not lossy_calls else None
            lossy_calls.append(1)
            if is_away:
                raise StoreUnavailable("on purpose")
            return claimed or await claim(*args)

        lossy_calls: list[int] = []
        with patch.object(store, "claim", lossy):
            with pytest.raises(StoreUnavailable):
                await one.submit(1, digest=b"call")
            sending = asyncio.create_task(two.call(1, digest=b"call"))
            await asyncio.sleep(1)
            assert not sending.done(), "it waits for the claim to be given back"
            is_away = False
            assert (await sending)["id"] == 1
        assert (ids(one), ids(two)) == ([], [1])


@pytest.mark.parametrize("is_at_home", [False, True])
@engine_test
async def test_a_repeat_of_a_forwarded_request_that_waits_and_whose_client_has_left_is_answered(
    is_at_home: bool,
) -> None:
    wait, event = gate()
    async with pair(wait, ONE_SLOT) as (_, home, other):
        first = await other.submit(1)
        gone = Connection()
        sending = asyncio.create_task(sent(other, gone, 2))
        await settle_down()
        with pytest.raises(DuplicateId):
            await sent(home if is_at_home else other, Connection(), 2)
        gone.leave()
        await settle_down()
        repeating = asyncio.create_task(answered(home if is_at_home else other, 2))
        await asyncio.sleep(1)
        assert not repeating.done(), "it waits for the slot"
        event.set()
        await read(other, first)
        assert (await repeating)["id"] == 2
        assert ids(home) == [1, 2], "it ran once"
        with suppress(Busy):
            await sending


@engine_test
async def test_the_repeat_of_a_forwarded_call_whose_client_left_before_the_reply_does_not_wait() -> None:
    wait, event = gate()
    async with pair(wait) as (_, home, other):
        gone = Connection()
        sending = asyncio.create_task(sent(other, gone, 1))
        await settle_down()
        assert ids(home) == [1]
        gone.leave()
        began = asyncio.get_running_loop().time()
        repeat = await sent(other, Connection(), 1)
        assert isinstance(repeat, Repeat)
        assert asyncio.get_running_loop().time() - began < 1.0
        event.set()
        assert (await read(other, repeat))[-1]["id"] == 1
        assert ids(home) == [1]
        await sending


async def answered(made: EngineHarness, request_id: int) -> Json:
    """Send a request as a front does, until it has its answer."""
    while True:
        submitted = await sent(made, Connection(), request_id)
        try:
            if isinstance(submitted, Repeat):
                return (await read(made, submitted))[-1]
        except Withdrawn:
            continue
        while submitted.writer.terminal is None:
            await submitted.writer.wake.next(None)
        return cast("Json", json.loads(submitted.writer.terminal))


# Sequential reuse of an id


@pytest.mark.parametrize("same", [True, False], ids=["the same bytes", "other bytes"])
@engine_test
async def test_an_id_that_was_answered_elsewhere_a_moment_ago_is_free(same: bool) -> None:
    async with fleet(echo, echo) as replicas:
        for number in range(6):
            one = replicas[number % 2]
            with slow_end(one, 0.1):
                digest = b"call" if same else b"%d" % number
                assert (await one.call(1, digest=digest))["id"] == 1
        assert [len(ids(one)) for one in replicas] == [3, 3]


@pytest.mark.parametrize("same", [True, False], ids=["the same bytes", "other bytes"])
@engine_test
async def test_a_duplicate_is_refused_at_most_a_moment_later(same: bool) -> None:
    wait, event = gate()
    async with fleet(wait, echo) as (one, two):
        first = await one.post(1, digest=b"call")
        for made, seconds in ((two, REUSE_SECONDS + 0.05), (one, 0.15)):
            began = asyncio.get_running_loop().time()
            with pytest.raises(DuplicateId):
                await made.submit(1, digest=b"call" if same else b"other")
            assert asyncio.get_running_loop().time() - began <= seconds
        event.set()
        assert (await first.whole())[-1]["id"] == 1
        assert ids(two) == []


@contextmanager
def slow_end(made: EngineHarness, seconds: float) -> Iterator[None]:
    """Let the ends of calls take so long on their way to the store; the answers leave before."""
    store = made.engine.store
    settle = store.settle

    async def slow(*args: Any, **more: Any) -> None:
        await asyncio.sleep(seconds)
        await settle(*args, **more)

    with patch.object(store, "settle", slow):
        yield
