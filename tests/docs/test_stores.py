"""The store of docs/stores.md is the one that the tests of rules use, keeps the contract, and serves."""

import ast
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from limpet import Client, Server
from tests import dicts
from tests.docs.test_examples import ROOT, blocks, run
from tests.support import async_test

STORES = ROOT / "docs" / "stores.md"
SHOWN = [block for block in blocks(STORES) if block.info == "python"]


def _page() -> ModuleType:
    """Run the Python blocks of the page."""
    module = ModuleType("stores_page")
    sys.modules[module.__name__] = module
    for block in SHOWN:
        run(block, STORES, module)
    return module


PAGE = _page()
TestDictStore: Any = PAGE.TestDictStore


def test_the_page_shows_the_backend_as_it_is() -> None:
    [first] = [number for number, block in enumerate(SHOWN) if "import defaultdict" in block.text]
    shown = ast.parse("\n".join(block.text for block in SHOWN[first:-1]))
    file = ast.parse(Path(dicts.__file__).read_text())
    docstring, *code = file.body
    assert ast.unparse(shown) == ast.unparse(ast.Module(code, type_ignores=[]))
    assert isinstance(docstring, ast.Expr)


@async_test
async def test_the_store_of_the_page_serves_clients_with_and_without_sessions() -> None:
    server = Server("dicts", store=PAGE.DictStore())

    @server.tool
    async def double(number: int) -> int:
        return 2 * number

    for version in ("2025-11-25", "2026-07-28"):
        async with Client(server, protocol_version=version) as client:
            assert (await client.call_tool("double", {"number": 21})).text == "42"
