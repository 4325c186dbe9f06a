"""The scopes of one of several servers at one address count for its components only."""

import asyncio
from typing import Any

import pytest

from limpet import Principal, Server
from limpet.backs.components import ComponentTable
from limpet.backs.proxy.scopes import ScopeTable
from limpet.backs.several.access import joined_access
from limpet.config import HttpSettings, Settings
from limpet.engine.caller import Caller
from limpet.errors import ConfigError, LimpetError, McpError
from limpet.testing import NotingObserver
from tests.backs.several.parts import ERAS, Part, client_of, made_of, server_of
from tests.support import virtual_test_within

parts_test = virtual_test_within(600)
TABLE = ScopeTable(
    tools={"say": ["talk"], "secret": ["inner"]}, resources={"note://*": ["notes"]}, hidden=["inner"]
)
ADA = Principal(subject="ada", scopes=frozenset())
BOB = Principal(subject="bob", scopes=frozenset({"talk", "inner", "notes"}))


def parts() -> dict[str, Part]:
    return {
        "a": Part(server_of("a", "say", "secret"), scopes=TABLE),
        "b": Part(server_of("b", "say", "secret")),
    }


@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_a_scope_of_one_part_is_needed_for_its_own_components(era: str) -> None:
    async with made_of(parts()) as server:
        async with client_of(server, era, principal=ADA) as client:
            assert [tool.name for tool in await client.list_tools()] == ["a_say", "b_say", "b_secret"]
            assert (await client.call_tool("b_say")).text == "b.say"
            assert (await client.read_resource("note://b/b"))[0].text == "the note of b"
            for refused in (
                client.call_tool("a_say"),
                client.call_tool("a_secret"),
                client.read_resource("note://a/a"),
            ):
                with pytest.raises(LimpetError):
                    await refused
        async with client_of(server, era, principal=BOB) as client:
            assert "a_secret" in [tool.name for tool in await client.list_tools()]
            assert (await client.call_tool("a_secret")).text == "a.secret"
            assert (await client.read_resource("note://a/a"))[0].text == "the note of a"


@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_without_prefixes_a_name_that_two_parts_may_have_needs_the_scopes_of_both(era: str) -> None:
    async with made_of(parts(), prefixed=False) as server:
        async with client_of(server, era, principal=ADA) as client:
            with pytest.raises(LimpetError):
                await client.call_tool("say")
        async with client_of(server, era, principal=BOB) as client:
            assert (await client.call_tool("say")).text == "a.say"


HIDING: dict[str, dict[str, Any]] = {
    "by a scope": {"scopes": ScopeTable(tools={"s*t": ["x"]}, resources={"note:*": ["x"]}, prompts={"ask": ["x"]}, hidden=["x"])},
    "by a table": {"components": ComponentTable(hide_tools=["s*t"], hide_resources=["note:*"], hide_prompts=["ask"])},
}  # fmt: skip


@pytest.mark.parametrize("hiding", HIDING)
@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_a_hidden_component_of_a_part_is_answered_as_an_unknown_one(era: str, hiding: str) -> None:
    part = Part(server_of("a", "secret"), **HIDING[hiding])
    async with made_of({"a": part}) as server, client_of(server, era, principal=ADA) as client:

        async def said(method: str, member: str, name: str) -> tuple[int, str]:
            with pytest.raises(McpError) as refused:
                await client.request(method, {member: name})
            return refused.value.code, refused.value.message

        for method, member, hidden, unknown in (
            ("tools/call", "name", "a_secret", "a_public"),
            ("prompts/get", "name", "a_ask", "a_say"),
            ("resources/read", "uri", "note://a/a", "nope://a/a"),
            ("resources/read", "uri", "NOTE://A/%61", "NOPE://A/%61"),
        ):
            code, text = await said(method, member, unknown)
            # The server's own name of it: without the prefix.
            own, other = (
                name.replace("/A", "").replace("/a", "", 1).removeprefix("a_") for name in (hidden, unknown)
            )
            assert other in text
            assert await said(method, member, hidden) == (code, text.replace(other, own))


@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_a_hidden_component_needs_the_scopes_of_its_own_part_as_an_unknown_one_does(era: str) -> None:
    table = ScopeTable(server=["first"], tools={"secret": ["inner"]}, hidden=["inner"])
    two = {
        "a": Part(server_of("a", "secret"), scopes=table),
        "b": Part(server_of("b", "say"), scopes=ScopeTable(server=["second"])),
    }
    bob = Principal(subject="bob", scopes=frozenset({"second"}))
    async with made_of(two) as server, client_of(server, era, principal=bob) as client:
        assert (await client.call_tool("b_say")).text == "b.say"
        for name in ("a_secret", "a_unknown"):
            with pytest.raises(McpError, match=r"Insufficient scope: .* first second"):
                await client.call_tool(name)
        assert server.engine.access.basic() == frozenset()


@pytest.mark.parametrize("era", ERAS)
@parts_test
async def test_the_scopes_of_the_whole_are_needed_for_all_parts(era: str) -> None:
    own = Server("all", scopes={"team"}, observer=NotingObserver())
    own.add_tool(lambda: "own", name="own")
    native = Server("native")
    native.add_tool(lambda: "native", name="say")
    own.include(native, "native")
    names = {"own": "own", "native_say": "native", "b_say": "b.say"}
    requests = [("tools/call", {"name": name}) for name in names]
    if era == "sessionless":
        requests.append(("tasks/get", {"taskId": "b/x~y"}))
    async with made_of(parts(), own) as server:
        async with client_of(server, era, principal=ADA) as client:
            for method, params in requests:
                with pytest.raises(McpError, match=r"Insufficient scope: .* team"):
                    await client.request(method, params)
        team = Principal(subject="cyd", scopes=frozenset({"team", "talk"}))
        async with client_of(server, era, principal=team) as client:
            for name, text in names.items():
                assert (await client.call_tool(name)).text == text
            assert (await client.call_tool("a_say")).text == "a.say"
        access = server.engine.access
        assert access.basic() == {"team"}
        # Another replica, which has not seen the call, lets its client resume.
        other = joined_access(server.back.members, lambda _: ())  # type: ignore[attr-defined]
        assert other.marked(f"s{access.mark(frozenset({'team', 'talk'}))}", Caller("", team)) is not None


def test_scopes_need_a_verifier_of_the_whole() -> None:
    server = Server("all")
    server.include(Part(server_of("a"), scopes=TABLE), "a")
    with pytest.raises(ConfigError, match="has no verifier"):
        server.front(HttpSettings())


def _slow(name: str) -> Server:
    server = server_of(name)

    async def slow() -> str:
        await asyncio.sleep(100)
        return f"{name}.slow"

    server.add_tool(slow, name="slow")
    return server


@pytest.mark.parametrize("of_the_whole", [(), ("team",)])
@pytest.mark.parametrize("era", ["sessions", "sessionless", "tasks"])
@parts_test
async def test_the_result_of_a_slow_call_of_a_part_needs_the_scopes_of_this_part_only(
    era: str, of_the_whole: tuple[str, ...]
) -> None:
    both = {
        "a": Part(_slow("a"), scopes=ScopeTable(server=["first"])),
        "b": Part(_slow("b"), scopes=ScopeTable(server=["second"])),
    }
    own = Server("all", scopes=set(of_the_whole), settings=Settings(hand_over=10), observer=NotingObserver())
    bob = Principal(subject="bob", scopes=frozenset({*of_the_whole, "second"}))
    other = Principal(subject="bob", scopes=frozenset({*of_the_whole, "first"}))
    version = "sessions" if era == "sessions" else "sessionless"
    declared: dict[str, Any] = {"capabilities": {"extensions": {}}} if era == "tasks" else {}
    async with made_of(both, own) as server, client_of(server, version, principal=bob, **declared) as client:
        if era == "tasks":
            client.declare_tasks()
        answer = await client.request("tools/call", {"name": "b_slow"})
        ticket = answer.get("taskId") or answer.get("structuredContent", {}).get("ticket")
        if ticket is not None:
            method, params = (
                ("tasks/get", {"taskId": ticket})
                if era == "tasks"
                else ("tools/call", {"name": "collect", "arguments": {"ticket": ticket}})
            )
            async with client_of(server, version, principal=other, **declared) as refused:
                with pytest.raises(McpError, match=r"Insufficient scope: .* second"):
                    await refused.request(method, params)
            assert "error" not in await client.request(method, params)
        assert (await client.call_tool("b_slow")).text == "b.slow"
