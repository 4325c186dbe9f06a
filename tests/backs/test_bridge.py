"""Clients of both eras in front of servers of both eras: calls, questions, progress, logs, lists and subscriptions."""

import asyncio
from typing import Any

import pytest

from limpet import Context, McpError, Server
from tests.backs.behind import Behind, in_front
from tests.support import async_test, until

ERAS = ["sessions", "sessionless"]
CELLS = [(client, server) for client in ERAS for server in ERAS]
cells = pytest.mark.parametrize(("client_era", "server_era"), CELLS)


FORM: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}}


def a_server(started: asyncio.Event | None = None, ended: asyncio.Event | None = None) -> Server:
    started, ended = started or asyncio.Event(), ended or asyncio.Event()
    server = Server("the one behind", version="7", instructions="Ask me.")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @server.tool
    async def fail() -> str:
        """Fail."""
        raise ValueError("no such thing")

    @server.tool
    async def steps(ctx: Context) -> str:
        """Report progress and log."""
        for number in (1, 2, 2, 3):
            await ctx.progress(number, 3)
        await ctx.log("warning", "careful")
        await ctx.log("debug", "detail")
        return "done"

    @server.tool
    async def two_questions(ctx: Context) -> str:
        """Ask twice."""
        first = await ctx.elicit("first?", FORM)
        second = await ctx.elicit("second?", FORM)
        return f"{first.data} {second.data}"

    @server.tool
    async def five_samples(ctx: Context) -> str:
        """Ask the model five questions at once."""
        answers = await asyncio.gather(*(ctx.sample(str(n), max_tokens=5) for n in range(5)))
        return ",".join(answer.content.text for answer in answers)  # type: ignore[union-attr]

    @server.tool
    async def hang(ctx: Context) -> str:
        """Wait forever."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    @server.resource("memo://one")
    async def memo() -> str:
        """A memo."""
        return "text"

    @server.prompt
    async def hello(name: str) -> str:
        """Greet."""
        return f"Hello {name}"

    return server


@cells
@async_test
async def test_what_a_server_offers_reaches_clients_of_every_era(client_era: str, server_era: str) -> None:
    behind = Behind(a_server(), server_era)
    async with in_front(behind) as front, front.client(client_era) as client:
        assert client.agreed.server["name"] == "the one behind"
        assert client.agreed.instructions == "Ask me."
        assert "two_questions" in {tool.name for tool in await client.list_tools()}
        results = await asyncio.gather(*(client.call_tool("add", {"a": n, "b": 1}) for n in range(20)))
        assert [result.data for result in results] == [n + 1 for n in range(20)]
        failed = await client.call_tool("fail", raise_on_error=False)
        assert failed.is_error
        assert "no such thing" in failed.text
        assert (await client.request("resources/read", {"uri": "memo://one"}))["contents"][0][
            "text"
        ] == "text"
        assert (await client.get_prompt("hello", {"name": "Ada"})).messages


@cells
@async_test
async def test_two_rounds_of_questions_are_answered_in_every_combination_of_eras(
    client_era: str, server_era: str
) -> None:
    asked: list[str] = []

    def answer(question: Any) -> dict[str, Any]:
        asked.append(question.message)
        return {"text": question.message.upper()}

    behind = Behind(a_server(), server_era)
    async with in_front(behind) as front, front.client(client_era, elicitation=answer) as client:
        result = await client.call_tool("two_questions")
        assert result.text == "{'text': 'FIRST?'} {'text': 'SECOND?'}"
        assert asked == ["first?", "second?"]


@cells
@async_test
async def test_five_questions_at_once_get_their_own_answers(client_era: str, server_era: str) -> None:
    behind = Behind(a_server(), server_era)

    async def sample(question: Any) -> str:
        text: str = question.messages[0].content.text
        await asyncio.sleep(0.01 * (5 - int(text)))  # the answers come in the opposite order
        return f"<{text}>"

    async with in_front(behind) as front, front.client(client_era, sampling=sample) as client:
        assert (await client.call_tool("five_samples")).text == "<0>,<1>,<2>,<3>,<4>"


@cells
@async_test
async def test_two_clients_at_once_never_see_each_others_questions(client_era: str, server_era: str) -> None:
    server = Server("asker")

    @server.tool
    async def greet(name: str, ctx: Context) -> str:
        """Ask the user, with a question that has the name."""
        answer = await ctx.elicit(f"question {name}", FORM)
        return f"{name} {answer.data}"

    async def greeted(person: str) -> set[str]:
        seen: set[str] = set()

        def answer(question: Any) -> dict[str, Any]:
            seen.add(question.message)
            return {"text": question.message}

        async with front.client(client_era, elicitation=answer) as client:
            names = [f"{person}{number}" for number in range(3)]
            results = await asyncio.gather(*(client.call_tool("greet", {"name": name}) for name in names))
        assert [result.text for result in results] == [
            f"{name} {{'text': 'question {name}'}}" for name in names
        ]
        return seen

    async with in_front(Behind(server, server_era)) as front:
        assert [*await asyncio.gather(greeted("a"), greeted("b"))] == [
            {f"question {person}{number}" for number in range(3)} for person in "ab"
        ]


@pytest.mark.parametrize("server_era", ERAS)
@async_test
async def test_a_question_that_the_client_refuses_is_an_error_at_the_server(server_era: str) -> None:
    def refuse(_question: Any) -> dict[str, Any]:
        raise McpError(-32042, "not now")

    behind = Behind(a_server(), server_era)
    async with in_front(behind) as front, front.client("sessions", elicitation=refuse) as client:
        try:
            result = await client.call_tool("two_questions", raise_on_error=False)
            text = result.text
        except McpError as error:
            text = error.message
        assert "not now" in text


@cells
@async_test
async def test_progress_has_the_clients_token_and_rises_and_logs_obey_the_clients_level(
    client_era: str, server_era: str
) -> None:
    seen: list[float] = []
    logs: list[str] = []
    behind = Behind(a_server(), server_era)
    async with (
        in_front(behind) as front,
        front.client(client_era, on_log=lambda message: logs.append(message["data"])) as client,
    ):
        await client.set_log_level("info")
        result = await client.call_tool("steps", progress=lambda done, *_: seen.append(done))
        assert result.text == "done"
        await until(lambda: len(logs) == 1)
        assert seen == [1, 2, 3]
        assert logs == ["careful"]


@cells
@async_test
async def test_a_cancelled_call_is_cancelled_at_the_server(client_era: str, server_era: str) -> None:
    started, ended = asyncio.Event(), asyncio.Event()
    behind = Behind(a_server(started, ended), server_era)
    async with in_front(behind) as front, front.client(client_era) as client:
        call = asyncio.ensure_future(client.call_tool("hang"))
        await started.wait()
        call.cancel()
        await ended.wait()
        assert (await client.call_tool("add", {"a": 1, "b": 1})).data == 2


@cells
@async_test
async def test_changes_of_lists_and_of_subscribed_resources_reach_the_client(
    client_era: str, server_era: str
) -> None:
    server = a_server()
    behind = Behind(server, server_era)
    async with (
        in_front(behind) as front,
        front.client(client_era) as client,
        client.listen(tools=True, resources=["memo://one"]) as changes,
    ):
        await server.resource_updated("memo://one")
        change = await anext(changes)
        assert (change.kind, change.uri) == ("resource", "memo://one")
        server.add_tool(lambda: "new", name="new")
        assert (await anext(changes)).kind == "tools"


@pytest.mark.parametrize(
    ("client_era", "server_era"), [("sessions", "sessionless"), ("sessionless", "sessions")]
)
@async_test
async def test_tasks_between_eras_are_not_offered_and_refused(client_era: str, server_era: str) -> None:
    behind = Behind(a_server(), server_era)
    async with in_front(behind) as front, front.client(client_era) as client:
        assert "tasks" not in str(client.agreed.capabilities)
        with pytest.raises(McpError, match="Method not found: tasks/get") as refused:
            await client.request("tasks/get", {"taskId": "t"})
        assert ("2025-11-25" in refused.value.message) == (client_era == "sessionless")


@async_test
async def test_a_2025_client_gets_the_result_itself_and_the_servers_error_for_a_tool_that_is_only_a_task() -> (
    None
):
    server = a_server()

    @server.tool(task="required")
    async def long() -> str:
        """Run as a task."""
        return "long"

    async with in_front(Behind(server, "sessionless")) as front, front.client("sessions") as client:
        as_task = {"name": "add", "arguments": {"a": 1, "b": 2}, "task": {"ttl": 60_000}}
        assert (await client.request("tools/call", as_task))["structuredContent"] == {"result": 3}
        with pytest.raises(McpError) as refused:
            await client.call_tool("long")
        assert refused.value.code == -32021


@async_test
async def test_a_2026_client_follows_a_task_of_a_2026_server() -> None:
    server = a_server()

    @server.tool(task="required")
    async def long() -> str:
        """Run as a task."""
        return "long"

    async with in_front(Behind(server, "sessionless")) as front, front.client("sessionless") as client:
        assert (await client.call_tool("long")).text == "long"
