"""Everything a client's author expects, by every way to a server and in both eras."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest

from limpet import Client, Context, Image, McpError, Server, Settings, Times, ToolError
from limpet.client import InputNeeded
from limpet.client.targets import Target
from limpet.client.tasks import Task
from limpet.errors import CallTimeout
from limpet.protocol.params import PromptReference
from tests.client.servers import PATIENT, SERVE, has_begun, small_listening
from tests.client.small import Weather, server
from tests.support import BOUND, async_test, until

WAYS: Final = ("inside", "stdio", "http")
ERAS: Final = ("sessions", "sessionless")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with small_listening() as url:
        yield url


@pytest.fixture(params=[(way, era) for way in WAYS for era in ERAS], ids="-".join)
def place(request: pytest.FixtureRequest, url: str) -> tuple[Target, str]:
    way, era = request.param
    targets: dict[str, Target] = {"inside": server, "stdio": [*SERVE, "--stdio"], "http": url}
    return targets[way], era


Place = tuple[Target, str]


@contextlib.asynccontextmanager
async def connected(place: Place, **options: Any) -> AsyncIterator[Client]:
    target, era = place
    async with Client(target, protocol_version=era, timeout=BOUND, times=PATIENT, **options) as client:
        yield client


@async_test
async def test_results_are_typed(place: Place) -> None:
    async with connected(place) as client:
        result = await client.call_tool("weather", {"city": "Oslo"}, type=Weather)
        assert result.data == Weather(city="Oslo", degrees=21.5)
        assert result.structured_content == {"city": "Oslo", "degrees": 21.5}
        assert (await client.call_tool("add", {"a": 2, "b": 3})).data == 5
        assert (await client.call_tool("add", {"a": 2, "b": 3}, type=int)).data == 5


@async_test
async def test_a_tools_failure_is_raised_unless_the_caller_wants_to_see_it(place: Place) -> None:
    async with connected(place) as client:
        with pytest.raises(ToolError, match="it broke"):
            await client.call_tool("fail")
        result = await client.call_tool("fail", raise_on_error=False)
        assert (result.is_error, result.text) == (True, "it broke")
        with pytest.raises((McpError, ToolError)):
            await client.call_tool("no such tool")


@async_test
async def test_progress_and_log_messages_arrive_in_order(place: Place) -> None:
    logged: list[Any] = []
    told: list[tuple[float, float | None, str | None]] = []

    async def slowly(progress: float, total: float | None, message: str | None) -> None:
        await asyncio.sleep(0)
        told.append((progress, total, message))

    async with connected(place, on_log=logged.append) as client:
        assert (await client.call_tool("steps", {"n": 5}, progress=slowly)).text == "done"
        assert [progress for progress, _, _ in told] == [0, 1, 2, 3, 4]
        assert [message["data"] for message in logged] == ["done"]


@async_test
async def test_a_timeout_cancels_the_call_at_the_server(place: Place) -> None:
    async with connected(place) as client:
        name, begun = f"timeout {place}", False
        while not begun:  # A loaded machine gives a call up before it has begun.
            with pytest.raises(CallTimeout):
                await client.call_tool("wait", {"name": name, "seconds": 60}, timeout=0.3)
            begun = bool((await client.call_tool("has_begun", {"name": name})).data)
        await _until_cancelled(client, name)


@async_test
async def test_cancelling_the_await_cancels_the_call_at_the_server_and_no_other(place: Place) -> None:
    async with connected(place) as client:
        name = f"cancel {place}"
        doomed = asyncio.create_task(client.call_tool("wait", {"name": name, "seconds": 60}))
        other = asyncio.create_task(client.call_tool("wait", {"name": "other", "seconds": 0.5}))
        await has_begun(client, name)
        await has_begun(client, "other")
        doomed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await doomed
        assert (await other).text == "other"
        await _until_cancelled(client, name)


async def _until_cancelled(client: Client, name: str) -> None:
    async def is_cancelled() -> bool:
        return bool((await client.call_tool("was_cancelled", {"name": name})).data)

    await until(is_cancelled)


@async_test
async def test_resources_prompts_and_completion_are_read(place: Place) -> None:
    async with connected(place) as client:
        assert [resource.uri for resource in await client.list_resources()] == ["small://thing"]
        assert [part.text for part in await client.read_resource("small://thing")] == ["a thing"]
        assert await client.list_resource_templates() == []
        assert [prompt.name async for prompt in client.prompts()] == ["greet"]
        prompt = await client.get_prompt("greet", {"name": "Ada"})
        assert "Hello Ada" in str(prompt.messages)
        completion = await client.complete(PromptReference(name="greet"), "name", "A")
        assert completion.values == ["Ada", "Alan"]
        await client.ping()


@async_test
async def test_changes_are_listened_to(place: Place) -> None:
    async with connected(place) as client:
        async with client.listen(tools=True, resources=["small://thing"]) as changes:
            await client.call_tool("change")
            seen = {(await anext(changes)).kind, (await anext(changes)).kind}
        assert seen == {"tools", "resource"}


@async_test
async def test_a_call_that_becomes_a_task_is_waited_for(place: Place) -> None:
    async with connected(place, sampling=lambda _asked: "well indeed") as client:
        assert (await client.call_tool("compute", {"seconds": 0.1})).text == "computed"
        assert (await client.call_tool("survey")).text == "well indeed"


@async_test
async def test_progress_of_a_task_comes_from_its_status() -> None:
    server = Server("s", settings=Settings(times=Times(task_poll=0.05)))

    @server.tool(task="optional")
    async def cook(ctx: Context, message: str | None = None) -> str:
        for step in range(3):
            await ctx.progress(step, total=3, message=message)
        return "done"

    told: list[tuple[float, float | None, str | None]] = []
    async with Client(server, protocol_version="sessionless") as client:
        for message, last in ((None, (2.0, 3.0, None)), ("stir", (1, None, "stir"))):
            result = await client.call_tool(
                "cook", {"message": message}, progress=lambda *report: told.append(report)
            )
            assert (result.text, told[-1]) == ("done", last)


@async_test
async def test_log_messages_arrive_unless_the_client_wants_none() -> None:
    server = Server("s")

    @server.tool
    async def talk(ctx: Context) -> str:
        await ctx.debug("quiet")
        await ctx.info("loud")
        return "done"

    for era in ("auto", "sessions", "sessionless"):
        logged: list[Any] = []
        noted: list[str] = []
        async with Client(server, on_log=logged.append, protocol_version=era) as client:
            await client.call_tool("talk")
            assert [message["data"] for message in logged] == ["loud"]
            await client.set_log_level("debug")
            await client.call_tool("talk")
            assert [message["data"] for message in logged[1:]] == ["quiet", "loud"]
        async with Client(
            server, on_notification=lambda *note, noted=noted: noted.append(note[0]), protocol_version=era
        ) as client:
            await client.call_tool("talk")
        assert noted == ["notifications/message"]


@async_test
async def test_the_repr_of_a_result_shows_its_value_or_its_error() -> None:
    server = Server("s")
    server.add_tool(lambda: ["Soup", Image(b"x")], name="plate")
    server.add_tool(lambda: Image(b"x"), name="picture")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    async with Client(server, raise_on_error=False) as client:
        assert repr(await client.call_tool("add", {"a": 1, "b": 2})) == "<ToolCallResult 3>"
        assert "Invalid arguments for add" in repr(await client.call_tool("add"))
        assert repr(await client.call_tool("add")).startswith("<ToolCallResult error '")
        assert repr(await client.call_tool("plate")) == "<ToolCallResult 'Soup' ImageContent>"
        assert repr(await client.call_tool("picture")) == "<ToolCallResult None ImageContent>"


@async_test
async def test_a_task_can_be_polled_and_cancelled_by_hand(url: str) -> None:
    async with connected((url, "sessionless")) as client:
        task = await client.start_tool("compute", {"seconds": 60})
        assert isinstance(task, Task)
        again = client.task(task.id)
        assert (await again.poll()).status == "working"
        await again.cancel()
        with pytest.raises(McpError):
            await again.result()
        quick = await client.start_tool("compute", {"seconds": 0}, type=str)
        assert isinstance(quick, Task)
        assert (await quick.result()).data == (await client.task(quick.id).result()).text == "computed"


@async_test
async def test_in_manual_mode_the_caller_answers(url: str) -> None:
    def never(_asked: object) -> str:
        raise AssertionError("the handler is not asked")

    async with connected((url, "sessionless"), sampling=never, auto_input=False) as client:
        wanted = await client.start_tool("fanout", {"n": 1})
        assert isinstance(wanted, InputNeeded)
        answer = {"role": "assistant", "content": {"type": "text", "text": "by hand"}, "model": "me"}
        responses = dict.fromkeys(wanted.requests, answer)
        result = await client.start_tool("fanout", {"n": 1}, after=wanted, responses=responses)
        assert not isinstance(result, Task | InputNeeded)
        assert result.text == "by hand"


@async_test
async def test_one_call_too_deep_into_questions_is_ended(url: str) -> None:
    async with connected((url, "sessionless"), sampling=lambda _asked: "yes") as client:
        result = await client.call_tool("interrogate", {"n": 40, "at_once": 20})
        assert result.data == 40
