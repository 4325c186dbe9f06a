"""docs/from-fastmcp.md: every name of FastMCP and `mcp` has a row, and both servers of the page answer alike."""

import asyncio
import inspect
import json
import re
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import pytest

from limpet import Client, Context, Server
from limpet.options import PromptOptions, ResourceOptions, ToolOptions
from limpet.types import ElicitFormParams
from tests.client.servers import PATIENT
from tests.support import async_test

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "from-fastmcp.md").read_text()
NAMES: Final = """
import inspect, json
try:
    from fastmcp import Context, FastMCP as Server
except ImportError:
    try:
        from mcp.server.fastmcp import Context, FastMCP as Server
    except ImportError:
        from mcp.server.mcpserver import Context, MCPServer as Server
from pydantic import BaseModel
own = lambda kind: sorted(n for n in dir(kind) if n[0] != "_" and not hasattr(BaseModel, n))
of = lambda call: [n for n in inspect.signature(call).parameters if n not in ("self", "kwargs")]
print(json.dumps({
    "### `@mcp.tool`": of(Server.tool), "### `@mcp.resource`": of(Server.resource), "### `@mcp.prompt`": of(Server.prompt),
    "## The context": own(Context), "## The server": of(Server.__init__), "### Its methods": own(Server),
}))
"""
PEERS: Final = ("fastmcp", "mcp1", "mcp2")


def rows(heading: str) -> dict[str, str]:
    """Return the names of a table and the text beside each."""
    section = re.split(r"^#{2,3} ", PAGE.split(f"\n{heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    found: dict[str, str] = {}
    for there, here in re.findall(r"^\| (`[^|]*`) \| (.*) \|$", section, re.MULTILINE):
        found |= dict.fromkeys(re.findall(r"`(\w+)`", there), here)
    return found


@pytest.mark.parametrize("peer", PEERS)
def test_every_name_has_a_row(peer: str) -> None:
    python = ROOT / ".peers" / peer / "bin" / "python"
    found = json.loads(subprocess.run([python, "-c", NAMES], capture_output=True, check=True).stdout)
    known_elsewhere = rows("## The server").keys()
    for heading, names in found.items():
        missing = set(names) - rows(heading).keys()
        if heading == "### Its methods":
            missing -= known_elsewhere
        assert not missing, f"{heading} has no row for {', '.join(sorted(missing))} of {peer}"


@pytest.mark.parametrize(
    ("heading", "kind"), [("## The context", Context), ("### Its methods", Server)], ids=["context", "server"]
)
def test_a_name_that_is_the_same_exists_here(heading: str, kind: type) -> None:
    for name, here in rows(heading).items():
        if here.startswith("same"):
            assert name in dir(kind), name


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("### `@mcp.tool`", ToolOptions.__annotations__),
        ("### `@mcp.resource`", {"uri", *ResourceOptions.__annotations__}),
        ("### `@mcp.prompt`", PromptOptions.__annotations__),
        ("## The server", inspect.signature(Server).parameters),
    ],
)
def test_an_option_that_is_the_same_exists_here(heading: str, names: Collection[str]) -> None:
    for name, here in rows(heading).items():
        if here.startswith("same") and name != "name_or_fn":
            assert name in names, name


def blocks() -> tuple[str, str]:
    """Return the source of the server before and after."""
    before, after = re.findall(r"```python[^\n]*\n(.*?)```", PAGE, re.DOTALL)
    return before, after


async def interviewed(client: Client) -> dict[str, Any]:
    """Return everything that a client sees of the server."""
    async with client:
        tools = await client.list_tools()
        return {
            "tools": {tool.name: (tool.description, set(tool.input_schema["properties"])) for tool in tools},
            "hints": [tool.name for tool in tools if tool.annotations and tool.annotations.read_only_hint],
            "price": (await client.call_tool("price", {"dish": "soup", "count": 2})).data,
            "order": (await client.call_tool("order", {"dish": "soup"})).text,
            "menu": (await client.read_resource("menu://monday"))[0].text,
            "prompt": [
                (message.role, getattr(message.content, "text", None))
                for message in (await client.get_prompt("recommend", {"guest": "Ada"})).messages
            ],
        }


@async_test
async def test_both_servers_of_the_page_answer_alike(tmp_path: Path) -> None:
    before, after = blocks()
    program = tmp_path / "before.py"
    program.write_text(before + "\nmcp.run(show_banner=False)\n")
    names: dict[str, Any] = {}
    exec(compile(after, "after.py", "exec"), names)  # noqa: S102 - the page's own source

    def user(asked: object) -> dict[str, object]:
        assert isinstance(asked, ElicitFormParams)
        return {"count": 3}

    python = str(ROOT / ".peers" / "fastmcp" / "bin" / "python")
    # FastMCP cannot ask a client of 2026-07-28 with `ctx.elicit`.
    there, here, newer = await asyncio.gather(
        interviewed(
            Client([python, str(program)], elicitation=user, protocol_version="sessions", times=PATIENT)
        ),
        interviewed(Client(names["server"], elicitation=user, protocol_version="sessions")),
        interviewed(Client(names["server"], elicitation=user, protocol_version="sessionless")),
    )
    assert there == here == newer
    assert here["order"] == "3 × soup"
