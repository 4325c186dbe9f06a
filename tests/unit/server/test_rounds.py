"""Handlers that ask clients of 2026-07-28: awaiting them (the body runs once), or by hand (the client carries the state)."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from limpet import Context, InputRequired, McpError, Principal, Server, Want
from limpet.asks import Elicited, UrlElicitation
from limpet.errors import CapabilityMissing, UrlElicitationRequired
from tests.messages import PREFIX
from tests.schema import Json
from tests.support import async_test
from tests.unit.server.peer import connect, connected
from tests.unit.server.sessionless_client import SessionlessClient, accept, say, sessionless

GONE = -31003


class Name(BaseModel):
    name: str


async def verifier(token: str) -> Principal | None:
    return Principal(subject=token) if token else None


def asking() -> Server:
    server = Server("asking")

    @server.tool
    async def name(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", Name, key="user_name")
        return answer.data.name if answer.data else answer.action

    @server.tool
    async def several(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ctx.sample(f"q{number}")) for number in range(3)]
            roots = group.create_task(ctx.roots(key="roots"))
        return f"{[task.result().text for task in asked]} {len(roots.result())}"

    @server.prompt
    async def about(ctx: Context) -> str:
        return f"About {(await ctx.sample('what?')).text}"

    @server.resource("data://name")
    async def contents(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", Name)
        return answer.data.name if answer.data else ""

    return server


# Awaiting


@async_test
async def test_an_ask_is_an_answer_that_wants_input_under_the_asks_key() -> None:
    async with sessionless(asking()) as client:
        result = (await client.send("tools/call", {"name": "name"})).result
        assert result["resultType"] == "input_required"
        assert result["_meta"] == {f"{PREFIX}serverInfo": {"name": "asking", "version": "0.0.0"}}
        (ask,) = result["inputRequests"].values()
        assert list(result["inputRequests"]) == ["user_name"]
        assert ask["method"] == "elicitation/create"
        client.answers["elicitation/create"] = accept(name="Ada")
        final = (await client.send("tools/call", {"name": "name", **client.retry(result)})).result
        assert final["content"] == [{"type": "text", "text": "Ada"}]


@async_test
async def test_asks_made_together_go_out_in_one_round() -> None:
    async with sessionless(asking()) as client:
        client.answers = {"sampling/createMessage": say("yes"), "roots/list": lambda _: {"roots": []}}
        assert await client.text("several") == "['yes', 'yes', 'yes'] 0"
        assert (client.rounds, len(client.asked)) == (1, 4)


@async_test
async def test_prompts_and_resources_ask_too() -> None:
    async with sessionless(asking()) as client:
        client.answers = {"sampling/createMessage": say("bees"), "elicitation/create": accept(name="Ada")}
        prompt = await client.request("prompts/get", {"name": "about"})
        assert prompt["messages"][0]["content"]["text"] == "About bees"
        read = await client.request("resources/read", {"uri": "data://name"})
        assert read["contents"][0]["text"] == "Ada"
        assert client.rounds == 2


@async_test
async def test_an_answer_that_is_missing_or_no_object_is_asked_for_again() -> None:
    async with sessionless(asking()) as client:
        result = (await client.send("tools/call", {"name": "name"})).result
        for responses in ({}, {"user_name": 7}, {"other": {"action": "accept"}}):
            retry = {"requestState": result["requestState"], "inputResponses": responses}
            result = (await client.send("tools/call", {"name": "name", **retry})).result
            assert list(result["inputRequests"]) == ["user_name"]
        client.answers["elicitation/create"] = accept(name="Ada")
        final = (await client.send("tools/call", {"name": "name", **client.retry(result)})).result
        assert final["content"][0]["text"] == "Ada"


@async_test
async def test_a_client_whose_state_is_lost_may_send_its_answers_with_a_new_call() -> None:
    async with sessionless(asking()) as client:
        responses = {"user_name": {"action": "accept", "content": {"name": "Ada"}}, "unknown": {}}
        final = (await client.send("tools/call", {"name": "name", "inputResponses": responses})).result
        assert final["content"][0]["text"] == "Ada"
        refused = await client.send("tools/call", {"name": "name", "inputResponses": None})
        assert (refused.status, refused.error["code"]) == (400, -32602)


@async_test
async def test_progress_logs_and_capabilities_are_the_retrys() -> None:
    server = Server("x")

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.progress(1, 2)
        await ctx.info("before")
        await ctx.elicit("Who?", Name)
        await ctx.progress(2, 2)
        await ctx.info("after")
        await ctx.debug("a detail")
        return f"{ctx.meta['progressToken']} {ctx.session.capabilities.sampling}"

    async with sessionless(server) as client:
        client.answers["elicitation/create"] = accept(name="Ada")
        level = {f"{PREFIX}logLevel": "info"}
        first = await client.send("tools/call", {"name": "work", "_meta": {"progressToken": "one"}})
        assert [item["params"] for item in first.notifications] == [
            {"progressToken": "one", "progress": 1, "total": 2}
        ]
        client.meta[f"{PREFIX}clientCapabilities"] = {}
        meta = {"progressToken": "two", **level}
        last = await client.send("tools/call", {"name": "work", **client.retry(first.result), "_meta": meta})
        assert [item["params"] for item in last.notifications] == [
            {"progressToken": "two", "progress": 2, "total": 2},
            {"level": "info", "data": "after"},
        ]
        assert last.result["content"][0]["text"] == "two None"


@async_test
async def test_a_request_without_a_level_gets_no_log_messages() -> None:
    server = Server("x")

    @server.tool
    async def loud(ctx: Context) -> None:
        await ctx.log("emergency", "!")
        await ctx.log("warning", "?")

    async with sessionless(server) as client:
        assert (await client.send("tools/call", {"name": "loud"})).notifications == []
        for level, count in (("debug", 2), ("error", 1)):
            meta = {f"{PREFIX}logLevel": level}
            assert (
                len((await client.send("tools/call", {"name": "loud", "_meta": meta})).notifications) == count
            )


@async_test
async def test_a_page_to_open_has_no_id_here() -> None:
    server = Server("x")

    @server.tool
    async def pay(ctx: Context) -> str:
        answer: Elicited[None] = await ctx.elicit_url("Pay", "https://pay.example", key="pay")
        await ctx.session.elicitation_complete(answer.elicitation_id)
        return answer.action

    async with sessionless(server) as client:
        client.answers["elicitation/create"] = lambda _: {"action": "accept"}
        assert await client.text("pay") == "accept"
        assert client.asked[0]["params"] == {"mode": "url", "message": "Pay", "url": "https://pay.example"}


@async_test
async def test_a_server_that_stops_does_not_wait_for_parked_calls() -> None:
    server = asking()
    async with sessionless(server) as client:
        result = (await client.send("tools/call", {"name": "name"})).result
        assert result["resultType"] == "input_required"
        async with asyncio.timeout(server.settings.times.drain / 2):
            await server.engine.aclose()


# Missing capabilities


REQUIRED: dict[str, tuple[Json, Json]] = {
    "sample": ({}, {"sampling": {}}),
    "sample_tools": ({"sampling": {}}, {"sampling": {"tools": {}}}),
    "elicit": ({"sampling": {}}, {"elicitation": {}}),
    "elicit_form": ({"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
    "elicit_url": ({"elicitation": {}}, {"elicitation": {"url": {}}}),
    "roots": ({}, {"roots": {}}),
    "together": ({}, {"sampling": {}, "elicitation": {}}),
    "by_hand": ({}, {"roots": {}}),
}
"""The declared capabilities, and the missing ones in the error."""


def paths(required: Json) -> list[str]:
    """Return each capability by its path, such as `sampling.tools`."""
    return [".".join((name, *parts)) for name, parts in required.items()]


def needy() -> Server:
    server = Server("needy")

    async def together(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.sample("x"))
            group.create_task(ctx.elicit("x", Name))

    ways: dict[str, Any] = {
        "sample": lambda ctx: ctx.sample("x"),
        "sample_tools": lambda ctx: ctx.sample("x", tools=[]),
        "elicit": lambda ctx: ctx.elicit("x", Name),
        "elicit_form": lambda ctx: ctx.elicit("x", Name),
        "elicit_url": lambda ctx: ctx.elicit_url("x", "https://x.example"),
        "roots": lambda ctx: ctx.roots(),
        "together": together,
    }

    @server.tool
    async def need(what: str, ctx: Context) -> object:
        if what == "by_hand":
            return InputRequired(requests={"r": Want.roots()})
        return await ways[what](ctx)

    @server.prompt
    async def prompt(what: str, ctx: Context) -> object:
        return await need(what, ctx)

    @server.tool
    async def optional(ctx: Context) -> str:
        try:
            return (await ctx.sample("x")).text
        except CapabilityMissing:
            return "without"

    return server


@pytest.mark.parametrize("what", REQUIRED)
@async_test
async def test_an_ask_without_its_capability_is_refused_with_the_missing_capability(what: str) -> None:
    declared, required = REQUIRED[what]
    async with sessionless(needy(), capabilities=declared) as client:
        for method, name in (("tools/call", "need"), ("prompts/get", "prompt")):
            answered = await client.send(method, {"name": name, "arguments": {"what": what}})
            assert (answered.status, answered.error["code"]) == (400, -32021)
            assert answered.error["data"] == {"requiredCapabilities": required}
            message = answered.error["message"]
            assert all(f"`{path}`" in message for path in paths(required)), (
                "the message names it, as in a session"
            )


@async_test
async def test_a_handler_may_catch_a_missing_capability_and_a_session_gets_a_failed_result() -> None:
    server = needy()
    async with sessionless(server, capabilities={}) as client:
        assert await client.text("optional") == "without"
        peer = await connect(server)
        assert "did not declare" in await peer.failure("need", what="sample")


# By hand


def by_hand(runs: list[int]) -> Server:
    server = Server("by hand")

    @server.tool
    async def add(start: int, ctx: Context) -> str | InputRequired:
        runs.append(start)
        total = int(ctx.request_state or start)
        for answer in ctx.input_responses.values():
            total += answer["content"]["more"]
        if total < 10:
            shape = {"type": "object", "properties": {"more": {"type": "integer"}}}
            return InputRequired(requests={"more": Want.form(f"{total} so far", shape)}, state=str(total))
        return str(total)

    @server.prompt
    async def ask(ctx: Context) -> str | InputRequired:
        if "topic" not in ctx.input_responses:
            return InputRequired(requests={"topic": Want.sample("A topic?")})
        return f"About {ctx.input_responses['topic']['content']['text']}"

    @server.resource("data://roots")
    async def roots(ctx: Context) -> str | InputRequired:
        if ctx.request_state is None:
            return InputRequired(requests={"roots": Want.roots()}, state="asked")
        return str(len(ctx.input_responses["roots"]["roots"]))

    @server.tool
    async def insatiable() -> InputRequired:
        return InputRequired(requests={"roots": Want.roots()})

    return server


ANSWERS = {
    "elicitation/create": accept(more=4),
    "sampling/createMessage": say("bees"),
    "roots/list": lambda _: {"roots": [{"uri": "file:///a"}]},
}


@async_test
async def test_by_hand_a_handler_is_called_again_with_the_answers_and_its_state() -> None:
    runs: list[int] = []
    server = by_hand(runs)
    async with sessionless(server) as client:
        client.answers = dict(ANSWERS)
        assert await client.text("add", start=1) == "13"
        assert (client.rounds, runs) == (3, [1, 1, 1, 1])
        assert [ask["params"]["message"] for ask in client.asked] == ["1 so far", "5 so far", "9 so far"]
        prompt = await client.request("prompts/get", {"name": "ask"})
        assert prompt["messages"][0]["content"]["text"] == "About bees"
        read = await client.request("resources/read", {"uri": "data://roots"})
        assert read["contents"][0]["text"] == "1"
        assert server.engine.sessionless.parking.statistics().parked == 0, "nothing waits here meanwhile"


@async_test
async def test_the_same_source_works_in_a_session_by_ordinary_asks() -> None:
    server = by_hand([])
    async with connected(server, capabilities={"sampling": {}, "elicitation": {}, "roots": {}}) as peer:
        peer.answers = dict(ANSWERS)
        assert await peer.text("add", start=1) == "13"
        prompt = await peer.request("prompts/get", {"name": "ask"})
        assert prompt["messages"][0]["content"]["text"] == "About bees"
        read = await peer.request("resources/read", {"uri": "data://roots"})
        assert read["contents"][0]["text"] == "1"
        with pytest.raises(McpError, match="more than 16 rounds"):
            await peer.call("insatiable")


@async_test
async def test_a_tool_that_may_want_input_has_the_schema_of_its_result() -> None:
    server = Server("x")

    @server.tool
    async def count() -> int | InputRequired:
        return 1

    async with sessionless(server) as client:
        (tool,) = (await client.send("tools/list")).result["tools"]
        assert tool["outputSchema"]["properties"] == {"result": {"type": "integer"}}
        assert (await client.call("count"))["structuredContent"] == {"result": 1}


async def refused(client: SessionlessClient, params: Json) -> None:
    answered = await client.send("tools/call", params)
    assert (answered.status, answered.error["code"]) == (400, GONE)
    assert answered.error["message"].startswith("Invalid or expired requestState")


@async_test
async def test_state_that_is_tampered_with_foreign_or_of_another_call_is_refused_with_one_error() -> None:
    server = by_hand([])
    server.verifier = verifier
    async with sessionless(server, token="ada") as client:
        call = {"name": "add", "arguments": {"start": 1}}
        result = (await client.send("tools/call", call)).result
        client.answers = dict(ANSWERS)
        retry = client.retry(result)
        state = retry["requestState"]
        # Another first character: one that is fixed equals the state's own in one of 64 runs.
        changed = ("y" if state[0] == "x" else "x") + state[1:]
        for wrong in (state + "A", state[:-2], changed, "", "5", 5, None):
            await refused(client, {**call, **retry, "requestState": wrong})
        await refused(client, {"name": "add", "arguments": {"start": 2}, **retry})
        await refused(client, {"name": "insatiable", **retry})
        await refused(SessionlessClient(server, token="bob"), {**call, **retry})
        final = (await client.send("tools/call", {**call, **retry})).result
        assert final["resultType"] == "input_required", "none of that did it any harm"


@async_test
async def test_state_too_long_to_carry_is_the_handlers_fault() -> None:
    server = Server("x")

    @server.tool
    async def long() -> InputRequired:
        return InputRequired(state="x" * 20_000)

    @server.tool
    async def short(ctx: Context) -> str | InputRequired:
        return f"{len(ctx.request_state)}" if ctx.request_state else InputRequired(state="x" * 10_000)

    async with sessionless(server) as client:
        assert "state is limited to about" in await client.failure("long")
        assert await client.text("short") == "10000"


@async_test
async def test_pages_that_must_be_opened_first_are_asked_for_and_an_error_in_a_session() -> None:
    server = Server("x")
    been: list[str] = []

    @server.tool
    async def charge() -> str:
        if not been:
            raise UrlElicitationRequired(
                UrlElicitation(message="Sign in", url="https://in.example", elicitation_id="e1")
            )
        return "charged"

    def visit(_params: Json) -> Json:
        been.append("there")
        return {"action": "accept"}

    async with sessionless(server) as client:
        peer = await connect(server)
        with pytest.raises(McpError) as failed:
            await peer.call("charge")
        assert failed.value.code == -32042
        without = SessionlessClient(server, capabilities={})
        assert (await without.send("tools/call", {"name": "charge"})).error["code"] == -32021
        client.answers["elicitation/create"] = visit
        assert await client.text("charge") == "charged"
        assert client.asked[0]["params"]["url"] == "https://in.example"


@async_test
async def test_a_completion_cannot_ask() -> None:
    server = asking()

    @server.completion(prompt="about")
    async def complete(ctx: Context) -> list[str]:
        return [(await ctx.sample("what?")).text]

    async with sessionless(server) as client:
        ref = {"type": "ref/prompt", "name": "about"}
        params = {"ref": ref, "argument": {"name": "x", "value": ""}}
        answered = await client.send("completion/complete", params)
        assert answered.error["code"] == -32603
        assert "cannot ask for input" in answered.error["message"]
