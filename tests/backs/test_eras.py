"""Which era Limpet speaks with the server behind: the client's own, if the server has it."""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from limpet import Client, Context, Process, Remote, Server
from limpet.backs.proxy.options import ProxyOptions
from tests.backs.behind import Behind, in_front
from tests.backs.fake import Fake
from tests.support import async_test

MODERN = "2026-07-28"
LATEST = "2025-11-25"
CLIENTS = {"sessions": LATEST, "sessionless": MODERN}


def counting(eras: Any = "both") -> Server:
    """Return a server whose tools need what only a session has."""
    server = Server("counting", eras=eras)

    @server.tool
    async def spoken(ctx: Context) -> str:
        """Return the revision of the request."""
        return ctx.session.protocol_version

    @server.tool
    async def add(number: int, ctx: Context) -> int:
        """Keep a sum in the session."""
        return await ctx.state.incr("sum", number)

    return server


async def spoken(client: Client) -> str:
    return (await client.call_tool("spoken")).text


@pytest.mark.parametrize("client_era", CLIENTS)
@async_test
async def test_a_server_that_speaks_both_eras_is_spoken_to_in_the_era_of_each_client(client_era: str) -> None:
    async with in_front(Behind(counting())) as front, front.client(client_era) as client:
        assert await spoken(client) == CLIENTS[client_era]


@pytest.mark.parametrize("server_era", CLIENTS)
@pytest.mark.parametrize("client_era", CLIENTS)
@async_test
async def test_a_server_that_speaks_one_era_is_spoken_to_in_this_one(
    client_era: str, server_era: str
) -> None:
    async with in_front(Behind(counting(server_era))) as front, front.client(client_era) as client:
        assert await spoken(client) == CLIENTS[server_era]


@async_test
async def test_what_the_server_keeps_in_a_session_belongs_to_the_session_of_one_client() -> None:
    async with (
        in_front(Behind(counting())) as front,
        front.client("sessions") as one,
        front.client("sessions") as two,
    ):
        for client, number, total in ((one, 1, 1), (two, 5, 5), (one, 2, 3)):
            assert (await client.call_tool("add", {"number": number})).data == total


@pytest.mark.parametrize("options", [ProxyOptions(shared=True), ProxyOptions(home="any")])
@pytest.mark.parametrize("server_era", ["both", "sessions"])
@async_test
async def test_where_clients_share_a_connection_the_era_is_that_of_the_server(
    options: ProxyOptions, server_era: str
) -> None:
    async with in_front(Behind(counting(server_era)), options) as front:
        for client_era in CLIENTS:
            async with front.client(client_era) as client:
                assert await spoken(client) == (MODERN if server_era == "both" else LATEST)


@async_test
async def test_a_url_is_asked_for_the_era_that_it_refuses_once() -> None:
    for era, (first, other) in {
        "sessions": ("server/discover", "initialize"),
        "sessionless": ("initialize", "server/discover"),
    }.items():
        async with Fake(era=era) as fake:  # type: ignore[arg-type]
            remote = Remote(fake.url)
            for _ in range(2):
                for client_era in CLIENTS:
                    async with Client(remote, protocol_version=client_era) as client:
                        await client.call_tool("x")
            assert fake.asked[first] == 1
            assert fake.asked[other] == fake.asked["tools/call"] == 4


OLD_PROGRAM = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    with open(sys.argv[1], "a") as file:
        print(message["method"], file=file)
    if message["method"] == "server/discover":
        sys.exit(1)
    result = {"content": []} if message["method"] == "tools/call" else {
        "protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"}
    }
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def test_a_program_that_ends_when_it_is_asked_for_the_newer_era_is_asked_once(tmp_path: Path) -> None:
    file = tmp_path / "received"

    @async_test
    async def run() -> None:
        process = Process([sys.executable, "-c", OLD_PROGRAM, str(file)])
        for _ in range(2):
            for client_era in CLIENTS:
                async with Client(process, protocol_version=client_era) as client:
                    await client.call_tool("x")

    run()
    received = Counter(file.read_text().split())
    assert received["server/discover"] == 1
    assert received["initialize"] == received["tools/call"] == 4
