"""The conditions of the short path: a call that does not meet them takes the usual way, with the same result."""

import asyncio

from holdfast.config import Limits, Settings
from holdfast.core.exchange import ExchangeState
from holdfast.engine.exchange import Exchange
from holdfast.testing.back import ScriptedBack
from tests.http.paper import settled
from tests.stores import ScriptedStore
from tests.support import virtual_test
from tests.unit.fronts.http.listener.test_plain_calls import Line, connected_beside


async def _content(_exchange: Exchange) -> object:
    return {"content": []}


def first_call_waits() -> tuple[ScriptedBack, asyncio.Event]:
    """Return a back whose call with the id 1 waits for the event."""
    end = asyncio.Event()
    back = ScriptedBack()

    @back.on("tools/call")
    async def plain(exchange: Exchange) -> object:
        if exchange.request.id == 1:
            await end.wait()
        return {}

    return back, end


@virtual_test
async def test_a_plain_call_waits_for_its_slot() -> None:
    back, end = first_call_waits()
    line = await Line(back, settings=Settings(limits=Limits(running=1))).open(sessionless=False)
    other, paper = connected_beside(line)
    line.protocol.data_received(line.call(1, sessionless=False))
    await settled()
    other.data_received(line.call(2, sessionless=False))
    await settled()
    assert (len(back.handled), paper.statuses) == (1, [])
    end.set()
    await settled()
    assert (line.paper.statuses, paper.statuses) == ([200], [200])
    await line.engine.aclose()


@virtual_test
async def test_a_plain_call_brings_a_detached_session_back() -> None:
    back, end = first_call_waits()
    line = await Line(back).open(sessionless=False)
    line.protocol.data_received(line.call(1, sessionless=False))
    await settled()
    line.paper.close()
    line.protocol.connection_lost(None)
    end.set()
    await settled()
    other, paper = connected_beside(line)
    other.data_received(line.call(2, sessionless=False))
    await settled()
    assert paper.statuses == [200]
    assert "reattached" in back.events
    await line.engine.aclose()


@virtual_test
async def test_a_call_that_has_sent_a_message_is_answered_with_its_stream() -> None:
    async def telling(exchange: Exchange) -> object:
        await exchange.notify("notifications/message", {"level": "info", "data": "told"})
        return {"content": []}

    line = await Line(ScriptedBack({"tools/call": telling})).open(sessionless=False)
    line.protocol.data_received(line.call(1, sessionless=False))
    await settled()
    assert b"content-type: text/event-stream" in line.paper.written
    assert line.paper.written.index(b'"data":"told"') < line.paper.written.index(b'"result":{')
    await line.engine.aclose()


@virtual_test
async def test_an_answer_that_is_written_to_a_closing_connection_is_kept_for_a_repeat() -> None:
    back = ScriptedBack({"tools/call": _content})
    line = await Line(back).open(sessionless=False)
    other, paper = connected_beside(line)
    line.protocol.data_received(line.call(1, sessionless=False))
    line.paper.close()
    await settled()
    line.protocol.connection_lost(None)
    other.data_received(line.call(1, sessionless=False))
    await settled()
    assert (paper.statuses, len(back.handled)) == ([200], 1)
    await line.engine.aclose()


@virtual_test
async def test_the_end_of_a_plain_call_is_stored() -> None:
    back = ScriptedBack({"tools/call": _content})
    line = await Line(back).open(sessionless=False)
    line.protocol.data_received(line.call(1, sessionless=False))
    await settled()
    assert [exchange.state for exchange in back.handled] == [ExchangeState.SETTLED]
    await line.engine.aclose()


@virtual_test
async def test_a_replica_needs_nothing_of_a_session_whose_call_is_answered() -> None:
    back = ScriptedBack({"tools/call": _content})
    line = await Line(back, store=ScriptedStore(is_shared=True)).open(sessionless=False)
    line.protocol.data_received(line.call(1, sessionless=False))
    await settled()
    assert (line.paper.statuses, line.engine.runtime.sessions) == ([200], {})
    await line.engine.aclose()


@virtual_test
async def test_a_plain_call_that_gets_no_slot_in_time_is_refused_as_busy() -> None:
    async def endless(_exchange: Exchange) -> object:
        await asyncio.sleep(60)
        return {}

    limits = Limits(running=1, queue_seconds=1.0)
    line = await Line(ScriptedBack({"tools/call": endless}), settings=Settings(limits=limits)).open(
        sessionless=False
    )
    other, paper = connected_beside(line)
    line.protocol.data_received(line.call(1, sessionless=False))
    await settled()
    other.data_received(line.call(2, sessionless=False))
    await asyncio.sleep(2)
    assert paper.statuses == [429]
    await line.engine.aclose()
