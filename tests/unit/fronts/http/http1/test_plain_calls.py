"""A plain call on a connection of `serve`: one task, one pass of the loop, one write."""

import asyncio
import gc
import itertools
import json
import sys
import weakref
from collections.abc import Callable
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, NamedTuple

import pytest

from limpet.config import HttpSettings, Limits, ResponseMode, Settings
from limpet.engine.engine import Engine
from limpet.engine.exchange import Exchange
from limpet.engine.load import CALL_BYTES
from limpet.engine.pauses import Pulse
from limpet.errors import InvalidParams, OutcomeUnknown
from limpet.fronts.http.decide.session_posts import PostedCall, Posts
from limpet.fronts.http.front import HttpFront
from limpet.fronts.http.http1.connection import HttpConnection
from limpet.fronts.http.http1.deadlines import Deadlines
from limpet.fronts.http.http1.members import Members
from limpet.testing import NotingObserver
from limpet.testing.back import ScriptedBack
from tests.http.paper import Paper, settled
from tests.messages import LATEST, initialize, metadata, modern_headers, notification, request
from tests.stores import ScriptedStore
from tests.support import LoopClock, virtual_test
from tests.unit.fronts.http.test_auth import Tokens

ERAS = pytest.mark.parametrize("sessionless", [False, True], ids=["session", "2026-07-28"])
HEAD = {
    "Host": "localhost",
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
}


def post(body: Any, headers: dict[str, str] | None = None) -> bytes:
    """Return a POST."""
    data = json.dumps(body, separators=(",", ":")).encode()
    lines = {**HEAD, **(headers or {}), "Content-Length": str(len(data))}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + data


class Line:
    """A connection, with a session or without."""

    def __init__(
        self,
        back: ScriptedBack,
        *,
        mode: ResponseMode = "adaptive",
        store: Any = None,
        settings: Settings = Settings(),
    ) -> None:
        self.engine = Engine(back, settings, store=store)
        # The tests count passes of the loop: a pause of this machine must not add any.
        self.engine.pulse = Pulse(LoopClock().now)
        self.front = HttpFront(self.engine, HttpSettings(response=mode))
        self.observer = NotingObserver()
        deadlines = Deadlines(self.engine.settings.limits, 30.0)
        self.members = Members(self.front.serve, deadlines, observer=self.observer)
        self.protocol, self.paper = HttpConnection(self.members), Paper()
        self.protocol.connection_made(self.paper)
        self.headers: dict[str, str] = {}

    async def open(self, *, sessionless: bool, version: str = LATEST) -> "Line":
        """Start the engine, and a session of this version."""
        if sessionless:
            await self.engine.ensure_started()
            self.headers = modern_headers("tools/call", {"name": "plain"})
            return self
        self.protocol.data_received(post(request(0, "initialize", initialize(version))))
        await settled()
        _, _, rest = self.paper.written.partition(b"mcp-session-id: ")
        self.headers = {"Mcp-Session-Id": rest[:64].decode(), "MCP-Protocol-Version": version}
        self.paper.written = b""
        return self

    def call(self, number: int, *, sessionless: bool) -> bytes:
        """Return a call of a tool."""
        params = {"name": "plain", "arguments": {}, **({"_meta": metadata()} if sessionless else {})}
        return post(request(number, "tools/call", params), self.headers)


@ERAS
@pytest.mark.parametrize("mode", ["adaptive", "json", "sse"])
@virtual_test
async def test_the_only_task_of_a_plain_call_is_its_handlers(
    mode: ResponseMode, *, sessionless: bool
) -> None:
    back = ScriptedBack()
    new: list[set[Any]] = []

    @back.on("tools/call")
    async def plain(_exchange: Exchange) -> object:
        new.append(asyncio.all_tasks() - before - {asyncio.current_task()})
        return {"content": []}

    line = await Line(back, mode=mode).open(sessionless=sessionless)
    before = asyncio.all_tasks()
    async with aclosing(line.engine):
        for number in (1, 2, 3):
            line.protocol.data_received(line.call(number, sessionless=sessionless))
            await settled()
        assert new == [set(), set(), set()]
        assert line.paper.statuses == [200] * 3
        assert line.members.tasks == set()
        assert (b"\nevent: message\ndata: {" in line.paper.written) is (mode == "sse")


class Late(NamedTuple):
    """A line, and a call on it whose handler waits."""

    line: Line
    release: asyncio.Event


async def late_call(*, sessionless: bool = False, mode: ResponseMode = "adaptive") -> Late:
    """Begin a call that ends when it is released."""
    back, release = ScriptedBack(), asyncio.Event()

    @back.on("tools/call")
    async def plain(_exchange: Exchange) -> object:
        await release.wait()
        return {"content": []}

    line = await Line(back, mode=mode).open(sessionless=sessionless)
    line.protocol.data_received(line.call(1, sessionless=sessionless))
    await settled()
    assert line.paper.written == b""
    assert line.protocol._started is None, "now the channel reports the end of the connection"
    return Late(line, release)


@ERAS
@virtual_test
async def test_a_call_that_waits_is_answered_when_it_ends(*, sessionless: bool) -> None:
    line, release = await late_call(sessionless=sessionless)
    async with aclosing(line.engine):
        assert len(line.members.tasks) == sessionless, "in a session its only task is its handler's"
        release.set()
        await settled()
        assert (line.paper.statuses, line.members.tasks) == ([200], set())
        line.protocol.data_received(line.call(2, sessionless=sessionless))
        await settled()
        assert line.paper.statuses == [200, 200]


@virtual_test
async def test_a_call_that_is_silent_for_long_becomes_a_stream() -> None:
    line, release = await late_call()
    async with aclosing(line.engine):
        await asyncio.sleep(0.3)
        assert b"content-type: text/event-stream" in line.paper.written
        assert (len(line.members.tasks), b"result" in line.paper.written) == (1, False)
        release.set()
        await settled()
        assert b'"result":' in line.paper.written
        assert line.members.tasks == set()


@virtual_test
async def test_a_stop_waits_for_a_call_that_has_no_task_yet() -> None:
    line, release = await late_call()
    async with aclosing(line.engine):
        line.protocol.make_last()
        assert len(line.members.tasks) == 1
        release.set()
        await settled()
        assert (line.paper.statuses, line.members.tasks) == ([200], set())


@virtual_test
async def test_the_answer_of_a_late_call_whose_client_has_left_is_kept_for_its_repeat() -> None:
    line, release = await late_call()
    async with aclosing(line.engine):
        line.paper.close()
        line.protocol.connection_lost(None)
        assert len(line.members.tasks) == 1
        release.set()
        await settled()
        assert line.members.tasks == set()
        again, paper = connected_beside(line)
        again.data_received(line.call(1, sessionless=False))
        await settled()
        assert (paper.statuses, b'"result":{' in paper.written) == ([200], True)


_VARIABLE: ContextVar[str] = ContextVar("of an author", default="")


@virtual_test
async def test_the_front_does_not_answer_in_the_context_of_the_handler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    usual = PostedCall.answer_later

    def look(call: PostedCall, *, woken: bool) -> bool:
        seen.append(_VARIABLE.get())
        return usual(call, woken=woken)

    monkeypatch.setattr(PostedCall, "answer_later", look)
    back, release = ScriptedBack(), asyncio.Event()

    @back.on("tools/call")
    async def plain(_exchange: Exchange) -> object:
        _VARIABLE.set("secret")
        await release.wait()
        return {}

    line = await Line(back).open(sessionless=False)
    line.protocol.data_received(line.call(1, sessionless=False))
    async with aclosing(line.engine):
        await settled()
        release.set()
        await settled()
        assert (line.paper.statuses, seen) == ([200], [""])


@virtual_test
async def test_a_store_that_replaces_claim_or_settle_is_called_through_them() -> None:
    back = ScriptedBack({"tools/call": _nothing})
    store = ScriptedStore()
    line = await Line(back, store=store).open(sessionless=False)
    line.protocol.data_received(line.call(1, sessionless=False))
    async with aclosing(line.engine):
        await settled()
        assert line.paper.statuses == [200]
        assert [name for name in store.log if name in {"claim", "settle"}] == ["claim", "settle"]


async def _nothing(_exchange: Exchange) -> object:
    return {}


@virtual_test
async def test_the_answer_is_kept_for_a_repeat_if_its_client_goes_while_the_handler_runs() -> None:
    back = ScriptedBack({"tools/call": _nothing})
    line = await Line(back).open(sessionless=False)
    call = line.call(1, sessionless=False)
    line.protocol.data_received(call)
    line.paper.close()
    line.protocol.connection_lost(None)
    async with aclosing(line.engine):
        await settled()
        assert line.paper.written == b""
        again, paper = connected_beside(line)
        again.data_received(call)
        await settled()
        assert paper.statuses == [200]
        assert b'"result":{}' in paper.written
        assert len(back.handled) == 1


def connected_beside(line: Line) -> tuple[HttpConnection, Paper]:
    """Return a second connection to the same server."""
    protocol, paper = HttpConnection(line.members), Paper()
    protocol.connection_made(paper)
    return protocol, paper


@virtual_test
async def test_a_duplicate_that_arrives_in_the_turn_of_the_first_request_is_refused() -> None:
    back = ScriptedBack({"tools/call": _nothing})
    line = await Line(back).open(sessionless=False)
    other, paper = connected_beside(line)
    call = line.call(1, sessionless=False)
    line.protocol.data_received(call)
    # The first call ends before the refusal is written. Its id is free then, and the duplicate is refused nevertheless.
    other.data_received(call)
    async with aclosing(line.engine):
        await settled()
        await asyncio.sleep(1)
        assert (line.paper.statuses, paper.statuses) == ([200], [400])
        assert b"already in flight" in paper.written
        assert len(back.handled) == 1


if sys.version_info >= (3, 12):

    @virtual_test
    async def test_a_request_that_an_eager_task_has_served_leaves_no_task() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        line = await Line(ScriptedBack()).open(sessionless=False)
        async with aclosing(line.engine):
            line.protocol.data_received(post({"jsonrpc": "2.0", "id": 1, "result": {}}, line.headers))
            assert (line.paper.statuses, line.members.tasks) == ([202], set())


@pytest.mark.parametrize("running", [1, 32], ids=["no slot is free", "slots are free"])
@pytest.mark.parametrize("waits", [False, True], ids=["plain", "waiting"])
@virtual_test
async def test_a_repeat_that_arrives_in_the_turn_of_the_cut_gets_the_answer_of_the_one_call(
    running: int, *, waits: bool
) -> None:
    back, release = ScriptedBack(), asyncio.Event()

    @back.on("tools/call")
    async def plain(_exchange: Exchange) -> object:
        if waits:
            await release.wait()
        return {}

    line = await Line(back, settings=Settings(limits=Limits(running=running))).open(sessionless=False)
    other, paper = connected_beside(line)
    call = line.call(1, sessionless=False)
    line.protocol.data_received(call)
    async with aclosing(line.engine):
        if waits:
            await settled()
        release.set()
        line.paper.close()
        line.protocol.connection_lost(None)
        # The handler ends in this turn too, before the task of the first POST or of its repeat runs.
        other.data_received(call)
        await settled()
        await asyncio.sleep(1)
        assert paper.statuses == [200]
        assert b'"result":{}' in paper.written
        assert len(back.handled) == 1


@virtual_test
async def test_other_connections_have_their_turn_between_the_requests_of_one_read() -> None:
    line = await Line(ScriptedBack()).open(sessionless=True)
    refused = post({}, {"Content-Type": "text/plain"})
    answered: list[int] = []

    def look() -> None:
        answered.append(len(line.paper.statuses))
        if len(answered) < 2_000:
            asyncio.get_running_loop().call_soon(look)

    look()
    line.protocol.data_received(refused * 1_000)
    async with aclosing(line.engine):
        while len(answered) < 2_000:
            await asyncio.sleep(0)
        assert line.paper.statuses == [415] * 1_000
        steps = [after - before for before, after in itertools.pairwise(answered)]
        assert max(steps) <= 2


@pytest.mark.parametrize("broken", [(Posts, "request"), (PostedCall, "answer_nowait")])
@virtual_test
async def test_a_fault_before_or_after_the_handler_is_answered_with_500_and_logged(
    broken: tuple[type, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> Any:
        raise LookupError("a fault of ours")

    line = await Line(ScriptedBack({"tools/call": _nothing})).open(sessionless=False)
    async with aclosing(line.engine):
        with monkeypatch.context() as patched:
            patched.setattr(*broken, fail)
            line.protocol.data_received(line.call(1, sessionless=False))
            await settled()
        line.protocol.data_received(line.call(2, sessionless=False))
        await settled()
        assert line.paper.statuses == [500, 200]
        [failed] = line.observer.named("request.failed")
        assert str(failed["error"]) == "a fault of ours"


@virtual_test
async def test_a_request_whose_task_is_cancelled_ends_its_connection() -> None:
    back, never = ScriptedBack(), asyncio.Event()

    @back.on("tools/call")
    async def plain(_exchange: Exchange) -> object:
        await never.wait()
        return {}

    line = await Line(back).open(sessionless=False)
    line.protocol.data_received(line.call(1, sessionless=False))
    async with aclosing(line.engine):
        await settled()
        line.protocol.make_last()
        await settled()
        [task] = line.members.tasks
        task.cancel()
        await settled()
        assert (line.paper.is_closing(), line.members.tasks) == (True, set())


@pytest.mark.parametrize("missing", [0, 5], ids=["the whole body", "a part of the body"])
@virtual_test
async def test_the_client_has_time_to_read_its_last_answer_if_its_body_was_not_read(missing: int) -> None:
    line = await Line(ScriptedBack()).open(sessionless=False)
    refused = post({"a": 1}, {"Content-Type": "text/plain", "Connection": "close"})
    line.protocol.data_received(refused[: len(refused) - missing])
    async with aclosing(line.engine):
        await settled()
        assert line.paper.statuses == [415]
        # A close with unread bytes would reset the connection.
        assert line.paper.is_closing() is (missing == 0)


@pytest.mark.parametrize(
    ("sessionless", "token"), [(False, ""), (True, ""), (True, "ann")], ids=["session", "2026-07-28", "token"]
)
@virtual_test
async def test_a_short_call_is_charged_if_it_takes_time_and_until_its_handler_has_ended(
    token: str, *, sessionless: bool
) -> None:
    back, release = ScriptedBack(), asyncio.Event()

    @back.on("tools/call")
    async def plain(_exchange: Exchange) -> object:
        await release.wait()
        return {"content": []}

    line = await Line(back).open(sessionless=sessionless)
    if token:  # not known to the front yet: its request waits for the verifier first
        line.headers["Authorization"] = f"Bearer {token}"
        line.front._identity = HttpFront(line.engine, verifier=Tokens())._identity
    ledger = line.engine.load.ledger
    before = ledger.used
    line.protocol.data_received(line.call(1, sessionless=sessionless))
    async with aclosing(line.engine):
        await settled()
        assert CALL_BYTES < ledger.used - before < 4 * CALL_BYTES
        line.protocol.connection_lost(None)
        await settled()
        assert sessionless or ledger.used - before > CALL_BYTES
        release.set()
        await settled()
        back.handled.clear()
        gc.collect()  # a cancelled call is a cycle of references
        assert ledger.used - before < CALL_BYTES


@ERAS
@virtual_test
async def test_a_plain_call_is_charged_only_while_there_is_not_plenty_of_room(*, sessionless: bool) -> None:
    back, charged = ScriptedBack(), []

    @back.on("tools/call")
    async def plain(_exchange: Exchange) -> object:
        charged.append(ledger.used > before)
        return {"content": []}

    line = await Line(back).open(sessionless=sessionless)
    ledger = line.engine.load.ledger
    others = ledger.account("others").open()
    async with aclosing(line.engine):
        for number, part in enumerate((0, ledger.total // 3, ledger.total * 2)):
            others.set(part)
            before = ledger.used
            line.protocol.data_received(line.call(number, sessionless=sessionless))
            await settled()
        assert charged == [False, True]
        assert line.paper.statuses == [200, 200, 429]


@virtual_test
async def test_a_short_notification_is_charged_until_the_back_has_handled_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    back, release = ScriptedBack(), asyncio.Event()
    line = await Line(back).open(sessionless=False)
    ledger, handled = line.engine.load.ledger, []

    async def notify(*_: object) -> None:
        await release.wait()
        handled.append(ledger.used > before)

    monkeypatch.setattr(back, "notify", notify)
    before = ledger.used
    line.protocol.data_received(post(notification("notifications/other", {}), line.headers))
    async with aclosing(line.engine):
        await settled()
        assert line.paper.statuses == [202]
        release.set()
        await settled()
        assert handled == [True]
        assert ledger.used == before


@ERAS
@pytest.mark.parametrize("failure", [InvalidParams, OutcomeUnknown, ValueError])
@virtual_test
async def test_a_call_that_failed_does_not_wait_for_the_garbage_collector(
    failure: Callable[[str], Exception], *, sessionless: bool
) -> None:
    back, tasks = ScriptedBack(), list[weakref.ref[asyncio.Task[object]]]()

    @back.on("tools/call")
    async def fails(exchange: Exchange) -> object:
        assert exchange.task is not None
        tasks.append(weakref.ref(exchange.task))
        try:
            return int("inner")
        except ValueError as inner:
            raise failure("no") from inner

    line = await Line(back).open(sessionless=sessionless)
    gc.disable()
    async with aclosing(line.engine):
        try:
            line.protocol.data_received(line.call(1, sessionless=sessionless))
            await settled()
            back.handled.clear()
            assert [task() for task in tasks] == [None]
        finally:
            gc.enable()
