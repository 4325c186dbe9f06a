"""The official SDKs' servers, found out by themselves: era, session, calls."""

import asyncio

import pytest

from limpet import Client
from tests.client.servers import PATIENT, peer_command, peer_listening
from tests.support import BOUND, async_test


@pytest.mark.parametrize("way", ["stdio", "http"])
@pytest.mark.parametrize(("peer", "version"), [("mcp1", "2025-11-25"), ("mcp2", "2026-07-28")])
@async_test
async def test_the_newest_version_of_an_official_server_is_found_and_calls_run_side_by_side(
    peer: str, version: str, way: str
) -> None:
    async def converse(target: str | list[str]) -> None:
        async with Client(target, timeout=BOUND, times=PATIENT) as client:
            assert client.agreed.version == version
            assert {tool.name for tool in await client.list_tools()} == {"fanout", "echo"}
            texts = [str(number) for number in range(50)]
            results = await asyncio.gather(*(client.call_tool("echo", {"text": text}) for text in texts))
            assert [result.text for result in results] == texts
            await client.ping()

    if way == "stdio":
        await converse(peer_command(peer))
    else:
        with peer_listening(peer) as url:
            await converse(url)
