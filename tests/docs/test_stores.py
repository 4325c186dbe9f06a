"""The store of docs/stores.md keeps the required part of the contract, and serves."""

import sys
from types import ModuleType
from typing import Any

from holdfast import Client, Server
from tests.docs.test_examples import ROOT, blocks, run
from tests.support import async_test


def _page() -> ModuleType:
    """Run the Python blocks of the page."""
    page = ROOT / "docs" / "stores.md"
    module = ModuleType("stores_page")
    sys.modules[module.__name__] = module
    for block in blocks(page):
        if block.info == "python":
            run(block, page, module)
    return module


PAGE = _page()
TestTinyStore: Any = PAGE.TestTinyStore


@async_test
async def test_the_store_of_the_page_serves_clients_with_and_without_sessions() -> None:
    server = Server("tiny", store=PAGE.TinyStore())

    @server.tool
    async def double(number: int) -> int:
        return 2 * number

    for version in ("2025-11-25", "2026-07-28"):
        async with Client(server, protocol_version=version) as client:
            assert (await client.call_tool("double", {"number": 21})).text == "42"
