"""Servers of 2024-11-05 behind Limpet: each kind of back, and a URL with the transport HTTP+SSE."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from limpet import Client, McpError, Remote
from limpet.errors import HttpRefused
from limpet.server.proxy import Proxy
from limpet.upstream.settings import ClientTimes
from tests.backs.mirror import EXTENSION, ODD, ServedSse
from tests.backs.test_nothing_dropped import BACKS, in_front
from tests.support import async_test, until

ERAS: Final = ("sessions", "sessionless")
QUICK: Final = ClientTimes(backoff=(0.01, 0.05))
every_era = pytest.mark.parametrize("era", ERAS)


@asynccontextmanager
async def behind(back: str) -> AsyncIterator[Proxy]:
    if back in BACKS:
        async with in_front(back, "2024-11-05") as proxy:
            yield proxy
    else:
        async with ServedSse() as url:
            yield Remote(url, times=QUICK)


@pytest.mark.parametrize("back", [*BACKS, "HTTP+SSE"])
@every_era
@async_test
async def test_a_server_of_2024_11_05_is_served_to_clients_of_both_eras(era: str, back: str) -> None:
    def answer(question: Any) -> dict[str, Any]:
        return {"name": question.message}

    async with (
        behind(back) as proxy,
        Client(proxy, protocol_version=era, elicitation=answer) as client,
    ):
        assert client.agreed.capabilities["extensions"][EXTENSION] == {"server": 1}
        assert [tool.name for tool in await client.list_tools()] == ["x"]
        called = await client.request("tools/call", {"name": "x", ODD: "param"})
        assert (called[ODD], called["params"][ODD]) == ("field", "param")
        asked = await client.request("tools/call", {"name": "ask"})
        assert asked["answer"]["content"] == {"name": "?"}


@async_test
async def test_a_url_that_refuses_post_is_tried_once_and_a_lost_stream_is_opened_again() -> None:
    server = ServedSse()
    async with server as url:
        remote = Remote(url, times=QUICK)
        async with Client(remote, protocol_version="sessions") as client:
            await client.request("tools/call", {"name": "x"})
            assert server.asked["POST /sse"] == 2, "one for each era"
            [upstream] = remote.back.upstreams.opened()
            server.cut()
            await until(lambda: upstream._connection.standalone is None)
            assert (await client.request("tools/call", {"name": "x"}))[ODD] == "field"
        async with Client(remote, protocol_version="sessionless") as client:
            await client.request("tools/call", {"name": "x"})
        assert server.asked["POST /sse"] == 2
        assert server.asked["GET /sse"] == 3


@async_test
async def test_a_client_connects_to_such_a_url_too() -> None:
    async with ServedSse() as url, Client(url) as client:
        assert client.agreed.version == "2024-11-05"
        assert (await client.request("tools/call", {"name": "x"}))[ODD] == "field"


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1/messages", "//other.example/messages"])
@async_test
async def test_an_endpoint_of_another_origin_gets_no_message(endpoint: str) -> None:
    async with ServedSse(endpoint) as url:
        with pytest.raises(HttpRefused, match="HTTP 405"):
            await Client(url).__aenter__()


@async_test
async def test_a_url_with_neither_transport_is_refused_with_the_answer_to_the_first_request() -> None:
    async with ServedSse() as url:
        remote = Remote(url.replace("/sse", "/nothing"))
        with pytest.raises(McpError, match="HTTP 404"):
            await Client(remote, protocol_version="sessions").__aenter__()
