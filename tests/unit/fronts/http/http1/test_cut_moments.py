"""The connection of a call breaks, and its request is repeated: at every pass of the loop around the end of the call.

An end that is stored frees its id, and the answer is written in a later turn. A repeat that is claimed in between must find
the answer, and must not run the call again. Each test tries all turns until the answer is written before the break.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, Literal

import pytest

from limpet.config import ResponseMode, Settings
from limpet.core.lifecycle import SessionState
from limpet.engine.exchange import Exchange
from limpet.fronts.http.http1.connection import HttpConnection
from limpet.stores.memory import MemoryStore
from limpet.testing.back import ScriptedBack
from tests.http.paper import Paper, settled
from tests.messages import LATEST, request
from tests.stores import ScriptedStore
from tests.support import virtual_test
from tests.unit.fronts.http.http1.test_plain_calls import Line, connected_beside, post

_MOST_TURNS: Final = 60
_LONG: Final = 0.4
"""Seconds after which a response has become a stream."""
Script = Callable[[Exchange, asyncio.Event], Awaitable[None]]


async def _at_once(_exchange: Exchange, _end: asyncio.Event) -> None:
    """Return without waiting."""


async def _after_a_turn(_exchange: Exchange, _end: asyncio.Event) -> None:
    await asyncio.sleep(0)


async def _after_two_turns(_exchange: Exchange, _end: asyncio.Event) -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def _after_a_wait(_exchange: Exchange, end: asyncio.Event) -> None:
    await end.wait()


async def _after_a_message(exchange: Exchange, _end: asyncio.Event) -> None:
    await exchange.notify("notifications/message", {"level": "info", "data": 1})


async def _after_a_message_and_a_wait(exchange: Exchange, end: asyncio.Event) -> None:
    await exchange.notify("notifications/message", {"level": "info", "data": 1})
    await end.wait()


SCRIPTS: Final[dict[str, tuple[Script, float]]] = {
    "at once": (_at_once, 0.0),
    "after a turn": (_after_a_turn, 0.0),
    "after two turns": (_after_two_turns, 0.0),
    "after a wait": (_after_a_wait, 0.01),
    "after a long wait": (_after_a_wait, _LONG),
    "after a message": (_after_a_message, 0.0),
    "after a message and a wait": (_after_a_message_and_a_wait, 0.01),
}
"""How a handler ends, and the time before it is allowed to."""
STORES: Final = ("memory", "awaited", "shared")


def _store(name: str) -> MemoryStore:
    if name == "memory":
        return MemoryStore()
    store = ScriptedStore(is_shared=name == "shared")
    # Each command and each reply takes a pass of the loop. The order of the commands stays, as on a connection.
    store.delay("claim", "settle", "keep", "attach", "detach", "open_stream", "append", "read", "find")
    return store


class Attempt:
    """One call. Its connection breaks after a number of turns, and its request is repeated on another connection."""

    def __init__(self, how: str, mode: ResponseMode, store: str, version: str = LATEST) -> None:
        self._script, self._seconds = SCRIPTS[how]
        self._mode, self._store, self._version = mode, store, version
        self._end = asyncio.Event()
        self.back = ScriptedBack({"tools/call": self._plain})
        self._lines: list[tuple[HttpConnection, Paper]] = []

    async def _plain(self, exchange: Exchange) -> object:
        await self._script(exchange, self._end)
        return {"content": []}

    async def run(self, turns: int, pause: int, *, breaks: int = 1, batch: int = 0) -> bool:
        """Break the last of `breaks` connections after so many turns, and check all. False: it had its answer before."""
        line = await Line(self.back, mode=self._mode, store=_store(self._store)).open(
            sessionless=False, version=self._version
        )
        params = {"name": "plain", "arguments": {}}
        calls = [request(number, "tools/call", params) for number in range(1, max(1, batch) + 1)]
        self._lines = [(line.protocol, line.paper)]
        sent = post(calls if batch else calls[0], line.headers)
        line.protocol.data_received(sent)
        for _ in range(breaks - 1):
            await asyncio.sleep(self._seconds)
            self._break()
            self._repeat(line, sent)
        if self._seconds:
            await asyncio.sleep(self._seconds)
        self._end.set()
        await _turns(turns)
        if self._has_answer():
            await line.engine.aclose()
            return False
        if pause < 0:
            # The repeat arrives in the same turn, before the news of the break.
            broken = self._lines[-1]
            self._repeat(line, sent)
            self._break(broken)
        else:
            self._break()
            await _turns(pause)
            self._repeat(line, sent)
        await asyncio.sleep(1)
        assert len(self.back.handled) == len(calls), (turns, pause)
        assert self._lines[-1][1].statuses == [200], (turns, pause, self._lines[-1][1].written)
        assert self._lines[-1][1].written.count(b'"result":{') == len(calls), (turns, pause)
        self._break()
        await settled()
        _check_nothing_is_left(line.engine.store, (turns, pause))
        await line.engine.aclose()
        return True

    def _has_answer(self) -> bool:
        return b'"result":{' in self._lines[-1][1].written

    def _break(self, broken: tuple[HttpConnection, Paper] | None = None) -> None:
        protocol, paper = broken or self._lines[-1]
        paper.close()
        protocol.connection_lost(None)

    def _repeat(self, line: Line, sent: bytes) -> None:
        self._lines.append(connected_beside(line))
        self._lines[-1][0].data_received(sent)


async def _turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def _check_nothing_is_left(store: Any, moment: object) -> None:
    """Check that no id is in use, no call runs and no reader is attached."""
    [session] = store._sessions.values()
    assert (session.ids, session.running, session.calls, session.readers) == ({}, 0, 0, 0), moment


def _try_all(
    how: str, mode: ResponseMode, store: str, version: str = LATEST, *, factory: Any = None, **more: int
) -> None:
    """Try every turn until the answer is written before the break, each with a repeat just before it, just after it and a turn later."""

    @virtual_test
    async def run() -> None:
        asyncio.get_running_loop().set_task_factory(factory)
        for pause in (-1, 0, 1):
            turns = 0
            while await Attempt(how, mode, store, version).run(turns, pause, **more):
                turns += 1
                assert turns < _MOST_TURNS
            # At least the turn in which the request arrives.
            assert turns

    run()


def _modes(how: str, store: str) -> list[ResponseMode]:
    """Return the modes to try: all of them with the store that has the short path, and no message in mode `json`."""
    modes: list[ResponseMode] = ["adaptive", "json", "sse"] if store == "memory" else ["adaptive", "json"]
    return [mode for mode in modes if mode != "json" or "message" not in how]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("how", SCRIPTS)
def test_a_call_whose_connection_breaks_at_any_turn_runs_once(how: str, store: str) -> None:
    for mode in _modes(how, store):
        _try_all(how, mode, store)


if sys.version_info >= (3, 12):

    @pytest.mark.parametrize("how", SCRIPTS)
    def test_a_call_runs_once_also_if_the_tasks_of_the_program_start_eagerly(how: str) -> None:
        for mode in _modes(how, "memory"):
            _try_all(how, mode, "memory", factory=asyncio.eager_task_factory)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("how", ["after a wait", "after a long wait", "after a message and a wait"])
def test_a_call_whose_repeat_breaks_at_any_turn_runs_once(how: str, store: str) -> None:
    for mode in _modes(how, store):
        _try_all(how, mode, store, breaks=2)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("how", SCRIPTS)
def test_the_calls_of_a_batch_whose_connection_breaks_at_any_turn_run_once(how: str, store: str) -> None:
    for mode in _modes(how, store):
        _try_all(how, mode, store, "2025-03-26", batch=2)


@pytest.mark.parametrize("store", STORES)
def test_the_calls_of_a_batch_whose_repeat_breaks_at_any_turn_run_once(store: str) -> None:
    for mode in _modes("after a wait", store):
        _try_all("after a wait", mode, store, "2025-03-26", batch=2, breaks=2)


async def _with_held_call() -> tuple[Line, ScriptedBack, ScriptedStore, asyncio.Event]:
    """Return a server with a session whose calls end when the event is set."""
    store, end = ScriptedStore(), asyncio.Event()

    async def plain(_exchange: Exchange) -> object:
        await end.wait()
        return {"content": []}

    back = ScriptedBack({"tools/call": plain})
    return await Line(back, store=store).open(sessionless=False), back, store, end


@virtual_test
async def test_a_post_whose_end_is_not_stored_gives_its_place_back_when_its_answer_cannot_be_written() -> (
    None
):
    line, back, store, end = await _with_held_call()
    sent = line.call(1, sessionless=False)
    line.protocol.data_received(sent)
    async with aclosing(line.engine):
        await settled()
        store.fail("settle")
        # The transport closes before the end of the connection is reported: the answer is written to no one.
        line.paper.close()
        end.set()
        await settled()
        line.protocol.connection_lost(None)
        await settled()
        [session] = store._sessions.values()
        assert (session.running, session.readers, session.state) == (1, 0, SessionState.DETACHED)
        other, paper = connected_beside(line)
        other.data_received(sent)
        await settled()
        store.recover()
        await asyncio.sleep(1)
        assert (paper.statuses, len(back.handled)) == ([200], 1)
        assert b'"result":{' in paper.written
        _check_nothing_is_left(store, "after the repeat")


async def _slow_to_keep() -> tuple[Line, ScriptedBack]:
    """Return a server where a call has ended and its answer could not be written. Its store takes a second to keep it."""
    line, back, store, end = await _with_held_call()
    store.delay("keep", "detach", before=1.0)
    line.protocol.data_received(line.call(1, sessionless=False))
    await settled()
    line.paper.close()
    end.set()
    await asyncio.sleep(0.01)
    assert (len(back.handled), len(line.engine.runtime.sessions)) == (1, 1)
    [session] = line.engine.runtime.sessions.values()
    assert list(session.answering) == [1]
    return line, back


@virtual_test
async def test_a_repeat_waits_for_the_store_as_long_as_it_takes_to_keep_the_answer() -> None:
    line, back = await _slow_to_keep()
    other, paper = connected_beside(line)
    other.data_received(line.call(1, sessionless=False))
    async with aclosing(line.engine):
        await asyncio.sleep(5)
        assert (paper.statuses, len(back.handled)) == ([200], 1)


@virtual_test
async def test_another_request_does_not_wait_for_the_answer_to_an_earlier_one_with_its_id() -> None:
    line, back = await _slow_to_keep()
    other, _ = connected_beside(line)
    other.data_received(post(request(1, "tools/call", {"name": "another"}), line.headers))
    async with aclosing(line.engine):
        await asyncio.sleep(0.05)
        assert len(back.handled) == 2


@pytest.mark.parametrize(("duplicates", "status"), [("reject", 400), ("isolate", 200)])
@virtual_test
async def test_a_duplicate_of_a_call_whose_client_takes_nothing_is_no_repeat(
    duplicates: Literal["reject", "isolate"], status: int
) -> None:
    end = asyncio.Event()

    async def plain(_exchange: Exchange) -> object:
        await end.wait()
        return {}

    back = ScriptedBack({"tools/call": plain})
    line = await Line(back, settings=Settings(duplicates=duplicates)).open(sessionless=False)
    other, paper = connected_beside(line)
    line.protocol.data_received(line.call(1, sessionless=False))
    async with aclosing(line.engine):
        await settled()
        line.protocol.pause_writing()
        end.set()
        await settled()
        other.data_received(line.call(1, sessionless=False))
        await asyncio.sleep(1)
        assert (paper.statuses, line.paper.statuses) == ([status], [])
        line.protocol.resume_writing()
        await settled()
        assert line.paper.statuses == [200]
        assert len(back.handled) == (1 if duplicates == "reject" else 2)
