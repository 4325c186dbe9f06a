"""Names of FastMCP and `mcp`: the error names ours, and ours exists."""

import re

import pytest

from holdfast import Client, Context, Server, SessionView
from holdfast.context import State
from holdfast.server.context.foreign_names import FOREIGN_CONTEXT, FOREIGN_SERVER
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
    assert found or ours.startswith(("holdfast.", "@server.", "Server(")), ours


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
