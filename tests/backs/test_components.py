"""Components under other names, and hidden ones: for functions of this process and for servers behind, in all combinations of eras."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, Final

import msgspec
import pytest

from limpet import Client, Context, Server, Settings
from limpet.backs.components import ComponentTable
from limpet.backs.shown import IsHidden, shown_back
from limpet.client import Task
from limpet.config import Times
from limpet.content import ResourceLink
from limpet.engine.access import Access
from limpet.engine.caller import Caller
from limpet.errors import ConfigError, McpError
from limpet.protocol.types import PromptReference, ResourceReference
from limpet.testing import NotingObserver
from limpet.wire.jsonrpc import Request
from tests.backs.behind import Behind, in_front
from tests.support import async_test, until, virtual_test, virtual_test_within

TABLE: Final = ComponentTable(
    hide_tools=["delete_*", "unregistered"],
    rename_tools={"search": "find", "get_*": "fetch_*"},
    hide_resources=["note://secret/*"],
    rename_resources={"note://*": "desk://*"},
    only_prompts=["draft", "letter"],
    rename_prompts={"letter": "mail"},
)
SESSION, SESSIONLESS = "2025-11-25", "2026-07-28"
BACKS: Final = ("native", SESSION, SESSIONLESS)
everywhere = pytest.mark.parametrize("back", BACKS)
both = pytest.mark.parametrize("version", [SESSION, SESSIONLESS])


class Desk(Server):
    def __init__(self) -> None:
        super().__init__("desk")
        self.ran: list[str] = []
        _tools(self)
        _others(self)


def _tools(desk: Desk) -> None:
    @desk.tool
    def search(word: str) -> str:
        return f"found {word}"

    @desk.tool
    def get_one() -> str:
        return "one"

    @desk.tool
    def find() -> str:
        """Has the name that `search` gets."""
        desk.ran.append("find")
        return "the other"

    @desk.tool
    def delete_all() -> str:
        desk.ran.append("delete_all")
        return "gone"

    @desk.tool
    def get_link() -> ResourceLink:
        return ResourceLink(uri="note://open", name="open")

    @desk.tool
    async def get_answer(ctx: Context) -> str:
        asked = await ctx.elicit("who?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return f"{asked.action} {(asked.data or {}).get('name')}"

    @desk.tool
    async def get_slowly() -> str:
        await asyncio.sleep(600)
        return "slow"


def _others(desk: Desk) -> None:
    @desk.resource("note://open")
    def opened() -> str:
        return "open"

    @desk.resource("note://secret/key")
    def key() -> str:
        desk.ran.append("key")
        return "secret"

    @desk.resource("note://box/{name}")
    def box(name: str) -> str:
        return f"box {name}"

    @desk.resource("note://secret/{name}")
    def vault(name: str) -> str:
        desk.ran.append("vault")
        return f"vault {name}"

    @desk.prompt
    def draft(topic: str) -> str:
        return f"Write about {topic}"

    @desk.prompt
    def letter(topic: str) -> str:
        return f"A letter about {topic}"

    @desk.prompt
    def plot() -> str:
        desk.ran.append("plot")
        return "plot"

    @desk.completion(prompt="letter")
    def topics(value: str) -> list[str]:
        return [f"{value}-letter"]

    @desk.completion(resource="note://box/{name}")
    def boxes(value: str) -> list[str]:
        return [f"{value}-box"]


@asynccontextmanager
async def connected(
    back: str, version: str, table: ComponentTable = TABLE, settings: Settings | None = None, **options: Any
) -> AsyncIterator[tuple[Client, Desk]]:
    desk = Desk()
    if back == "native":
        desk.components = table
        if settings is not None:
            desk.settings = settings
        async with Client(desk, protocol_version=version, **options) as client:
            yield client, desk
        return
    async with (
        in_front(Behind(desk, back), settings=settings, components=table) as front,
        front.client(version, **options) as client,
    ):
        yield client, desk


async def answer(client: Client, method: str, params: dict[str, Any]) -> str:
    try:
        return str(await client.request(method, params))
    except McpError as error:
        return f"{error.code} {error.message} {error.data}"


def user(_asked: object) -> dict[str, str]:
    return {"name": "Ada"}


@everywhere
@both
@virtual_test
async def test_clients_see_the_names_of_the_table_and_no_hidden_component(back: str, version: str) -> None:
    async with connected(back, version, elicitation=user) as (client, desk):
        tools = {tool.name for tool in await client.list_tools()}
        assert tools == {"find", "fetch_one", "fetch_link", "fetch_answer", "fetch_slowly"}
        assert {str(one.uri) for one in await client.list_resources()} == {"desk://open"}
        assert {one.uri_template for one in await client.list_resource_templates()} == {"desk://box/{name}"}
        assert {one.name for one in await client.list_prompts()} == {"draft", "mail"}
        assert (await client.call_tool("find", {"word": "x"})).text == "found x"
        assert (await client.call_tool("fetch_one")).text == "one"
        # An ask parks the call of 2026-07-28 by its name: the retry must find it.
        assert (await client.call_tool("fetch_answer")).text == "accept Ada"
        link = (await client.call_tool("fetch_link")).content[0]
        assert isinstance(link, ResourceLink)
        assert link.uri == "desk://open"
        for uri, text in (("desk://open", "open"), ("desk://box/a", "box a")):
            (content,) = await client.read_resource(uri)
            assert (content.uri, getattr(content, "text", "")) == (uri, text)
        prompt = await client.get_prompt("mail", {"topic": "x"})
        assert prompt.messages[0].content.text == "A letter about x"  # type: ignore[union-attr]
        completed = await client.complete(PromptReference(name="mail"), "topic", "x")
        assert completed.values == ["x-letter"]
        completed = await client.complete(ResourceReference(uri="desk://box/{name}"), "name", "x")
        assert completed.values == ["x-box"]
        assert desk.ran == []


@everywhere
@both
@virtual_test
async def test_a_hidden_component_answers_like_an_unknown_one(back: str, version: str) -> None:
    requests: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
        ("tools/call", "name", ("delete_all", "search", "get_one"), "nothing"),
        ("prompts/get", "name", ("plot", "letter"), "nothing"),
        ("resources/read", "uri", ("note://secret/key", "desk://secret/key", "note://open"), "none:x"),
        (
            "resources/read",
            "uri",
            ("desk://secret/x", "desk://box/../secret/x", "desk://secret%2Fkey"),
            "none:x",
        ),
    )
    async with connected(back, version) as (client, desk):
        for method, member, hidden, unknown in requests:
            expected = await answer(client, method, {member: unknown})
            for name in hidden:
                assert await answer(client, method, {member: name}) == expected.replace(unknown, name), name
        for ref in (
            {"type": "ref/prompt", "name": "plot"},
            {"type": "ref/resource", "uri": "desk://secret/{name}"},
        ):
            member = "name" if "name" in ref else "uri"
            unknown = "none:{name}" if member == "uri" else "nothing"
            params: dict[str, Any] = {"argument": {"name": "name", "value": "x"}}
            expected = await answer(
                client, "completion/complete", {**params, "ref": {**ref, member: unknown}}
            )
            assert await answer(client, "completion/complete", {**params, "ref": ref}) == expected.replace(
                unknown, ref[member]
            )
        with pytest.raises(McpError):
            await client.request("desk/anything", {})
        assert desk.ran == []


@everywhere
@both
@virtual_test
async def test_subscriptions_have_the_uris_of_clients(back: str, version: str) -> None:
    async with connected(back, version) as (client, desk):
        async with client.listen(resources=["desk://open"]) as changes:
            await desk.resource_updated("note://secret/key")
            await desk.resource_updated("note://open")
            change = await anext(changes)
            assert (change.kind, change.uri) == ("resource", "desk://open")
        if version == SESSION:
            expected = await answer(client, "resources/subscribe", {"uri": "none:x"})
            hidden = await answer(client, "resources/subscribe", {"uri": "desk://secret/key"})
            assert hidden == expected.replace("none:x", "desk://secret/key")


@everywhere
@both
@virtual_test
async def test_a_changed_list_is_read_again_under_the_names_of_clients(back: str, version: str) -> None:
    async with connected(back, version) as (client, desk):
        before = {tool.name for tool in await client.list_tools()}
        async with client.listen(tools=True) as changes:
            desk.tool(name="get_two")(lambda: "two")
            desk.tool(name="delete_two")(lambda: "no")
            assert (await anext(changes)).kind == "tools"
        assert {tool.name for tool in await client.list_tools(fresh=True)} - before == {"fetch_two"}


@everywhere
@pytest.mark.parametrize("client", [SESSION, "tasks"])
@virtual_test_within(10_000)
async def test_a_renamed_tool_is_handed_over(back: str, client: str) -> None:
    version = SESSIONLESS if client == "tasks" else client
    settings = Settings(hand_over="off", hand_over_tools={"fetch_slowly": 45}, times=Times(task_poll=5))
    async with connected(back, version, settings=settings, timeout=10_000) as (caller, _):
        if client == "tasks":
            caller.declare_tasks()
            task = await caller.start_tool("fetch_slowly")
            assert isinstance(task, Task)
            assert (await task.result()).text == "slow"
        else:
            assert (await caller.call_tool("fetch_slowly")).text == "slow"


@async_test
async def test_a_new_connection_behind_has_the_subscriptions_of_its_session() -> None:
    desk = Desk()
    behind = Behind(desk, SESSION)
    async with (
        in_front(behind, components=TABLE) as front,
        front.client(SESSION) as client,
        client.listen(resources=["desk://open"]) as changes,
    ):
        await behind.break_links()
        await until(lambda: behind.living == 0)
        assert (await client.call_tool("fetch_one")).text == "one"
        # It reports every subscribed resource.
        assert (await anext(changes)).uri == "desk://open"
        await desk.resource_updated("note://open")
        assert (await anext(changes)).uri == "desk://open"


@virtual_test
async def test_a_component_whose_name_another_one_got_is_reported_once() -> None:
    async with in_front(Behind(Desk(), SESSION), components=TABLE) as front, front.client() as client:
        for _ in range(2):
            await client.list_tools(fresh=True)
        assert [(note["kind"], note["name"]) for note in front.notes.named("component.shadowed")] == [
            ("tools", "find")
        ]


def listing(back: Any, is_hidden: IsHidden | None, notes: NotingObserver) -> Callable[[str], bytes]:
    """Return a function that sends a request to a back with some names."""
    table = ComponentTable(rename_tools={"a*": "b*"})
    shown = shown_back(back, table.naming(), is_hidden, notes)

    def ask(method: str) -> bytes:
        async def answered() -> bytes:
            exchange: Any = SimpleNamespace(inner=Request(1, method, {}), caller=Caller(""))
            return await shown.handle(exchange)

        return asyncio.run(answered())

    return ask


def test_a_server_that_lists_other_names_again_and_again_is_reported_a_bounded_number_of_times() -> None:
    notes, found = NotingObserver(), list[dict[str, Any]]()

    async def handle(_exchange: object) -> bytes:
        return msgspec.json.encode({"tools": found})

    ask = listing(SimpleNamespace(handle=handle, access=Access()), None, notes)
    for start in range(0, 3_000, 500):
        found[:] = [{"name": f"b{number}"} for number in range(start, start + 500)]
        ask("tools/list")
    assert len(notes.named("component.shadowed")) == 1_000


def test_a_list_from_which_a_caller_may_not_see_all_is_private_and_an_unknown_request_is_refused() -> None:
    async def handle(_exchange: object) -> bytes:
        return b'{"tools":[{"name":"one"},{"name":"two"}],"ttlMs":5,"cacheScope":"public"}'

    back = SimpleNamespace(handle=handle, access=Access())
    for is_hidden, scope, count in (
        (None, "public", 2),
        (lambda _kind, name, _caller: name == "two", "private", 1),
    ):
        ask = listing(back, is_hidden, NotingObserver())
        found = msgspec.json.decode(ask("tools/list"))
        assert (found["cacheScope"], len(found["tools"])) == (scope, count)
        with pytest.raises(McpError, match="Method not found"):
            ask("extension/tools/call")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"hide_tools": "one"}, "not one text"),
        ({"hide_tools": [""]}, "none of them is empty"),
        ({"rename_tools": {"a*": "b"}}, "one \\* each"),
        ({"rename_tools": {"a**": "b**"}}, "one \\* each"),
        ({"rename_tools": {"a": ""}}, "write two names"),
        ({"rename_tools": {"a": "x", "b": "x"}}, "two rows give the name 'x'"),
        ({"hide_resources": ["http://[x/*"]}, "plain letters of ASCII"),
    ],
)
def test_a_table_that_cannot_work_is_refused(rows: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ComponentTable(**rows)


@pytest.mark.parametrize(
    ("rows", "outer", "inner"),
    [
        ({"rename_tools": {"*": "gh_*"}}, {"a": "gh_a", "gh_a": "gh_gh_a"}, {"gh_a": "a", "a": None}),
        # All names belong to those that lose the prefix.
        ({"rename_tools": {"gh_*": "*"}}, {"gh_a": "a", "b": None}, {"a": "gh_a"}),
        # A row without a * counts first.
        (
            {"rename_tools": {"get_*": "fetch_*", "get_x": "y"}},
            {"get_x": "y", "get_z": "fetch_z"},
            {"fetch_x": "fetch_x", "get_x": None},
        ),
        # The name of a hidden component is free.
        ({"rename_tools": {"a": "b"}, "hide_tools": ["a"]}, {"a": None, "b": "b"}, {"b": "b", "a": None}),
        # Two components change their names.
        ({"rename_tools": {"a": "b", "b": "a"}}, {"a": "b", "b": "a"}, {"a": "b", "b": "a"}),
        ({"only_tools": ["a*"], "hide_tools": ["ab"]}, {"a": "a", "ab": None, "b": None}, {"b": None}),
    ],
)
def test_names_are_found_in_both_directions(
    rows: dict[str, Any], outer: dict[str, str | None], inner: dict[str, str | None]
) -> None:
    naming = ComponentTable(**rows).naming()
    for name, shown in outer.items():
        assert naming.outer("tools", name) == shown
        if shown is not None:
            assert naming.inner("tools", shown) == name
    for name, own in inner.items():
        assert naming.inner("tools", name) == own


@pytest.mark.parametrize(
    ("uri", "is_shown"),
    [
        ("file:///docs/a", True),
        ("file:///docs/a?b#c", True),
        ("http://docs.example/a", True),
        ("file:///docs/../etc/passwd", False),
        ("file:///docs/%2e%2e/etc/passwd", False),
        ("file:///docs/private/a", False),
        ("FILE:///docs//private/a", False),
        ("file:///docs/pri%76ate/a", False),
        ("file:///etc/passwd", False),
        ("file:///docs/\x00", False),
    ],
)
def test_a_resource_is_hidden_in_every_spelling(uri: str, is_shown: bool) -> None:
    table = ComponentTable(
        only_resources=["file:///docs/*", "http://docs.example/*"], hide_resources=["file:///docs/private/*"]
    )
    assert table.naming().inner("resources", uri) == (uri if is_shown else None)
