"""Tools as tasks: from the handle to the result, their questions, their ends, and their owners."""

import asyncio
import json
from typing import Any, Final

import msgspec
import pytest

from limpet import ConfigError, Context, InputRequired, McpError, Server, ToolError, Want
from limpet.auth import Principal
from limpet.config import Limits, Times
from limpet.engine import sessionless_client as engine_client
from limpet.engine.caller import Caller
from limpet.errors import BUSY, CallEnded
from limpet.protocol.idempotency import KEYS_EXTENSION
from limpet.protocol.sessionless import VERSION, RequestMeta
from limpet.testing.store.limits import tight
from limpet.wire.jsonrpc import Request
from tests.stores import ScriptedStore
from tests.support import virtual_test
from tests.unit.server.peer import connected
from tests.unit.server.sessionless_client import ALL, SessionlessClient
from tests.unit.server.task_client import EXTENSION, POLL, TASKS, TaskClient, check_task, named, tasks_of

UNKNOWN: Final = (-32602, "Unknown task: no task has this taskId, or the task is gone")
NAME: Final = {"type": "object", "properties": {"name": {"type": "string"}}}


async def verifier(token: str) -> Principal | None:
    return Principal(subject=token)


def make(**options: Any) -> Server:
    """Return a server with tools that run as tasks; `runs` counts the bodies of `ask`."""
    server = Server("tasks", **options)

    @server.tool(task="optional")
    async def work(seconds: float, ctx: Context) -> str:
        await ctx.progress(1, 2, "half-way")
        await ctx.info("tasks carry no log messages")
        await asyncio.sleep(seconds)
        return "worked"

    @server.tool(task="optional")
    async def ask(ctx: Context) -> str:
        first, second = await asyncio.gather(
            ctx.elicit("first?", NAME, key="name"), ctx.elicit("second?", NAME, key="name")
        )
        third = await ctx.elicit("third?", NAME)
        return " ".join((answer.data or {}).get("name", "-") for answer in (first, second, third))

    @server.tool(task="required")
    async def fail() -> str:
        raise ToolError("it failed")

    @server.tool(task="optional")
    async def refuse() -> str:
        raise McpError(-32099, "no", {"why": "so"})

    @server.tool(task="optional")
    async def crash() -> str:
        raise ZeroDivisionError("secret")

    @server.tool(task="required", task_by_hand=True)
    async def ask_first(ctx: Context) -> str:
        answer = await ctx.elicit("who?", NAME, key="user")
        is_task = await ctx.start_task()
        later = await ctx.elicit("and?", NAME, key="user")
        return f"{(answer.data or {})['name']} {(later.data or {})['name']} {is_task}"

    @server.tool
    async def plain(ctx: Context) -> str:
        await ctx.start_task()
        return "never"

    return server


async def refused(client: TaskClient, task_id: str) -> tuple[int, str]:
    """Ask about a task in every way; return the one refusal."""
    found = set()
    for attempt in (client.get(task_id), client.update(task_id), client.cancel(task_id)):
        with pytest.raises(McpError) as caught:
            await attempt
        found.add((caught.value.code, caught.value.message))
    (refusal,) = found
    return refusal


# From the handle to the result


@virtual_test
async def test_a_call_becomes_a_task_and_its_result_waits_for_the_client() -> None:
    async with tasks_of(make()) as client:
        task_id = await client.create("work", seconds=100)
        task = await client.get(task_id)
        assert (task["status"], task["statusMessage"]) == ("working", "half-way")
        assert (task["ttlMs"], task["pollIntervalMs"]) == (3_600_000, POLL * 1000)
        assert await client.text_of(task_id) == "worked"
        assert asyncio.get_running_loop().time() >= 100
        await asyncio.sleep(3_500)
        assert await client.text_of(task_id) == "worked", "it can be had again"


@virtual_test
async def test_a_client_without_the_extension_gets_the_result_or_the_missing_capability() -> None:
    async with tasks_of(make()) as client:
        other = SessionlessClient(client.server)
        assert await other.text("work", seconds=1) == "worked"
        answered = await other.send("tools/call", {"name": "fail", "arguments": {}})
        assert (answered.status, answered.error["code"]) == (400, -32021)
        assert "extensions.io.modelcontextprotocol/tasks" in answered.error["message"]
        assert answered.error["data"] == {"requiredCapabilities": EXTENSION}


@virtual_test
async def test_in_a_session_such_tools_answer_like_any_other() -> None:
    async with connected(make(), capabilities={"elicitation": {}, **EXTENSION}) as peer:
        assert await peer.text("work", seconds=0) == "worked"
        assert await peer.failure("fail") == "it failed"
        peer.answers["elicitation/create"] = lambda _: named("Ada")
        assert await peer.text("ask_first") == "Ada Ada False"
        assert "extensions" not in peer.initialized["capabilities"]


@virtual_test
async def test_the_extension_is_declared_where_a_tool_can_be_a_task() -> None:
    async with tasks_of(make()) as client:
        assert (await client.request("server/discover"))["capabilities"]["extensions"] == {
            TASKS: {},
            KEYS_EXTENSION: {},
        }
    server = Server("plain")
    server.add_tool(lambda: "x", name="x")
    async with tasks_of(server) as client:
        assert (await client.request("server/discover"))["capabilities"]["extensions"] == {KEYS_EXTENSION: {}}


@virtual_test
async def test_a_failed_result_is_completed_and_an_error_is_failed() -> None:
    async with tasks_of(make()) as client:
        task = await client.done(await client.create("fail"))
        assert (task["status"], task["result"]["isError"]) == ("completed", True)
        task = await client.done(await client.create("refuse"))
        assert task["error"] == {"code": -32099, "message": "no", "data": {"why": "so"}}
        task = await client.done(await client.create("crash"))
        assert (task["status"], task["result"]["isError"]) == ("completed", True), (
            "as in a call that is no task"
        )


@virtual_test
async def test_closing_the_response_does_not_end_a_task() -> None:
    async with tasks_of(make()) as client:
        task_id = await client.create("work", seconds=50)
        await asyncio.sleep(10)
        assert not client.server.engine.sessionless.parking.statistics().kept
        assert await client.text_of(task_id) == "worked"


def test_an_invalid_task_mode_is_refused() -> None:
    server = Server("s")
    wrong: Any = "sometimes"
    with pytest.raises(ConfigError, match="optional"):
        server.add_tool(verifier, task=wrong, output_schema=False)
    with pytest.raises(ConfigError, match="task_by_hand"):
        server.add_tool(verifier, task_by_hand=True, output_schema=False)


# Asking


@virtual_test
async def test_a_task_asks_and_takes_answers_one_by_one_under_keys_it_never_uses_twice() -> None:
    async with tasks_of(make()) as client:
        task_id = await client.create("ask")
        asked = (await client.until(task_id, "input_required"))["inputRequests"]
        assert [ask["params"]["message"] for ask in asked.values()] == ["first?", "second?"]
        one, two = asked
        await client.update(task_id, **{two: named("B"), "stranger": named("X")})
        task = await client.get(task_id)
        assert (task["status"], list(task["inputRequests"])) == ("input_required", [one])
        await client.update(task_id, **{two: named("Y")})
        await client.update(task_id, **{one: named("A")})
        (three,) = (await client.until(task_id, "input_required"))["inputRequests"]
        assert three not in (one, two)
        await client.update(task_id, **{one: named("Z"), three: named("C")})
        assert await client.text_of(task_id) == "A B C"


@virtual_test
async def test_asks_before_a_task_begins_are_part_of_the_call_and_repeats_get_the_same_task() -> None:
    async with tasks_of(make()) as client:
        call = {"name": "ask_first", "arguments": {}}
        first = (await client.post("tools/call", call)).result
        assert (first["resultType"], list(first["inputRequests"])) == ("input_required", ["user"])
        retry = {**call, "inputResponses": {"user": named("Ada")}, "requestState": first["requestState"]}
        created = (await client.post("tools/call", retry)).result
        check_task(created, "task")
        statistics = client.server.engine.sessionless.parking.statistics()
        assert (statistics.kept, statistics.finished) == (0, 1), "it waits no longer in its call"
        assert (await client.post("tools/call", retry)).result == created
        task = await client.until(created["taskId"], "input_required")
        await client.update(created["taskId"], **{next(iter(task["inputRequests"])): named("Eve")})
        assert await client.text_of(created["taskId"]) == "Ada Eve True"
        await asyncio.sleep(700)
        assert await client.status(created["taskId"]) == "completed", (
            "the parked call's time is not the task's"
        )


@virtual_test
async def test_a_running_task_outlives_the_time_of_the_call_it_was_parked_in() -> None:
    server = make()

    @server.tool(task="optional", task_by_hand=True)
    async def long(ctx: Context) -> str:
        await ctx.elicit("go?", NAME, key="go")
        await ctx.start_task()
        await asyncio.sleep(1_000)
        return "long"

    async with tasks_of(server) as client:
        call = {"name": "long", "arguments": {}}
        state = (await client.post("tools/call", call)).result["requestState"]
        retry = {**call, "inputResponses": {"go": named("")}, "requestState": state}
        created = (await client.post("tools/call", retry)).result
        assert await client.text_of(created["taskId"]) == "long"


@virtual_test
async def test_rounds_by_hand_are_asked_within_a_task() -> None:
    server = make()

    @server.tool(task="optional")
    async def by_hand(ctx: Context) -> str | InputRequired:
        if not ctx.input_responses:
            return InputRequired(requests={"who": Want.form("who?", NAME)}, state="asked")
        return f"{ctx.input_responses['who']['content']['name']}, {ctx.request_state}"

    async with tasks_of(server) as client:
        task_id = await client.create("by_hand")
        assert list((await client.until(task_id, "input_required"))["inputRequests"]) == ["who"]
        await client.update(task_id, who=named("Ada"))
        assert await client.text_of(task_id) == "Ada, asked"


@virtual_test
async def test_only_a_tool_that_declares_tasks_can_start_one() -> None:
    async with tasks_of(make()) as client:
        answered = await client.post("tools/call", {"name": "plain", "arguments": {}})
        assert "never" not in str(answered.message)


@virtual_test
async def test_an_answer_whose_wake_up_is_lost_arrives_later_and_not_never() -> None:
    async with tasks_of(make()) as client:
        task_id = await client.create("ask")
        keys = (await client.until(task_id, "input_required"))["inputRequests"]
        client.server.engine.runtime.store.bind(lambda *_: None)
        await client.update(task_id, **dict.fromkeys(keys, named("A")))
        assert await client.status(task_id) == "working"
        (last,) = (await client.until(task_id, "input_required"))["inputRequests"]
        await client.update(task_id, **{last: named("B")})
        assert await client.text_of(task_id) == "A A B"
        assert asyncio.get_running_loop().time() < 40


# Ending


@virtual_test
async def test_a_cancelled_task_stops_its_handler_and_stays_cancelled() -> None:
    ended: list[str] = []
    server = Server("s")

    @server.tool(task="optional")
    async def wait() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return "waited"

    async with tasks_of(server) as client:
        task_id = await client.create("wait")
        await asyncio.sleep(1)
        await client.cancel(task_id)
        assert await client.status(task_id) == "cancelled"
        await asyncio.sleep(0)
        assert ended == ["cancelled"]
        await client.cancel(task_id)
        await asyncio.sleep(100)
        assert await client.status(task_id) == "cancelled"


@virtual_test
async def test_a_task_that_waits_for_input_can_be_cancelled() -> None:
    async with tasks_of(make()) as client:
        task_id = await client.create("ask")
        (key, _) = (await client.until(task_id, "input_required"))["inputRequests"]
        await client.cancel(task_id)
        await client.update(task_id, **{key: named("late")})
        assert await client.status(task_id) == "cancelled"


@virtual_test
async def test_an_ask_that_the_handler_does_not_await_ends_with_its_task() -> None:
    server, asking = Server("tasks"), list[asyncio.Task[Any]]()

    @server.tool(task="optional")
    async def leave(ctx: Context) -> str:
        asking.append(asyncio.create_task(ctx.elicit("?", NAME)))
        await asyncio.sleep(10)
        return "done"

    async with tasks_of(server) as client:
        task_id = await client.create("leave")
        await client.until(task_id, "input_required")
        await asyncio.wait(asking)
        assert isinstance(asking[0].exception(), CallEnded)
        assert await client.status(task_id) == "completed"
        assert server.engine.sessionless.asks() == 0


@virtual_test
async def test_a_client_that_leaves_before_it_has_the_handle_leaves_no_task_that_works() -> None:
    store = ScriptedStore()
    store.delay("open_task", after=5)
    async with tasks_of(make(), store=store) as client:
        call = asyncio.ensure_future(client.create("work", seconds=100))
        await asyncio.sleep(1)
        assert store.done["open_task"], "the store has the task and has not said so"
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await asyncio.sleep(1)
        cell = await store.get_task(store.done["open_task"][0][0], "")
        assert cell is not None
        assert msgspec.msgpack.decode(cell.value)["status"] == "cancelled"
        assert not client.server.engine.sessionless.live()


@virtual_test
async def test_while_the_store_does_not_work_requests_for_tasks_are_refused_as_busy_and_work_later() -> None:
    store = ScriptedStore()
    async with tasks_of(make(), store=store) as client:
        task_id = await client.create("work", seconds=1)
        call = ("tools/call", {"name": "work", "arguments": {"seconds": 1}})
        store.fail("open_task", "get_task")
        for method, params in (
            call,
            ("tasks/get", {"taskId": task_id}),
            ("tasks/cancel", {"taskId": task_id}),
        ):
            answered = await client.post(method, params)
            assert (answered.status, answered.error["code"]) == (503, BUSY), method
        store.recover()
        assert await client.text_of(task_id) == "worked"


@virtual_test
async def test_a_completed_task_is_not_cancelled() -> None:
    async with tasks_of(make()) as client:
        task_id = await client.create("fail")
        before = await client.done(task_id)
        await client.cancel(task_id)
        assert await client.get(task_id) == before


@virtual_test
async def test_a_task_expires_when_nothing_changed_for_its_time_and_its_handler_with_it() -> None:
    async with tasks_of(make(), times=Times(task=60, task_poll=POLL)) as client:
        task_id = await client.create("work", seconds=1_000)
        await asyncio.sleep(59)
        assert await client.status(task_id) == "working"
        await asyncio.sleep(3)
        assert await refused(client, task_id) == UNKNOWN
        assert not client.server.engine.sessionless.live()


@virtual_test
async def test_a_change_gives_a_task_its_time_again() -> None:
    async with tasks_of(make(), times=Times(task=60, task_poll=POLL)) as client:
        task_id = await client.create("work", seconds=50)
        await asyncio.sleep(100)
        task = await client.get(task_id)
        assert (task["status"], task["ttlMs"]) == ("completed", 110_000)
        await asyncio.sleep(11)
        assert await refused(client, task_id) == UNKNOWN


@virtual_test
async def test_a_server_that_stops_writes_the_end_of_its_tasks() -> None:
    async with tasks_of(make(), times=Times(drain=5, task_poll=POLL)) as client:
        engine = client.server.engine
        task_id = await client.create("work", seconds=1_000)
        await engine.drain()
        task = await client.get(task_id)
        assert task["error"]["code"] == -31002
        assert "stopped while this task was running" in task["error"]["message"]


# Whose they are, and how many


@virtual_test
async def test_a_task_is_its_principals_alone() -> None:
    server = make(verifier=verifier)
    async with tasks_of(server, token="ada") as ada:
        eve = TaskClient(server, capabilities={**ALL, **EXTENSION}, token="eve")
        task_id = await ada.create("ask")
        await ada.until(task_id, "input_required")
        assert await refused(eve, task_id) == UNKNOWN == await refused(eve, "nonsense")
        assert await ada.status(task_id) == "input_required"


@virtual_test
async def test_tasks_need_the_extension_with_every_request() -> None:
    async with tasks_of(make()) as client:
        task_id = await client.create("work", seconds=1)
        other = TaskClient(client.server, capabilities={})
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            answered = await other.post(method, {"taskId": task_id, "inputResponses": {}})
            assert (answered.status, answered.error["code"]) == (400, -32021)
            assert answered.error["data"] == {"requiredCapabilities": EXTENSION}


@pytest.mark.parametrize("method", ["tasks/result", "tasks/list"])
@virtual_test
async def test_task_methods_of_earlier_drafts_are_not_found(method: str) -> None:
    async with tasks_of(make()) as client:
        answered = await client.post(method, {"taskId": "x"})
        assert (answered.status, answered.error["code"]) == (404, -32601)


@virtual_test
async def test_requests_about_a_task_name_it_in_their_header() -> None:
    async with tasks_of(make()) as client:
        task_id = await client.create("work", seconds=1)
        answered = await client.post("tasks/get", {"taskId": task_id}, headers={"mcp-name": "another"})
        assert (answered.status, answered.error["code"]) == (400, -32020)


@pytest.mark.parametrize("params", [{}, {"taskId": 5}, {"taskId": "x", "inputResponses": []}])
@virtual_test
async def test_malformed_requests_about_a_task_are_refused(params: dict[str, Any]) -> None:
    async with tasks_of(make()) as client:
        answered = await client.post("tasks/update", params)
        assert answered.error["code"] in (-32602, -32020)


@virtual_test
async def test_no_more_tasks_than_the_limit_and_no_result_beyond_its_size() -> None:
    server = make()

    @server.tool(task="optional")
    async def long_text() -> str:
        return "x" * 10_000

    async with tasks_of(server, limits=tight(tasks_per_principal=2, task_bytes=5_000)) as client:
        task = await client.done(await client.create("long_text"))
        assert task["error"]["code"] == -32603
        assert "cannot be kept" in task["error"]["message"]
        await client.create("work", seconds=10)
        answered = await client.post("tools/call", {"name": "work", "arguments": {"seconds": 1}})
        assert (answered.status, answered.error["code"]) == (429, -31001)


# Listening


@virtual_test
async def test_subscriptions_receive_the_state_of_their_own_tasks_only() -> None:
    server = make(verifier=verifier)
    async with tasks_of(server, token="ada") as ada:
        task_id = await ada.create("ask")
        await ada.until(task_id, "input_required")
        wanted = Request(7, "subscriptions/listen", {"notifications": {"taskIds": [task_id, "unknown"]}})
        key = Principal(subject="ada").key
        mine = await server.engine.listening.open(client_of(key), wanted, Caller(""))
        theirs = await server.engine.listening.open(client_of("eve"), wanted, Caller(""))
        (acknowledged,) = map(json.loads, mine.messages())
        assert acknowledged["params"]["notifications"] == {"taskIds": [task_id]}
        (nothing,) = map(json.loads, theirs.messages())
        assert nothing["params"]["notifications"] == {}
        await ada.cancel(task_id)
        task = await ada.get(task_id)
        (told,) = map(json.loads, mine.messages())
        assert told["method"] == "notifications/tasks"
        assert told["params"].pop("_meta") == {"io.modelcontextprotocol/subscriptionId": 7}
        assert told["params"] == {name: task[name] for name in task if name not in ("resultType", "_meta")}
        assert theirs.messages() == []
        for listener in (mine, theirs):
            server.engine.listening.leave(listener)
        assert server.engine.listening.task_ids == {}


def client_of(principal: str) -> engine_client.SessionlessClient:
    meta = RequestMeta(VERSION, {**ALL, **EXTENSION}, {}, "")
    return engine_client.SessionlessClient(meta, principal, Limits())


# What the specification asks for beside


@virtual_test
async def test_a_failed_task_says_its_error_in_its_status() -> None:
    async with tasks_of(make()) as client:
        task = await client.done(await client.create("refuse"))
        assert (task["status"], task["statusMessage"]) == ("failed", task["error"]["message"])


@virtual_test
async def test_ids_of_tasks_cannot_be_guessed() -> None:
    async with tasks_of(make()) as client:
        ids = [await client.create("work", seconds=1) for _ in range(20)]
        assert len(set(ids)) == 20
        assert min(map(len, ids)) >= 32
        for place in range(8):
            assert len({one[place] for one in ids}) > 3, "no part is the same or counts up"


@virtual_test
async def test_task_metadata_of_2025_11_25_is_ignored() -> None:
    async with connected(make()) as peer:
        assert "tasks" not in peer.initialized["capabilities"]
        call = {"name": "work", "arguments": {"seconds": 0}, "task": {"ttl": 60_000}}
        result = await peer.request("tools/call", call)
        assert result["content"] == [{"type": "text", "text": "worked"}]
        for method in ("tasks/get", "tasks/result", "tasks/list", "tasks/cancel"):
            with pytest.raises(McpError) as refused:
                await peer.request(method, {"taskId": "t"})
            assert refused.value.code == -32601
