"""Each kind of message between a client and several servers at one address reaches the right one, under the names that clients know."""

import asyncio
from typing import Any, Final

import pytest

from limpet import Client, Context, Server
from limpet.backs.components import ComponentTable
from limpet.config import Limits, Settings
from limpet.content import EmbeddedResource, ResourceLink, TextResourceContents
from limpet.errors import OUTCOME_UNKNOWN, ConfigError, McpError
from limpet.protocol.types import Result
from limpet.server.authoring.middleware import CallNext, Middleware, MiddlewareRequest
from limpet.server.running.native_back import NativeBack
from limpet.testing import NotingObserver
from limpet.types import PromptReference, ResourceReference
from tests.backs.several.parts import ERAS, Part, client_of, made_of, server_of
from tests.support import until, virtual_test_within

parts_test = virtual_test_within(600)
TWO: Final = ("a", "b")


def two() -> dict[str, Part]:
    return {name: Part(server_of(name, "say")) for name in TWO}


@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_all_components_are_listed_and_answer_under_their_names(era: str) -> None:
    async with made_of(two()) as server, client_of(server, era) as client:
        assert [tool.name for tool in await client.list_tools()] == ["a_say", "b_say"]
        assert [prompt.name for prompt in await client.list_prompts()] == ["a_ask", "b_ask"]
        assert [one.uri for one in await client.list_resources()] == ["note://a/a", "note://b/b"]
        templates = [one.uri_template for one in await client.list_resource_templates()]
        assert templates == ["a://a/{topic}", "b://b/{topic}"]
        for name in TWO:
            assert (await client.call_tool(f"{name}_say")).text == f"{name}.say"
            (read,) = await client.read_resource(f"note://{name}/{name}")
            assert (read.uri, read.text) == (f"note://{name}/{name}", f"the note of {name}")
            (made,) = await client.read_resource(f"{name}://{name}/x")
            assert (made.uri, made.text) == (f"{name}://{name}/x", f"{name} about x")
            prompt = await client.get_prompt(f"{name}_ask", {"topic": "x"})
            assert f"ask {name} about x" in str(prompt.messages[0].content)
            found = await client.complete(PromptReference(name=f"{name}_ask"), "topic", "t")
            assert found.values == [f"{name} t"]


@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_a_name_that_no_part_can_have_is_unknown(era: str) -> None:
    async with made_of(two()) as server, client_of(server, era) as client:
        for request in (
            client.call_tool("say"),
            client.get_prompt("c_ask"),
            client.read_resource("note://c/c"),
            client.complete(ResourceReference(uri="c://{topic}"), "topic"),
        ):
            with pytest.raises(McpError):
                await request


@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_lists_have_pages_of_all_parts_at_once(era: str) -> None:
    def paged(name: str, count: int) -> Part:
        server = Server(name, settings=Settings(limits=Limits(page_size=2)))
        for number in range(count):
            server.add_tool(lambda: "", name=f"t{number}")
        return Part(server)

    async with (
        made_of({"a": paged("a", 5), "b": paged("b", 3), "c": paged("c", 1)}) as server,
        client_of(server, era) as client,
    ):
        pages: list[list[str]] = []
        cursor = None
        while cursor is not None or not pages:
            result = await client.request("tools/list", {} if cursor is None else {"cursor": cursor})
            pages.append([tool["name"] for tool in result["tools"]])
            cursor = result.get("nextCursor")
        assert pages == [
            ["a_t0", "a_t1", "b_t0", "b_t1", "c_t0"],
            ["a_t2", "a_t3", "b_t2"],
            ["a_t4"],
        ]
        with pytest.raises(McpError):
            await client.request("tools/list", {"cursor": "x"})


@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_descriptions_are_joined(era: str) -> None:
    own = Server("all", instructions="All of them.", version="7", observer=NotingObserver())
    async with made_of(two(), own) as server, client_of(server, era) as client:
        agreed = client.agreed
        assert agreed.server["name"] == "all"
        assert agreed.instructions == (
            "All of them.\n\n## a (names: a_…)\n\nI am a.\n\n## b (names: b_…)\n\nI am b."
        )
        for kind in ("tools", "prompts", "resources"):
            assert agreed.capabilities[kind]["listChanged"] is True
        assert agreed.capabilities["resources"]["subscribe"] is True
        assert "completions" in agreed.capabilities


@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_the_uris_in_results_can_be_read(era: str) -> None:
    parts = two()

    @parts["a"].server.tool("link")
    def link() -> list[Any]:
        contents = TextResourceContents(uri="note://a", text="inside")
        return [ResourceLink(uri="note://a", name="note"), EmbeddedResource(resource=contents)]

    async with made_of(parts) as server, client_of(server, era) as client:
        linked, embedded = (await client.call_tool("a_link")).content
        assert isinstance(linked, ResourceLink)
        assert isinstance(embedded, EmbeddedResource)
        assert (linked.uri, embedded.resource.uri) == ("note://a/a", "note://a/a")
        assert (await client.read_resource(linked.uri))[0].text == "the note of a"


@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_progress_questions_and_messages_belong_to_their_call(era: str) -> None:
    parts = two()
    for name, part in parts.items():

        @part.server.tool("work")
        async def work(ctx: Context, name: str = name) -> str:
            await ctx.progress(1, 2, name)
            await ctx.info(f"from {name}")
            answer = await ctx.elicit(f"who asks {name}?", str)
            return f"{name} got {answer.data}"

    said: list[tuple[str, float, str | None]] = []
    logged: list[object] = []

    async def on_log(message: dict[str, Any]) -> None:
        logged.append(message["data"])

    async def answer(question: Any) -> Any:
        return {"value": question.message}

    async def call(client: Client, name: str) -> str:
        async def progress(done: float, total: float | None, message: str | None) -> None:
            said.append((name, done, message))

        return (await client.call_tool(f"{name}_work", progress=progress)).text

    async with (
        made_of(parts) as server,
        client_of(server, era, elicitation=answer, on_log=on_log) as client,
    ):
        results = await asyncio.gather(*(call(client, name) for name in TWO))
        assert results == ["a got who asks a?", "b got who asks b?"]
        await until(lambda: len(said) == len(logged) == 2)
        assert sorted(said) == [("a", 1, "a"), ("b", 1, "b")]
        assert sorted(map(str, logged)) == ["from a", "from b"]


def test_progress_with_a_question_reaches_the_part_that_asked_under_its_own_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[tuple[str, object, object]] = []

    async def hear(back: NativeBack, _session: object, method: str, params: dict[str, Any]) -> None:
        if method == "notifications/progress" and back.server_info.name in TWO:
            heard.append((back.server_info.name, params["progressToken"], params["message"]))

    monkeypatch.setattr(NativeBack, "notify", hear)
    two_parts_ask()
    assert sorted(map(str, heard)) == ["('a', 1, 'a')", "('b', 1, 'b')"]


@parts_test
async def two_parts_ask() -> None:
    parts = two()
    for name, part in parts.items():

        @part.server.tool("ask")
        async def ask(ctx: Context, name: str = name) -> str:
            question = {"message": name, "requestedSchema": {"type": "object", "properties": {}}}
            await ctx._exchange.ask("elicitation/create", {**question, "_meta": {"progressToken": 1}})
            return name

    async def answer(question: Any) -> Any:
        for token in (question.meta["progressToken"], 1, "x/1"):
            said = {"progressToken": token, "progress": 1, "message": question.message}
            await client.notify("notifications/progress", said)
        return {}

    async with made_of(parts) as server, client_of(server, "sessions", elicitation=answer) as client:
        await asyncio.gather(*(client.call_tool(f"{name}_ask") for name in TWO))
        await asyncio.sleep(60)  # All messages have arrived: the time is virtual.


@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_a_cancellation_reaches_the_part_that_runs_the_call(era: str) -> None:
    parts = two()
    events: list[str] = []
    for name, part in parts.items():

        @part.server.tool("wait")
        async def wait(name: str = name) -> str:
            events.append(f"{name} runs")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                events.append(f"{name} was cancelled")
                raise
            return ""

    async with made_of(parts) as server, client_of(server, era) as client:
        calls = {name: asyncio.create_task(client.call_tool(f"{name}_wait")) for name in TWO}
        await until(lambda: len(events) == 2)
        calls["b"].cancel()
        await until(lambda: "b was cancelled" in events)
        assert "a was cancelled" not in events
        calls["a"].cancel()
        await until(lambda: "a was cancelled" in events)


@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_changes_of_each_part_are_reported_under_the_names_of_clients(era: str) -> None:
    parts = two()
    uri = "note://b/b"
    async with made_of(parts) as server, client_of(server, era) as client:
        async with client.listen(tools=True, prompts=True, resources=[uri]) as changes:
            found: list[tuple[str, str]] = []

            async def follow() -> None:
                async for change in changes:
                    found.append((change.kind, change.uri))  # noqa: PERF401 - read while it grows

            following = asyncio.create_task(follow())

            async def is_heard(change: tuple[str, str]) -> bool:
                await parts["b"].server.resource_updated("note://b")
                return change in found

            await until(lambda: is_heard(("resource", uri)), every=0.5)
            assert ("tools", "") not in found
            parts["a"].server.add_tool(lambda: "", name="new")
            await until(lambda: ("tools", "") in found)
            assert ("resource", "note://b") not in found
            following.cancel()
        assert "a_new" in [tool.name for tool in await client.list_tools(fresh=True)]


@parts_test
async def test_the_log_level_reaches_every_part_also_one_that_comes_later() -> None:
    parts = two()
    for name, part in parts.items():

        @part.server.tool("log")
        async def log(ctx: Context, name: str = name) -> str:
            await ctx.log("debug", f"debug of {name}")
            await ctx.log("error", f"error of {name}")
            return ""

    logged: list[object] = []

    async def on_log(message: dict[str, Any]) -> None:
        logged.append(message["data"])

    parts["b"].place.gate.is_down = True
    async with made_of(parts) as server, client_of(server, "sessions", on_log=on_log) as client:
        await client.set_log_level("error")
        parts["b"].place.gate.is_down = False
        for name in TWO:
            await client.call_tool(f"{name}_log")
        await until(lambda: len(logged) >= 2)
        assert logged == ["error of a", "error of b"]
        await client.set_log_level("debug")
        await client.call_tool("b_log")
        await until(lambda: len(logged) == 4)


@parts_test
async def test_tasks_of_each_part_are_found_by_their_ids() -> None:
    parts = two()
    for name, part in parts.items():

        @part.server.tool("later", task="required")
        async def later(name: str = name) -> str:
            return f"{name} is done"

    async with made_of(parts) as server, client_of(server, "sessionless") as client:
        for name in TWO:
            assert (await client.call_tool(f"{name}_later")).text == f"{name} is done"
            task = await client.start_tool(f"{name}_later")
            assert task.id.startswith(f"{name}/")  # type: ignore[union-attr]
        with pytest.raises(McpError):
            await client.request("tasks/get", {"taskId": "a/unknown"})
        with pytest.raises(McpError):
            await client.request("tasks/get", {"taskId": "c/unknown"})


@parts_test
async def test_each_part_has_its_own_connection_for_each_session() -> None:
    parts = two()
    async with made_of(parts) as server:
        async with client_of(server, "sessions"), client_of(server, "sessions"):
            assert [part.place.living for part in parts.values()] == [2, 2]
        await until(lambda: all(part.place.living == 0 for part in parts.values()))


@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_a_slow_call_of_a_part_is_handed_over_under_its_name(era: str) -> None:
    go = asyncio.Event()
    parts = two()

    @parts["a"].server.tool("slow")
    async def slow() -> str:
        await go.wait()
        return "at last"

    notes = NotingObserver()
    own = Server("all", observer=notes, hand_over=5)
    async with made_of(parts, own) as server, client_of(server, era) as client:
        listed = [tool.name for tool in await client.list_tools()]
        assert listed[:-1] == ["a_say", "a_slow", "b_say"]
        call = asyncio.create_task(client.call_tool("a_slow"))
        await until(lambda: [facts["tool"] for facts in notes.named("call.handed_over")] == ["a_slow"])
        go.set()
        assert "at last" in (await call).text


def test_what_cannot_be_included_is_refused() -> None:
    server, part = Server("all"), Part(server_of("a"))
    server.include(part, "a")
    for other, prefix, name, said in (
        (part, "b", None, "is served or included already"),
        (Part(server_of("b")), "a", None, "are named 'a'"),
        (Part(server_of("b")), "A", "b", "have the prefix 'A'"),
        (Part(server_of("b")), "a b", None, "the prefix 'a b' is invalid"),
        (Part(server_of("b"), verifier=_verify), "b", None, "has a verifier"),
        (server, None, None, "it would include itself"),
    ):
        with pytest.raises(ConfigError, match=said):
            server.include(other, prefix, name=name)
    with pytest.raises(ConfigError, match="there are servers behind it"):
        Server("outer").include(server)
    stateless = Server("stateless", settings=Settings(stateless=True))
    stateless.include(Part(server_of("c")), "c")
    with pytest.raises(ConfigError, match="cannot be stateless"):
        _ = stateless.engine


async def _verify(_token: str) -> None:
    return None


@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_middleware_of_the_whole_is_around_all_parts_and_that_of_a_part_around_its_own(
    era: str,
) -> None:
    seen: list[tuple[str, str, object]] = []

    def noting(who: str) -> Middleware:
        async def note(request: MiddlewareRequest, call_next: CallNext) -> Result:
            if request.method in {"tools/call", "tools/list"}:
                seen.append((who, request.method, request.params.get("name")))
            return await call_next(request)

        return note

    own = Server("all", observer=NotingObserver())
    own.add_tool(lambda: "own", name="own")
    own.middleware(noting("all"))
    parts = two()
    parts["b"].middleware(noting("b"))
    async with made_of(parts, own) as server, client_of(server, era) as client:
        await client.list_tools()
        assert seen == [("all", "tools/list", None), ("b", "tools/list", None)]
        for name in ("own", "a_say", "b_say"):
            seen.clear()
            await client.call_tool(name)
            inner = [("b", "tools/call", "say")] if name == "b_say" else []
            assert seen == [("all", "tools/call", name), *inner]


@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_a_part_that_dies_in_the_middle_of_a_call_ends_its_own_calls_only(era: str) -> None:
    parts, began = two(), asyncio.Event()

    @parts["a"].server.tool("wait")
    async def wait() -> str:
        began.set()
        await asyncio.Event().wait()
        return ""

    @parts["b"].server.tool("slow")
    async def slow() -> str:
        await asyncio.sleep(30)
        return "b goes on"

    async with made_of(parts) as server, client_of(server, era) as client:
        lost, other = (asyncio.create_task(client.call_tool(name)) for name in ("a_wait", "b_slow"))
        await began.wait()
        await parts["a"].place.break_links()
        with pytest.raises(McpError) as ended:
            await lost
        assert ended.value.code == OUTCOME_UNKNOWN
        assert (await other).text == "b goes on"
        assert (await client.call_tool("a_say")).text == "a.say"


@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_a_hidden_or_renamed_component_is_reached_by_no_other_way(era: str) -> None:
    table = ComponentTable(
        hide_tools=["secret"],
        rename_tools={"say": "speak"},
        hide_prompts=["ask"],
        hide_resources=["note://a", "a://*"],
    )
    own = Server("all", observer=NotingObserver(), hand_over=5)
    own.components = ComponentTable(rename_tools={"a_speak": "talk"})
    part = Part(server_of("a", "say", "secret"), components=table)
    async with made_of({"a": part}, own) as server, client_of(server, era) as client:
        assert [tool.name for tool in await client.list_tools()] == ["talk", "collect"]
        assert not await client.list_prompts()
        assert not await client.list_resources()
        assert not await client.list_resource_templates()
        assert (await client.call_tool("talk")).text == "a.say"
        uris = ("note://a/a", "NOTE://A/a", "note://a/%61", "a://a/x", "A://a/x", "a:a/x")
        reference = {"type": "ref/resource", "uri": "a://a/{topic}"}
        prompt = {"type": "ref/prompt", "name": "a_ask"}
        asked = {"argument": {"name": "topic", "value": ""}}
        requests: tuple[tuple[str, dict[str, Any]], ...] = (
            *(("tools/call", {"name": name}) for name in ("a_speak", "a_say", "say", "speak", "a_secret")),
            ("tools/call", {"name": "a_secret", "task": {}}),
            ("prompts/get", {"name": "a_ask"}),
            *(("resources/read", {"uri": uri}) for uri in uris),
            ("resources/subscribe", {"uri": uris[0]}),
            *(("completion/complete", {"ref": ref, **asked}) for ref in (reference, prompt)),
            ("completion/complete", {"ref": {**reference, **prompt}, **asked}),
        )
        for method, params in requests:
            with pytest.raises(McpError, match=r"(Unknown|not found)"):
                await client.request(method, params)
