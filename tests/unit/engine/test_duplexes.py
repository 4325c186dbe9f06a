"""Sessions carried by one connection both ways: no stream, no log, the same laws."""

import asyncio

import msgspec
import pytest

from limpet.config import Limits
from limpet.core.exchange import ExchangeState
from limpet.core.lifecycle import SessionInput
from limpet.engine.exchange import Exchange, SessionExchange
from limpet.errors import REQUEST_CANCELLED, DuplicateId
from limpet.testing import ScriptedBack
from tests.unit.engine.harness import (
    CALL,
    EngineHarness,
    Json,
    echo,
    engine_harness,
    engine_test,
    gate,
    settle_down,
)


class Wire:
    """A connection whose other side may be slow or gone."""

    def __init__(self) -> None:
        self.messages: list[Json] = []
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.is_gone = False

    async def send(self, message: bytes) -> None:
        await self.may_write.wait()
        if self.is_gone:
            raise BrokenPipeError
        self.messages.append(msgspec.json.decode(message))


async def connect(d: EngineHarness) -> Wire:
    wire = Wire()
    d.session = await d.open(duplex=wire)
    return wire


@engine_test
async def test_answers_and_messages_go_straight_to_the_connection() -> None:
    async def work(exchange: Exchange) -> object:
        await exchange.notify("notifications/progress", {"n": 1})
        return {"roots": await exchange.ask("roots/list", {})}

    async with engine_harness(ScriptedBack({CALL: work})) as d:
        wire = await connect(d)
        await d.submit(1)
        await settle_down()
        progress, ask = wire.messages
        assert progress["method"] == "notifications/progress"
        await d.answer(ask, [1])
        await settle_down()
        assert wire.messages[-1] == {"jsonrpc": "2.0", "id": 1, "result": {"roots": [1]}}


@engine_test
async def test_an_id_is_free_as_soon_as_its_answer_can_be_seen() -> None:
    async with engine_harness() as d:
        wire = await connect(d)
        wire.may_write.clear()
        await d.submit(1)
        await settle_down()
        await d.submit(1)
        wire.may_write.set()
        await settle_down()
        assert [message["id"] for message in wire.messages] == [1, 1]


@engine_test
async def test_a_duplicate_is_refused_here_too() -> None:
    wait, event = gate()
    async with engine_harness(ScriptedBack({CALL: wait})) as d:
        wire = await connect(d)
        await d.submit(1)
        with pytest.raises(DuplicateId):
            await d.submit(1)
        event.set()
        await settle_down()
        assert [message["id"] for message in wire.messages] == [1]


@engine_test
async def test_a_peer_that_does_not_read_keeps_no_handler_from_being_cancelled() -> None:
    stopped = asyncio.Event()

    async def work(exchange: Exchange) -> object:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return {}

    async with engine_harness(ScriptedBack({CALL: work})) as d:
        wire = await connect(d)
        await d.submit(1)
        await settle_down()
        wire.may_write.clear()
        await d.cancel(1)
        await settle_down()
        assert stopped.is_set()
        wire.may_write.set()
        await settle_down()
        assert [message["error"]["code"] for message in wire.messages] == [REQUEST_CANCELLED]


@engine_test
async def test_a_connection_that_is_gone_breaks_nothing_and_is_not_treated_as_another_replica() -> None:
    async with engine_harness(ScriptedBack({CALL: echo})) as d:
        wire = await connect(d)
        exchange = await d.submit(1)
        wire.is_gone = True
        await settle_down()
        assert d.noted.named("exchange.fenced") == []
        assert isinstance(exchange, SessionExchange)
        assert exchange.state is ExchangeState.SETTLED
        assert d.session.exchanges == {}
        assert await d.engine.sessions.close(d.session, SessionInput.DELETED)


@engine_test
async def test_messages_outside_of_requests_go_to_the_connection() -> None:
    async with engine_harness(limits=Limits(asks=1)) as d:
        wire = await connect(d)
        await d.engine.sessions.push(d.key, "notifications/tools/list_changed")
        for number in range(3):
            asking = asyncio.create_task(d.engine.sessions.ask(d.session, "roots/list", {}))
            await settle_down()
            await d.answer(wire.messages[-1], number)
            assert await asking == number
        assert [message["method"] for message in wire.messages][:2] == [
            "notifications/tools/list_changed",
            "roots/list",
        ]
