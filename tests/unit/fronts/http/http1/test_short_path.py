"""The conditions of the short path: a call that does not meet them takes the usual way, with the same result."""

import asyncio
from contextlib import aclosing
from typing import Final

import pytest

from limpet.auth.scopes import Needs
from limpet.config import Limits, Settings
from limpet.core.exchange import ExchangeState
from limpet.core.lifecycle import SessionInput
from limpet.engine.caller import Caller
from limpet.engine.engine import Engine
from limpet.engine.exchange import Exchange, SessionExchange
from limpet.engine.session import Session
from limpet.errors import Fenced
from limpet.testing.back import ScriptedBack
from limpet.wire.jsonrpc import Request
from tests.duplex import DuplexClient
from tests.http.paper import settled
from tests.messages import notification
from tests.stores import ScriptedStore
from tests.support import virtual_test
from tests.unit.fronts.http.http1.test_plain_calls import Line, connected_beside, post


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
    async with aclosing(line.engine):
        await settled()
        other.data_received(line.call(2, sessionless=False))
        await settled()
        assert (len(back.handled), paper.statuses) == (1, [])
        end.set()
        await settled()
        assert (line.paper.statuses, paper.statuses) == ([200], [200])


@virtual_test
async def test_a_plain_call_brings_a_detached_session_back() -> None:
    back, end = first_call_waits()
    line = await Line(back).open(sessionless=False)
    line.protocol.data_received(line.call(1, sessionless=False))
    async with aclosing(line.engine):
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


@virtual_test
async def test_a_call_that_has_sent_a_message_is_answered_with_its_stream() -> None:
    async def telling(exchange: Exchange) -> object:
        await exchange.notify("notifications/message", {"level": "info", "data": "told"})
        return {"content": []}

    line = await Line(ScriptedBack({"tools/call": telling})).open(sessionless=False)
    line.protocol.data_received(line.call(1, sessionless=False))
    async with aclosing(line.engine):
        await settled()
        assert b"content-type: text/event-stream" in line.paper.written
        assert line.paper.written.index(b'"data":"told"') < line.paper.written.index(b'"result":{')


@virtual_test
async def test_an_answer_that_is_written_to_a_closing_connection_is_kept_for_a_repeat() -> None:
    back = ScriptedBack({"tools/call": _content})
    line = await Line(back).open(sessionless=False)
    other, paper = connected_beside(line)
    line.protocol.data_received(line.call(1, sessionless=False))
    line.paper.close()
    async with aclosing(line.engine):
        await settled()
        line.protocol.connection_lost(None)
        other.data_received(line.call(1, sessionless=False))
        await settled()
        assert (paper.statuses, len(back.handled)) == ([200], 1)


@virtual_test
async def test_the_end_of_a_plain_call_is_stored() -> None:
    back = ScriptedBack({"tools/call": _content})
    line = await Line(back).open(sessionless=False)
    line.protocol.data_received(line.call(1, sessionless=False))
    async with aclosing(line.engine):
        await settled()
        assert [exchange.state for exchange in back.handled] == [ExchangeState.SETTLED]


@virtual_test
async def test_a_replica_needs_nothing_of_a_session_whose_call_is_answered() -> None:
    back = ScriptedBack({"tools/call": _content})
    line = await Line(back, store=ScriptedStore(is_shared=True)).open(sessionless=False)
    line.protocol.data_received(line.call(1, sessionless=False))
    async with aclosing(line.engine):
        await settled()
        assert (line.paper.statuses, line.engine.runtime.sessions) == ([200], {})


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
    async with aclosing(line.engine):
        await settled()
        other.data_received(line.call(2, sessionless=False))
        await asyncio.sleep(2)
        assert paper.statuses == [429]


@virtual_test
async def test_a_handler_that_revokes_its_cancellation_does_not_end_its_call_again() -> None:
    async def stubborn(_exchange: Exchange) -> object:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
        return {}

    back = ScriptedBack({"tools/call": stubborn})
    line = await Line(back).open(sessionless=False)
    other, _ = connected_beside(line)
    line.protocol.data_received(line.call(1, sessionless=False))
    async with aclosing(line.engine):
        await settled()
        other.data_received(post(notification("notifications/cancelled", {"requestId": 1}), line.headers))
        await settled()
        assert await ended(back) == ExchangeState.SETTLED
        assert b'"code":-32800' in line.paper.written


@virtual_test
async def test_a_handler_whose_write_was_refused_as_fenced_does_not_store_an_end() -> None:
    async def fenced(_exchange: Exchange) -> object:
        raise Fenced

    back = ScriptedBack({"tools/call": fenced})
    line = await Line(back).open(sessionless=False)
    line.protocol.data_received(line.call(1, sessionless=False))
    async with aclosing(line.engine):
        await settled()
        assert await ended(back) == ExchangeState.FENCED


@virtual_test
async def test_a_call_whose_session_is_missing_in_the_store_is_answered() -> None:
    back, end = first_call_waits()
    line = await Line(back).open(sessionless=False)
    line.protocol.data_received(line.call(1, sessionless=False))
    async with aclosing(line.engine):
        await settled()
        [session] = line.engine.runtime.sessions.values()
        await line.engine.runtime.store.close(session.record.key, SessionInput.DELETED)
        end.set()
        await settled()
        assert await ended(back) == ExchangeState.SETTLED
        assert (line.paper.statuses, line.engine.runtime.sessions) == ([200], {})


async def ended(back: ScriptedBack) -> ExchangeState:
    """Return the state of the only call, whose task has ended without a failure."""
    [exchange] = back.handled
    assert exchange.task is not None
    await exchange.task
    return exchange.state


def submitted(engine: Engine, key: str, caller: Caller, method: str = "tools/call") -> object:
    """Submit a request of this session on the short path."""
    return engine.exchanges.submit_nowait(
        key, caller, Request(7, method, {"name": "plain"}), b"", streams=True
    )


@virtual_test
async def test_a_call_that_has_to_wait_for_its_slot_needs_no_task_until_it_starts() -> None:
    back, end = first_call_waits()
    limits = Limits(running=1, queued=1)
    line = await Line(back, settings=Settings(limits=limits)).open(sessionless=False)
    line.protocol.data_received(line.call(1, sessionless=False))
    async with aclosing(line.engine):
        await settled()
        [session] = line.engine.runtime.sessions.values()
        key, caller = session.record.key, Caller(session.record.principal)
        before = asyncio.all_tasks()
        waiting = submitted(line.engine, key, caller)
        assert isinstance(waiting, SessionExchange)
        assert (waiting.state, asyncio.all_tasks()) == (ExchangeState.QUEUED, before)
        # The queue is full: `submit` refuses the next one.
        assert submitted(line.engine, key, caller) is None
        end.set()
        await settled()
        assert waiting.state == ExchangeState.SETTLED


@virtual_test
async def test_a_ping_takes_no_slot() -> None:
    line = await Line(ScriptedBack()).open(sessionless=False)
    async with aclosing(line.engine):
        [session] = line.engine.runtime.sessions.values()
        ping = submitted(line.engine, session.record.key, Caller(session.record.principal), "ping")
        assert isinstance(ping, SessionExchange)
        assert (ping.claim.control, session.gate.inside) == (True, 0)


@virtual_test
async def test_a_call_of_a_session_on_a_connection_does_not_take_the_short_path() -> None:
    back = ScriptedBack({"tools/call": _content})
    engine = Engine(back)
    async with aclosing(engine):
        await engine.ensure_started()
        client = DuplexClient(engine, Caller("user"))
        await client.open()
        [session] = engine.runtime.sessions.values()
        assert submitted(engine, session.record.key, Caller("user")) is None
        assert back.handled == []


@virtual_test
async def test_a_call_whose_scopes_must_be_checked_does_not_take_the_short_path() -> None:
    back = ScriptedBack({"tools/call": _content})
    line = await Line(back).open(sessionless=False)
    async with aclosing(line.engine):
        [session] = line.engine.runtime.sessions.values()
        key, caller = session.record.key, Caller(session.record.principal)
        back.access.rules = AllNeed(frozenset({"mail.send"}))
        assert submitted(line.engine, key, caller) is None
        assert back.handled == []
        back.access.rules = None
        assert submitted(line.engine, key, caller) is not None


class AllNeed:
    """Rules by which every component needs the same scopes."""

    def __init__(self, scopes: frozenset[str]) -> None:
        self._scopes = scopes

    def needs(self, _request: Request, _caller: Caller, _session: str) -> Needs:
        """Return the scopes."""
        return Needs(self._scopes)

    def declared(self) -> list[Needs]:
        """Return the scopes."""
        return [Needs(self._scopes)]

    def basic(self, request: Request | None = None) -> frozenset[str]:
        """Return the scopes."""
        return self._scopes


async def _shared_session() -> tuple[Line, Session]:
    """Return a replica that needs a session for nothing, after a call."""
    back = ScriptedBack({"tools/call": _content})
    line = await Line(back, store=ScriptedStore(is_shared=True)).open(sessionless=False)
    line.protocol.data_received(line.call(1, sessionless=False))
    await settled()
    [exchange] = back.handled
    assert isinstance(exchange, SessionExchange)
    return line, line.engine.runtime.local_session(exchange.session.record)


NEEDED: Final[dict[str, object]] = {
    "exchanges": {"s": object()},
    "answering": {1: object()},
    "readers": {"s": [object()]},
    "pending": {"a": object()},
    "notified": 1,
    "calling": object(),
}


@pytest.mark.parametrize(("name", "value"), NEEDED.items(), ids=NEEDED)
@virtual_test
async def test_a_replica_keeps_a_session_that_it_needs(name: str, value: object) -> None:
    line, session = await _shared_session()
    async with aclosing(line.engine):
        runtime, before = line.engine.runtime, getattr(session, name)
        setattr(session, name, value)
        runtime.release(session)
        assert runtime.sessions == {session.record.key: session}
        setattr(session, name, before)
        runtime.release(session)
        assert runtime.sessions == {}
