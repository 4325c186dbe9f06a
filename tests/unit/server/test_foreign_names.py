"""Names of FastMCP and `mcp`: the error names ours, and ours exists."""

import re
from typing import Any

import pytest

from limpet import Client, Context, Server, SessionView, ToolAnnotations
from limpet.context import State
from limpet.server.context.foreign_names import FOREIGN_CONTEXT, FOREIGN_SERVER
from tests.support import async_test
from tests.unit.server.peer import connected

_KNOWN = {"ctx": Context, "server": Server, "client": Client}
_PARTS = {"state": State, "session": SessionView, "server": Server}


@pytest.mark.parametrize("ours", [*FOREIGN_CONTEXT.values(), *filter(None, FOREIGN_SERVER.values())])
def test_the_name_that_replaces_a_foreign_one_exists(ours: str) -> None:
    found = re.findall(r"\b(ctx|server|client)\.(\w+)(?:\.(\w+))?", ours)
    for start, name, further in found:
        assert hasattr(_KNOWN[start], name), ours
        if further:
            assert hasattr(_PARTS[name], further), ours
    assert found or ours.startswith(("limpet.", "@server.", "Server(")), ours


@pytest.mark.parametrize("name", FOREIGN_CONTEXT)
def test_a_foreign_name_of_the_context_is_not_one_of_ours(name: str) -> None:
    assert not hasattr(Context, name)


@pytest.mark.parametrize("name", FOREIGN_SERVER)
def test_a_foreign_name_of_the_server_is_not_one_of_ours(name: str) -> None:
    assert name not in dir(Server)


@async_test
async def test_the_errors_name_ours() -> None:
    server = Server("s")
    messages: list[str] = []

    @server.tool
    async def foreign(ctx: Context) -> str:
        for name in ("set_state", "unknown"):
            try:
                getattr(ctx, name)
            except AttributeError as error:
                messages.append(str(error))
        return "done"

    async with connected(server) as peer:
        await peer.call("foreign")
    assert messages == [
        "'Context' object has no attribute 'set_state'; use await ctx.state.set(key, value)",
        "'Context' object has no attribute 'unknown'",
    ]
    with pytest.raises(AttributeError, match=re.escape("use server.include(other, prefix=…)")):
        getattr(server, "mount")  # noqa: B009 - a type checker would refuse the name
    with pytest.raises(AttributeError, match="serves a FastMCP object unchanged"):
        getattr(server, "from_openapi")  # noqa: B009 - a type checker would refuse the name
    assert not hasattr(server, "anything")


def test_names_that_are_imported_or_passed_name_ours() -> None:
    with pytest.raises(ImportError, match="limpet has no FastMCP: write `from limpet import Server`"):
        exec("from limpet import FastMCP", {})  # noqa: S102 - an import that a type checker refuses
    options: dict[str, Any] = {"auth": None, "stateless_http": True, "json_response": True}
    for name, value in options.items():
        with pytest.raises(TypeError, match=f"Server has no argument '{name}'; use "):
            Server("s", **{name: value})
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        Server("s", colour="red")  # type: ignore[call-arg]


def test_a_subclass_may_have_arguments_of_these_names() -> None:
    class Mine(Server):
        def __init__(self, auth: str) -> None:
            super().__init__(f"mine {auth}")

    assert Mine(auth="x").name == "mine x"


def test_hints_of_a_tool_that_are_options_elsewhere_name_the_annotations() -> None:
    for name in ("readOnlyHint", "read_only_hint", "destructiveHint", "idempotentHint", "openWorldHint"):
        options: dict[str, Any] = {"name": "t", name: True}
        with pytest.raises(TypeError, match=r"use annotations=ToolAnnotations\(\w+_hint=True\)"):
            Server("s").add_tool(lambda: 1, **options)


def test_annotations_of_a_tool_may_be_a_dict_in_either_spelling() -> None:
    for annotations in (
        {"readOnlyHint": True},
        {"read_only_hint": True},
        ToolAnnotations(read_only_hint=True),
    ):
        server = Server("s")
        server.add_tool(lambda: 1, name="t", annotations=annotations)  # type: ignore[arg-type]
        assert server.tools.entries["t"].listed.annotations == ToolAnnotations(read_only_hint=True)
    with pytest.raises(TypeError, match="did you mean 'read_only_hint'"):
        Server("s").add_tool(lambda: 1, name="t", annotations={"readonlyhint": True})  # type: ignore[arg-type]
