"""Objects of fastmcp 4 and `mcp` 2 as parts of a server: of a file, and of one that includes them in code. And objects without components."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from limpet import Client, LimpetError
from tests.interop.behind import APPS, app, environment, limpet
from tests.interop.peers import LOG, serving
from tests.support import BOUND, async_test

ERAS: Final = ("sessions", "sessionless")
FILE: Final = f"""
[servers.fast]
object = "{app("fastmcp")}"
path = "/fast/mcp"
hide_tools = ["die"]
rename_tools = {{ add = "plus" }}

[servers.two]
object = "{app("mcp2")}"

[servers.empty]
object = "{APPS / "included.py"}:empty"
path = "/empty/mcp"

[servers.low]
object = "{APPS / "included.py"}:low"

[servers.nothing]
object = "{APPS / "included.py"}:nothing"

[servers.own]
object = "{app("mcp2", "own")}"
path = "/own/mcp"

[servers.whole]
servers = ["fast", "two", "empty", "low", "nothing"]

[servers.code]
object = "{APPS / "included.py"}"
"""
WARNING: Final = "it has no tools, resources and prompts: is the module imported that registers them?"


class Gateway:
    """The port of a process that serves the file, and its output."""

    def __init__(self, port: int, log: Path) -> None:
        self.port = port
        self.log = log

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{name}/mcp"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    directory = tmp_path_factory.mktemp("parts")
    file = directory / "limpet.toml"
    file.write_text(FILE)
    with serving(directory, environment(), str(file), command=limpet("fastmcp", "serve")) as port:
        yield Gateway(port, directory / LOG)


def test_an_object_without_components_is_served_with_a_warning(gateway: Gateway) -> None:
    shown = gateway.log.read_text()
    by_server = dict(re.findall(r"^(\w+)\S*(?: \S+)?: (.*\n(?:  .*\n)*)", shown, re.MULTILINE))
    assert f"  warning   {WARNING}" in by_server["empty"]
    for name in ("empty", "low", "nothing"):
        assert f"  behind    {name}: warning: {WARNING}" in by_server["whole"]
    assert shown.count(WARNING) == 4


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("whole", "add", "other"), [("whole", "plus", "add"), ("code", "add", "plus")])
@async_test
async def test_hosted_objects_are_parts_of_a_server(
    gateway: Gateway, whole: str, add: str, other: str, era: str
) -> None:
    async def answer(question: Any) -> dict[str, str]:
        return {"name": question.message}

    async def sample(request: Any) -> str:
        return str(request.messages[-1].content.text)

    async with Client(
        gateway.url(whole), protocol_version=era, elicitation=answer, sampling=sample, timeout=BOUND
    ) as client:
        names = {tool.name for tool in await client.list_tools()}
        assert {f"fast_{add}", "two_add", "two_die"} <= names
        assert not {f"fast_{other}", "add", *(["fast_die"] if add == "plus" else [])} & names
        for tool in (f"fast_{add}", "two_add"):
            assert (await client.call_tool(tool, {"a": 1, "b": 2})).text == "3"
        with pytest.raises(LimpetError, match=other):
            await client.call_tool(f"fast_{other}", {"a": 1, "b": 2})
        asked = [client.call_tool(f"{part}_greet", {"color": part}) for part in ("fast", "two")]
        assert [result.text for result in await asyncio.gather(*asked)] == [
            f"{part} question {part} about {part}" for part in ("fast", "two")
        ]
        seen: list[float] = []

        async def progress(done: float, _total: float | None, _message: str | None) -> None:
            seen.append(done)

        assert (await client.call_tool("two_ticks", {"n": 3}, progress=progress)).text == "3 ticks"
        assert seen == [1, 2, 3]


@async_test
async def test_an_object_with_an_address_of_its_own_may_be_a_part_too(gateway: Gateway) -> None:
    async with (
        Client(gateway.url("fast"), timeout=BOUND) as alone,
        Client(gateway.url("whole"), timeout=BOUND) as part,
    ):
        assert (await alone.call_tool("plus", {"a": 1, "b": 2})).text == "3"
        assert (await part.call_tool("fast_plus", {"a": 1, "b": 2})).text == "3"


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_an_object_with_a_run_of_its_own_is_run_by_it(gateway: Gateway, era: str) -> None:
    async with Client(gateway.url("own"), protocol_version=era, timeout=BOUND) as client:
        assert (await client.call_tool("add")).text == "True"
