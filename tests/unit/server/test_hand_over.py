"""Hand-over: a tool of ten minutes, and clients that give up after a minute. Each way to the result, and all that may happen meanwhile."""

import asyncio
import gc
import itertools
from base64 import b32decode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from limpet import ConfigError, Context, Limits, McpError, Server, Settings, ToolError
from limpet.auth import Principal
from limpet.config import Times
from limpet.core.lifecycle import SessionInput
from limpet.engine.engine import Engine
from limpet.protocol.hand_over import new_ticket, read_ticket
from limpet.protocol.idempotency import KEY
from limpet.protocol.patience import HandOverTime
from limpet.stores.base import NoTasks
from limpet.stores.memory import MemoryStore
from limpet.testing import NotingObserver, SeededRandom
from tests.asgi import Call as HttpCall
from tests.asgi import Peer as HttpPeer
from tests.messages import metadata, request
from tests.stores import ScriptedStore
from tests.support import LoopClock, virtual_test, virtual_test_within
from tests.unit.server.peer import Peer, connect, settle
from tests.unit.server.sessionless_client import ALL, SessionlessClient, accept
from tests.unit.server.task_client import EXTENSION, TASKS, TaskClient, named

Json = dict[str, Any]
NAME: Final = {"type": "object", "properties": {"name": {"type": "string"}}}
PATIENCE: Final = 60.0
"""The client gives up after so many seconds."""
AFTER: Final = 45.0
SEEN: Final[set[str]] = set()
"""The tickets that clients of these tests have received."""


class Work:
    """A server with slow tools, and what happened in them."""

    def __init__(self, after: HandOverTime = AFTER, **settings: Any) -> None:
        limits, times = settings.pop("limits", Limits()), settings.pop("times", Times(task_poll=5.0))
        given = Settings(limits=limits, times=times, hand_over=after, **settings)
        server = self.server = Server("slow", settings=given, verifier=verifier)
        self.runs = 0
        self.stopped: list[str] = []
        self.noted = NotingObserver()
        self.finish = asyncio.Event()

        @server.tool
        async def work(seconds: float, ctx: Context) -> dict[str, float]:
            self.runs += 1
            try:
                for step in range(10):
                    await asyncio.sleep(seconds / 10)
                    await ctx.progress(step + 1, 10)
            except asyncio.CancelledError:
                self.stopped.append("work")
                raise
            return {"seconds": seconds}

        @server.tool
        async def wait() -> str:
            await self.finish.wait()
            return "finished"

        @server.tool
        async def ask(seconds: float, ctx: Context) -> str:
            await asyncio.sleep(seconds)
            answer = await ctx.elicit("who?", NAME)
            return f"{answer.action} {(answer.data or {}).get('name')}"

        @server.tool
        async def copy(text: str) -> str:
            """Return the text three times when it is finished."""
            await self.finish.wait()
            return text * 3

        @server.tool
        async def fail() -> str:
            await asyncio.sleep(100)
            raise ToolError("it failed")

        @server.tool
        async def refuse() -> str:
            await asyncio.sleep(100)
            raise McpError(-32099, "no", {"why": "so"})

        @server.tool(scopes={"deep"})
        async def deep() -> str:
            await asyncio.sleep(100)
            return "deep"

    @asynccontextmanager
    async def running(self, store: MemoryStore | None = None) -> AsyncIterator["Work"]:
        server = self.server
        server._engine = Engine(
            server.back,
            server.settings,
            store=store,
            clock=LoopClock(),
            random=SeededRandom(1),
            observer=self.noted,
        )
        await server.engine.ensure_started()
        try:
            yield self
        finally:
            await server.engine.aclose()
        noted = repr(self.noted.notes)
        assert not [ticket for ticket in SEEN if ticket in noted], "a ticket is in no log"


async def verifier(token: str) -> Principal | None:
    return Principal(subject=token.partition(" ")[0], scopes=frozenset(token.split()[1:]))


async def call(peer: Peer, tool: str, /, **arguments: Any) -> Json:
    """Call a tool as a client that gives up after a minute."""
    async with asyncio.timeout(PATIENCE):
        return await peer.request(
            "tools/call", {"name": tool, "arguments": arguments, "_meta": {"progressToken": "p"}}
        )


def ticket_of(result: Json) -> str:
    ticket: str = result["structuredContent"]["ticket"]
    assert ticket in result["content"][0]["text"]
    assert not result.get("isError")
    SEEN.add(ticket)
    return ticket


async def collected(peer: Peer, ticket: str) -> Json:
    """Call `collect` until the result is there."""
    while True:
        result = await call(peer, "collect", ticket=ticket)
        if result.get("structuredContent", {}).get("ticket") != ticket:
            return result


# A session


@virtual_test
async def test_a_client_of_a_session_collects_the_result_of_ten_minutes() -> None:
    async with Work().running() as work:
        peer = await connect(work.server)
        result = await call(peer, "work", seconds=600)
        ticket = ticket_of(result)
        assert asyncio.get_running_loop().time() == pytest.approx(AFTER, abs=1)
        assert await collected(peer, ticket) == {
            "content": [{"type": "text", "text": '{"seconds":600.0}'}],
            "structuredContent": {"seconds": 600.0},
        }
        assert work.runs == 1
        # It is kept: a client that lost the answer asks again.
        assert (await collected(peer, ticket))["structuredContent"] == {"seconds": 600.0}


@virtual_test
async def test_a_call_that_ends_in_time_has_its_own_answer_and_leaves_nothing() -> None:
    store = ScriptedStore()
    async with Work().running(store) as work:
        peer = await connect(work.server)
        assert (await call(peer, "work", seconds=40))["structuredContent"] == {"seconds": 40.0}
        assert "open_task" not in store.log
        assert [one["progress"] for one in peer.notified("notifications/progress")] == list(range(1, 11))


@virtual_test
async def test_the_answer_says_how_far_the_call_is_and_collect_reports_progress() -> None:
    async with Work().running() as work:
        peer = await connect(work.server)
        result = await call(peer, "work", seconds=100)
        assert "4 of 10" in result["content"][0]["text"]
        heard = len(peer.notified("notifications/progress"))
        await collected(peer, ticket_of(result))
        told = [one["progress"] for one in peer.notified("notifications/progress")[heard:]]
        assert list(dict.fromkeys(told)) == [4, 5, 6, 7, 8, 9, 10]


@virtual_test
async def test_the_answer_says_how_far_the_call_is_also_to_a_client_that_wants_no_progress() -> None:
    async with Work().running() as work:
        peer = await connect(work.server)
        params = {"name": "work", "arguments": {"seconds": 100}}
        result = await peer.request("tools/call", params)
        assert "4 of 10" in result["content"][0]["text"]
        ticket_of(result)
        assert not peer.notified("notifications/progress")


@virtual_test
async def test_collect_waits_less_than_the_hand_over_time_and_as_long_as_it_is_asked() -> None:
    async with Work().running() as work:
        peer = await connect(work.server)
        ticket = ticket_of(await call(peer, "wait"))
        now = asyncio.get_running_loop().time
        for wait, expected in (({}, 36.0), ({"wait": 1_000}, 36.0), ({"wait": 2.5}, 2.5), ({"wait": 0}, 0.0)):
            began = now()
            assert ticket_of(await call(peer, "collect", ticket=ticket, **wait)) == ticket
            assert now() - began == pytest.approx(expected, abs=0.01)
        asyncio.get_running_loop().call_later(3, work.finish.set)
        began = now()
        assert (await call(peer, "collect", ticket=ticket))["content"][0]["text"] == "finished"
        assert now() - began == pytest.approx(3, abs=0.01)


@virtual_test
async def test_after_the_hand_over_neither_a_cancellation_nor_the_end_of_the_session_stops_the_call() -> None:
    async with Work().running() as work:
        peer = await connect(work.server)
        ticket = ticket_of(await call(peer, "work", seconds=600))
        await peer.notify("notifications/cancelled", {"requestId": peer._ids})
        await peer.duplex.hang_up(SessionInput.SHUTDOWN, 0)
        await asyncio.sleep(100)
        assert not work.stopped
        other = await connect(work.server)
        assert (await collected(other, ticket))["structuredContent"] == {"seconds": 600.0}


@virtual_test
async def test_before_the_hand_over_a_cancellation_stops_the_call() -> None:
    async with Work().running() as work:
        peer = await connect(work.server)
        calling = asyncio.ensure_future(
            peer.message("tools/call", {"name": "work", "arguments": {"seconds": 600}})
        )
        await asyncio.sleep(AFTER - 1)
        await peer.notify("notifications/cancelled", {"requestId": peer._ids})
        assert (await calling)["error"]["code"] == -32800
        await settle()
        assert work.stopped == ["work"]
        assert peer.session.gate.inside == 0
        assert not work.noted.named("call.handed_over")


@virtual_test
async def test_collect_cancels_a_call() -> None:
    async with Work().running() as work:
        peer = await connect(work.server)
        ticket = ticket_of(await call(peer, "work", seconds=600))
        result = await call(peer, "collect", ticket=ticket, cancel=True)
        assert "stopped" in result["content"][0]["text"]
        await settle()
        assert work.stopped == ["work"]
        with pytest.raises(McpError, match="cancelled"):
            await call(peer, "collect", ticket=ticket)
        assert peer.session.gate.inside == 0


@virtual_test
async def test_a_call_that_was_handed_over_keeps_its_slot_and_collect_needs_none() -> None:
    async with Work(limits=Limits(running=1)).running() as work:
        peer = await connect(work.server)
        ticket = ticket_of(await call(peer, "wait"))
        second = asyncio.ensure_future(call(peer, "work", seconds=1))
        assert ticket_of(await call(peer, "collect", ticket=ticket, wait=5)) == ticket
        assert not second.done()
        assert work.runs == 0
        work.finish.set()
        assert (await second)["structuredContent"] == {"seconds": 1.0}
        assert peer.session.gate.inside == 0


@virtual_test
async def test_calls_in_order_wait_for_a_call_that_was_handed_over() -> None:
    async with Work(in_order=True).running() as work:
        peer = await connect(work.server)
        ticket = ticket_of(await call(peer, "wait"))
        second = asyncio.ensure_future(call(peer, "work", seconds=1))
        assert ticket_of(await call(peer, "collect", ticket=ticket, wait=5)) == ticket
        assert work.runs == 0
        work.finish.set()
        assert (await second)["structuredContent"] == {"seconds": 1.0}


@virtual_test
async def test_requests_beyond_the_number_of_calls_do_not_wait_for_the_result() -> None:
    async with Work(limits=Limits(running=2)).running() as work:
        peer = await connect(work.server)
        ticket = ticket_of(await call(peer, "wait"))
        waiting = [asyncio.ensure_future(call(peer, "collect", ticket=ticket)) for _ in range(3)]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert done == {waiting[2]}
        assert ticket_of(await waiting[2]) == ticket
        work.finish.set()
        assert {(await one)["content"][0]["text"] for one in waiting[:2]} == {"finished"}


# Questions


@virtual_test
async def test_a_question_after_the_hand_over_reaches_the_client_with_its_next_collect() -> None:
    async with Work().running() as work:
        peer = await connect(work.server, capabilities=ALL)
        peer.answers["elicitation/create"] = lambda _params: {"action": "accept", "content": {"name": "Ada"}}
        ticket = ticket_of(await call(peer, "ask", seconds=50))
        await asyncio.sleep(100)
        assert peer.asked == []
        assert (await call(peer, "collect", ticket=ticket))["content"][0]["text"] == "accept Ada"
        assert [one["params"]["message"] for one in peer.asked] == ["who?"]


@virtual_test
async def test_a_question_that_is_open_at_the_hand_over_is_asked_again() -> None:
    async with Work().running() as work:
        peer = await connect(work.server, capabilities=ALL)
        ticket = ticket_of(await call(peer, "ask", seconds=1))
        assert len(peer.asked) == 1
        assert [one["requestId"] for one in peer.notified("notifications/cancelled")] == [peer.asked[0]["id"]]
        # The user does not answer while the first collect waits: the next one asks once more.
        assert ticket_of(await call(peer, "collect", ticket=ticket)) == ticket
        peer.answers["elicitation/create"] = lambda _params: {"action": "decline"}
        assert (await call(peer, "collect", ticket=ticket))["content"][0]["text"] == "decline None"
        assert len(peer.asked) == 3


@virtual_test
async def test_a_client_that_refuses_the_question_refuses_it_for_the_call() -> None:
    def no(_params: Json) -> Json:
        raise McpError(-1, "the user is away")

    async with Work().running() as work:
        peer = await connect(work.server, capabilities=ALL)
        peer.answers["elicitation/create"] = no
        ticket = ticket_of(await call(peer, "ask", seconds=50))
        result = await collected(peer, ticket)
        assert result["isError"]
        assert "the user is away" in result["content"][0]["text"]


@virtual_test
async def test_a_question_that_a_client_of_2026_07_28_left_unanswered_is_asked_by_its_next_collect() -> None:
    async with Work(limits=Limits(running=1)).running() as work:
        client = SessionlessClient(work.server, token="guest")
        starter = TaskClient(work.server, token="guest", capabilities={**ALL, **EXTENSION})
        task_id = await starter.create("ask", seconds=50)
        await asyncio.sleep(20)
        params: Json = {"name": "collect", "arguments": {"ticket": task_id}}
        # The client goes away with these questions, and comes back without their states.
        left = [await client.send("tools/call", params) for _ in range(3)]
        assert [one.result["resultType"] for one in left] == ["input_required"] * 3
        client.answers["elicitation/create"] = accept(name="Ada")
        assert (await client.request("tools/call", params))["content"][0]["text"] == "accept Ada"
        # A late answer changes nothing.
        client.answers["elicitation/create"] = accept(name="Bob")
        late = await client.send("tools/call", {**params, **client.retry(left[0].result)})
        assert late.result["content"][0]["text"] == "accept Ada"


# Ends and errors


@virtual_test
@pytest.mark.parametrize("era", ["session", "sessionless"])
async def test_a_failure_is_exactly_that_of_the_call(era: str) -> None:
    async with Work().running() as work:
        peer: Any = (
            await connect(work.server) if era == "session" else SessionlessClient(work.server, token="guest")
        )
        first = await peer.request("tools/call", {"name": "fail", "arguments": {}})
        if era == "session":
            first = await collected(peer, ticket_of(first))
        assert first["isError"]
        assert first["content"] == [{"type": "text", "text": "it failed"}]
        with pytest.raises(McpError) as caught:
            await _refused(peer)
        assert (caught.value.code, caught.value.message, caught.value.data) == (-32099, "no", {"why": "so"})


async def _refused(peer: Any) -> None:
    result = await peer.request("tools/call", {"name": "refuse", "arguments": {}})
    await collected(peer, ticket_of(result))


@virtual_test
async def test_a_ticket_belongs_to_its_principal_and_an_unknown_one_gets_a_plain_text() -> None:
    async with Work().running() as work:
        ada = await connect(work.server, principal=Principal(subject="ada"))
        eve = await connect(work.server, principal=Principal(subject="eve"))
        ticket = ticket_of(await call(ada, "work", seconds=50))
        for wrong in (ticket, ticket[:-1], "x" * 32, 5, None, ticket + "~abc"):
            result = await call(eve, "collect", ticket=wrong)
            assert result["isError"]
            assert "not known" in result["content"][0]["text"]
        shouted = f' "{ticket.upper()}" '
        assert (await collected(ada, shouted))["structuredContent"] == {"seconds": 50.0}


@virtual_test
async def test_the_scopes_of_the_tool_apply_to_its_result() -> None:
    async with Work().running() as work:
        may = await connect(work.server, principal=Principal(subject="ada", scopes=frozenset({"deep"})))
        ticket = ticket_of(await call(may, "deep"))
        may_not = await connect(work.server, principal=Principal(subject="ada"))
        with pytest.raises(McpError, match="scope"):
            await call(may_not, "collect", ticket=ticket)
        with pytest.raises(McpError, match="scope"):
            await call(may_not, "collect", ticket=ticket, cancel=True)
        assert (await collected(may, ticket))["content"][0]["text"] == "deep"


@pytest.mark.parametrize("era", ["session", "sessionless"])
@virtual_test
async def test_collect_without_the_scope_of_the_call_is_refused_as_the_tool_itself(era: str) -> None:
    async with Work().running() as work:
        peers = {token: HttpPeer(work.server.asgi(), token=token) for token in ("ada deep", "ada")}

        async def ask(token: str, tool: str, **arguments: Any) -> HttpCall:
            peer, params = peers[token], {"name": tool, "arguments": arguments}
            if era == "session":
                return await peer.post(request(7, "tools/call", params)).done()
            return await peer.sessionless("tools/call", params, meta=metadata(capabilities=EXTENSION)).done()

        for peer in peers.values() if era == "session" else ():
            await peer.initialize()
        answer = (await ask("ada deep", "deep")).received[-1]["result"]
        ticket = ticket_of(answer) if era == "session" else answer["taskId"]
        of_the_tool = await ask("ada", "deep")
        assert of_the_tool.status == 403
        assert 'error="insufficient_scope"' in of_the_tool.headers["www-authenticate"]
        for arguments in ({}, {"wait": 0}, {"cancel": True}):
            refused = await ask("ada", "collect", ticket=ticket, **arguments)
            assert (refused.status, refused.body) == (403, of_the_tool.body)
            assert refused.headers["www-authenticate"] == of_the_tool.headers["www-authenticate"]
        got = await ask("ada deep", "collect", ticket=ticket)
        while "ticket" in got.received[-1]["result"].get("structuredContent", {}):
            got = await ask("ada deep", "collect", ticket=ticket)
        assert got.received[-1]["result"]["content"][0]["text"] == "deep"


@virtual_test
async def test_the_stream_of_a_collect_is_resumed_only_with_the_scopes_of_the_call() -> None:
    async with Work().running() as work:
        may = HttpPeer(work.server.asgi(), token="ada deep")
        await may.initialize()
        called = await may.post(request(1, "tools/call", {"name": "deep", "arguments": {}})).done()
        arguments = {"ticket": ticket_of(called.received[-1]["result"])}
        collecting = await may.post(
            request(2, "tools/call", {"name": "collect", "arguments": arguments})
        ).begun()
        place = collecting.ids[-1]
        await collecting.cut()
        await asyncio.sleep(100)
        may_not = HttpPeer(work.server.asgi(), token="ada")
        may_not.session, may_not.version = may.session, may.version
        assert (await may_not.get(place).done()).status == 403
        assert (await may.get(place).done()).status == 200


@virtual_test_within(200_000)
async def test_the_result_is_kept_for_the_time_of_a_task_and_a_call_that_never_ends_is_stopped_then() -> None:
    async with Work(times=Times(task=1_000)).running() as work:
        peer = await connect(work.server)
        ticket = ticket_of(await call(peer, "work", seconds=600))
        await asyncio.sleep(1_500)
        assert (await call(peer, "collect", ticket=ticket))["structuredContent"] == {"seconds": 600.0}
        await asyncio.sleep(1_000)
        assert (await call(peer, "collect", ticket=ticket))["isError"]
        forever = ticket_of(await call(peer, "wait"))
        await asyncio.sleep(1_100)
        assert (await call(peer, "collect", ticket=forever))["isError"]
        assert peer.session.gate.inside == 0


@virtual_test
async def test_a_call_that_cannot_be_handed_over_goes_on_as_before() -> None:
    store = ScriptedStore()
    async with Work().running(store) as work:
        peer = await connect(work.server)
        store.fail("open_task")
        result = await peer.request("tools/call", {"name": "work", "arguments": {"seconds": 100}})
        assert result["structuredContent"] == {"seconds": 100.0}
        assert work.noted.named("call.not_handed_over")
        assert peer.session.gate.inside == 0


@virtual_test
async def test_a_call_that_ends_while_its_task_is_stored_is_answered_with_its_result() -> None:
    store = ScriptedStore()
    async with Work().running(store) as work:
        peer = await connect(work.server)
        store.delay("open_task", after=10)
        result = await peer.request("tools/call", {"name": "work", "arguments": {"seconds": 50}})
        assert result["structuredContent"] == {"seconds": 50.0}
        assert not work.noted.named("call.handed_over")
        assert work.server.engine.sessionless.live() == []


@virtual_test
async def test_a_stop_waits_for_calls_that_were_handed_over_and_says_so_of_those_that_it_ends() -> None:
    store = MemoryStore(Limits(), LoopClock())
    work = Work(times=Times(drain=30))
    async with work.running(store):
        peer = await connect(work.server)
        quick = ticket_of(await call(peer, "work", seconds=60))
        forever = ticket_of(await call(peer, "wait"))
        await asyncio.sleep(1)
        store.aclose = _nothing  # type: ignore[method-assign] # the next engine uses it
    async with work.running(store):
        peer = await connect(work.server)
        assert (await call(peer, "collect", ticket=quick))["structuredContent"] == {"seconds": 60.0}
        with pytest.raises(McpError) as caught:
            await call(peer, "collect", ticket=forever)
        assert caught.value.code == -31002


@virtual_test
async def test_a_request_that_waits_for_a_call_when_the_drain_time_ends_gets_no_error() -> None:
    store = MemoryStore(Limits(), LoopClock())
    async with Work(times=Times(drain=30)).running(store) as work:
        peer = await connect(work.server)
        client = TaskClient(work.server, token="guest")
        ticket = ticket_of(await call(peer, "wait"))
        round_ = (await client.post("tools/call", {"name": "wait", "arguments": {}})).result
        draining = asyncio.ensure_future(work.server.engine.drain())
        await asyncio.sleep(20)
        collecting = asyncio.ensure_future(call(peer, "collect", ticket=ticket))
        state = {"requestState": round_["requestState"]}
        retrying = asyncio.ensure_future(
            client.post("tools/call", {"name": "wait", "arguments": {}, **state})
        )
        await draining
        assert ticket_of(await collecting) == ticket
        assert (await retrying).result["resultType"] == "input_required"


async def _nothing() -> None:
    pass


@virtual_test
async def test_a_server_that_stops_or_has_no_place_left_still_answers_collect_in_both_eras() -> None:
    async with Work(limits=Limits(connections=8), times=Times(drain=300)).running() as work:
        guest = Principal(subject="guest")
        peer = await connect(work.server, principal=guest)
        client = TaskClient(work.server, token="guest", capabilities={**ALL, **EXTENSION})
        answers = [await client.post("tools/call", {"name": "wait", "arguments": {}}) for _ in range(9)]
        tasks = [answer.result["taskId"] for answer in answers if answer.status == 200]
        assert (answers[-1].status, answers[-1].error["code"], len(tasks)) == (429, -31001, 7)

        async def check(text: str) -> None:
            params = {"name": "collect", "arguments": {"ticket": tasks[0], "wait": 1}}
            for result in (
                await client.request("tools/call", params),
                await peer.request("tools/call", params),
            ):
                assert text in result["content"][0]["text"]

        await check("still running")
        draining = asyncio.ensure_future(work.server.engine.drain())
        await asyncio.sleep(1)
        await check("still running")
        work.finish.set()
        await check("finished")
        await draining


# 2026-07-28


@virtual_test
async def test_a_client_with_tasks_gets_a_task() -> None:
    async with Work().running() as work:
        client = TaskClient(work.server, token="guest", capabilities={**ALL, **EXTENSION})
        began = asyncio.get_running_loop().time()
        task_id = await client.create("work", seconds=600)
        assert asyncio.get_running_loop().time() - began == pytest.approx(AFTER, abs=1)
        working = await client.get(task_id)
        assert working["status"] == "working"
        task = await client.done(task_id)
        assert task["result"]["structuredContent"] == {"seconds": 600.0}
        assert work.runs == 1
        assert "10 of 10" in task["statusMessage"]


@virtual_test
async def test_a_task_of_a_hand_over_asks_and_is_cancelled_as_every_task() -> None:
    async with Work().running() as work:
        client = TaskClient(work.server, token="guest", capabilities={**ALL, **EXTENSION})
        task_id = await client.create("ask", seconds=50)
        asking = await client.until(task_id, "input_required")
        (key,) = asking["inputRequests"]
        await client.update(task_id, **{key: named("Ada")})
        assert await client.text_of(task_id) == "accept Ada"
        task_id = await client.create("work", seconds=600)
        await client.cancel(task_id)
        assert (await client.done(task_id))["status"] == "cancelled"
        assert work.stopped == ["work"]


@virtual_test
async def test_the_scopes_of_the_tool_apply_to_its_task() -> None:
    async with Work().running() as work:
        may, may_not = (
            TaskClient(work.server, token=token, capabilities={**ALL, **EXTENSION})
            for token in ("ada deep", "ada")
        )
        task_id = await may.create("deep")
        for method in ("tasks/get", "tasks/cancel", "tasks/update"):
            refused = await may_not.post(method, {"taskId": task_id, "inputResponses": {}})
            assert (refused.status, refused.error["code"]) == (403, -31004), method
        assert await may.text_of(task_id) == "deep"


@virtual_test
async def test_a_client_without_tasks_comes_back_with_the_state_and_waits_longer_each_time() -> None:
    async with Work(5.0).running() as work:
        client = SessionlessClient(work.server, token="guest")
        now = asyncio.get_running_loop().time
        retry: Json = {}
        waited = []
        while True:
            began = now()
            async with asyncio.timeout(PATIENCE):
                answered = await client.send(
                    "tools/call", {"name": "work", "arguments": {"seconds": 100}, **retry}
                )
            waited.append(round(now() - began))
            if answered.result["resultType"] == "complete":
                break
            assert answered.result.keys() == {"resultType", "_meta", "requestState"}
            retry = {"requestState": answered.result["requestState"]}
        assert waited == [5, 10, 20, 40, 25]
        assert answered.result["structuredContent"] == {"seconds": 100.0}
        assert work.runs == 1


@virtual_test
async def test_after_the_last_round_a_client_without_tasks_gets_a_ticket() -> None:
    async with Work().running() as work:
        client = SessionlessClient(work.server, token="guest")
        result = await client.request("tools/call", {"name": "work", "arguments": {"seconds": 600}})
        assert client.rounds == 8
        ticket = ticket_of(result)
        while True:
            async with asyncio.timeout(PATIENCE):
                result = await client.request(
                    "tools/call", {"name": "collect", "arguments": {"ticket": ticket}}
                )
            if result["structuredContent"].get("ticket") != ticket:
                break
        assert result["structuredContent"] == {"seconds": 600.0}
        assert result["resultType"] == "complete"
        assert work.runs == 1


@virtual_test
async def test_a_client_without_tasks_answers_questions_in_its_rounds() -> None:
    async with Work().running() as work:
        client = SessionlessClient(work.server, token="guest")
        client.answers["elicitation/create"] = accept(name="Ada")
        result = await client.request("tools/call", {"name": "ask", "arguments": {"seconds": 60}})
        assert result["content"][0]["text"] == "accept Ada"
        early = await client.request("tools/call", {"name": "ask", "arguments": {"seconds": 1}})
        assert early["content"][0]["text"] == "accept Ada"
        assert len(client.asked) == 2


@virtual_test
async def test_a_retry_whose_connection_breaks_does_not_stop_the_call() -> None:
    async with Work().running() as work:
        client = SessionlessClient(work.server, token="guest")
        params: Json = {"name": "work", "arguments": {"seconds": 100}}
        first = await client.send("tools/call", params)
        retry = {**params, "requestState": first.result["requestState"]}
        cut = asyncio.ensure_future(client.post("tools/call", retry))
        await asyncio.sleep(10)
        cut.cancel()
        await asyncio.sleep(10)
        assert not work.stopped
        assert (await client.request("tools/call", retry))["structuredContent"] == {"seconds": 100.0}
        assert work.runs == 1


# Settings, lists, tickets


@virtual_test
async def test_the_list_has_the_tool_that_collects_and_schemas_that_allow_a_ticket() -> None:
    async with Work(limits=Limits(page_size=4)).running() as work:
        peer = await connect(work.server)
        assert (await peer.names("tools"))[-1] == "collect"
        assert (await peer.names("tools")).count("collect") == 1
        listed = {tool["name"]: tool for tool in (await peer.request("tools/list"))["tools"]}
        assert listed["work"]["outputSchema"]["type"] == "object"
        own, ticket = listed["work"]["outputSchema"]["anyOf"]
        assert own["additionalProperties"] == {"type": "number"}
        assert "ticket" in ticket["properties"]
        with_tasks = SessionlessClient(work.server, token="guest", capabilities={**ALL, **EXTENSION})
        tools = (await with_tasks.request("tools/list"))["tools"]
        assert "anyOf" not in next(tool for tool in tools if tool["name"] == "work")["outputSchema"]


@virtual_test
async def test_a_server_with_hand_over_declares_tasks_and_one_without_does_not() -> None:
    times: list[tuple[HandOverTime, bool]] = [(AFTER, True), ("off", False)]
    for after, declared in times:
        async with Work(after).running() as work:
            found = await SessionlessClient(work.server, token="guest").request("server/discover")
            extensions = found["capabilities"].get("extensions", {})
            assert (TASKS in extensions) is declared
            names = await (await connect(work.server)).names("tools")
            assert ("collect" in names) is declared
            assert (work.server.engine.runtime.handle == work.server.back.handle) is not declared


@virtual_test
async def test_single_tools_have_their_own_times_in_code_and_in_settings() -> None:
    work = Work("off", hand_over_tools={"wait": 20.0, "quick": "off"})

    @work.server.tool(hand_over=10)
    async def slow() -> str:
        await asyncio.sleep(30)
        return "slow"

    @work.server.tool(hand_over=10)
    async def quick() -> str:
        await asyncio.sleep(30)
        return "quick"

    async with work.running():
        peer = await connect(work.server)
        now = asyncio.get_running_loop().time
        began = now()
        ticket_of(await call(peer, "slow"))
        assert now() - began == pytest.approx(10, abs=0.1)
        ticket_of(await call(peer, "wait"))
        assert now() - began == pytest.approx(30, abs=0.1)
        assert (await call(peer, "quick"))["content"][0]["text"] == "quick"


@virtual_test
async def test_the_time_can_be_that_of_the_client() -> None:
    async with Work("auto").running() as work:
        client = TaskClient(work.server, token="guest", capabilities={**ALL, **EXTENSION}, name="claude-code")
        now = asyncio.get_running_loop().time
        began = now()
        await client.create("work", seconds=600)
        assert now() - began == pytest.approx(90, abs=1)


@virtual_test
async def test_a_tool_with_the_name_of_ours_is_refused_at_the_start_and_hidden_later() -> None:
    work = Work()
    work.server.tool(_named("collect"))
    with pytest.raises(ConfigError, match="collect"):
        async with work.running():
            pass
    other = Work(collect_tool="fetch_result")
    other.server.tool(_named("collect"))
    async with other.running():
        peer = await connect(other.server)
        assert (await call(peer, "collect"))["content"][0]["text"] == "theirs"
        ticket = ticket_of(await call(peer, "work", seconds=50))
        result = await call(peer, "fetch_result", ticket=ticket)
        assert result["structuredContent"] == {"seconds": 50.0}
        other.server.tool(_named("fetch_result"))
        assert (await peer.names("tools")).count("fetch_result") == 1
        assert len(other.noted.named("tool.hidden")) == 1


def _named(name: str) -> Callable[[], str]:
    def theirs() -> str:
        return "theirs"

    theirs.__name__ = name
    return theirs


class _NoTasksStore(NoTasks, MemoryStore):
    pass


@virtual_test
async def test_a_store_without_tasks_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match="keeps no tasks"):
        async with Work().running(_NoTasksStore(Limits(), LoopClock())):
            pass


@pytest.mark.parametrize("time", [0, -1, True, "soon", float("inf")])
def test_an_invalid_time_is_refused(time: Any) -> None:
    for settings in (Settings(hand_over=time), Settings(hand_over_tools={"work": time})):
        with pytest.raises(ConfigError, match="hand_over"):
            _ = Server("s", settings=settings).engine
    with pytest.raises(ConfigError, match="hand_over"):
        Server("s").tool(hand_over=time)(_named("x"))


@virtual_test
async def test_a_tool_that_starts_its_task_itself_does_so_with_hand_over_on() -> None:
    work = Work()

    @work.server.tool(task="optional")
    async def at_once() -> str:
        await asyncio.sleep(10)
        return "done"

    @work.server.tool(task="optional", task_by_hand=True)
    async def by_hand(ctx: Context) -> str:
        await asyncio.sleep(1)
        return f"task {await ctx.start_task()}"

    async with work.running():
        client = TaskClient(work.server, token="guest", capabilities={**ALL, **EXTENSION})
        began = asyncio.get_running_loop().time()
        first, second = await client.create("at_once"), await client.create("by_hand")
        assert asyncio.get_running_loop().time() - began == pytest.approx(1, abs=0.1)
        assert await client.text_of(first) == "done"
        assert await client.text_of(second) == "task True"


@virtual_test
async def test_tickets_are_random_and_easy_to_copy() -> None:
    async with Work().running() as work:
        peer = await connect(work.server)
        tickets = {ticket_of(await call(peer, "wait")) for _ in range(3)}
        assert len(tickets) == 3
        for ticket in tickets:
            assert len(ticket) == 32
            assert set(ticket) <= set("abcdefghijklmnopqrstuvwxyz234567")
            assert read_ticket(ticket) == ticket
        work.finish.set()


@virtual_test
async def test_the_ticket_of_an_anonymous_client_opens_the_result_for_another_one_and_has_160_bits() -> None:
    async with Work().running() as work:
        ticket = ticket_of(await call(await connect(work.server), "work", seconds=50))
        other = await connect(work.server)
        assert (await collected(other, ticket))["structuredContent"] == {"seconds": 50.0}
    bits = {len(b32decode(new_ticket(SeededRandom(seed)).upper())) * 8 for seed in range(20)}
    assert bits == {160}


@virtual_test_within(20_000)
async def test_a_call_that_was_handed_over_and_its_kept_result_are_in_the_ledger() -> None:
    async with Work(times=Times(task=1_000)).running() as work:
        ledger, size = work.server.engine.load.ledger, 200_000
        peer = HttpPeer(work.server.asgi(), token="ada")
        await peer.initialize()
        params = {"name": "copy", "arguments": {"text": "x" * size}}
        before = ledger.used
        calling = await peer.post(request(1, "tools/call", params)).done()
        ticket = ticket_of(calling.messages[-1]["result"])
        del calling
        await settle()
        gc.collect()
        assert before + size < ledger.used < before + 4 * size, "the arguments, while the call runs"
        work.finish.set()
        await asyncio.sleep(1)
        gc.collect()
        assert before + 3 * size < ledger.used, "the result, while it is kept"
        arguments = {"name": "collect", "arguments": {"ticket": ticket}}
        await peer.post(request(2, "tools/call", arguments)).done()
        await asyncio.sleep(1_400)
        gc.collect()
        assert ledger.used < before + size / 10, "nothing, when its time is over"


# The connection


@virtual_test
async def test_a_client_over_http_whose_connection_breaks_resumes_for_the_ticket_and_collects_ten_minutes() -> (
    None
):
    async with Work().running() as work:
        peer = HttpPeer(work.server.asgi(), token="ada")
        await peer.initialize()
        meta = {"progressToken": "p"}
        params = {"name": "work", "arguments": {"seconds": 600}, "_meta": meta}
        first = await peer.post(request(1, "tools/call", params)).begun()
        await asyncio.sleep(30)
        await first.cut()
        await asyncio.sleep(60)
        resumed = await peer.get(first.ids[-1]).done()
        ticket = ticket_of(resumed.messages[-1]["result"])
        assert (await peer.delete()).status == 204
        await peer.initialize()
        numbers = itertools.count(2)
        result: Json = {"ticket": ticket}
        while "ticket" in result:
            async with asyncio.timeout(PATIENCE):
                arguments = {"name": "collect", "arguments": {"ticket": ticket}}
                asked = await peer.post(request(next(numbers), "tools/call", arguments)).done()
            result = asked.received[-1]["result"]["structuredContent"]
        assert result == {"seconds": 600.0}
        assert (work.runs, work.stopped) == (1, [])


@pytest.mark.parametrize("tasks", [False, True])
@virtual_test
async def test_a_call_with_an_idempotency_key_that_was_handed_over_runs_once(*, tasks: bool) -> None:
    async with Work().running() as work:
        capabilities = {**ALL, **EXTENSION} if tasks else ALL
        client = SessionlessClient(
            work.server, token="guest", capabilities=capabilities, meta={KEY: "report-7"}
        )
        params: Json = {"name": "work", "arguments": {"seconds": 100}}
        first, again = [await client.post("tools/call", params) for _ in range(2)]
        assert first.result == again.result
        assert first.result["resultType"] == ("task" if tasks else "input_required")
        await asyncio.sleep(200)
        assert work.runs == 1
