"""The client names each call of 2026-07-28 with a key, and sends it again after a break: a server that takes keys runs it once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from limpet import Client, Context, Server
from limpet.client import ClientTimes
from limpet.errors import CallTimeout, OutcomeUnknown
from limpet.protocol.idempotency import KEY
from limpet.upstream.negotiation import EraMemory
from tests.interop.proxy import Cut, Proxy, proxied
from tests.support import BOUND, async_test, until
from tests.unit.fronts.http.test_serve import serving

TIMES: Final = ClientTimes(patience=BOUND, backoff=(0.005, 0.1))


class Shop:
    """A server whose tool counts its runs."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.cancelled: list[str] = []
        self.release = asyncio.Event()
        self.ticks = False
        """The tool reports progress until it may go on."""
        self.server = server = Server("shop")

        @server.tool
        async def order(ctx: Context, dish: str) -> str:
            """Order a dish."""
            self.runs.append(dish)
            try:
                await ctx.progress(1)
                done = 1
                while self.ticks and not self.release.is_set():
                    await asyncio.sleep(0.01)
                    done += 1
                    await ctx.progress(done)
                await self.release.wait()
            except asyncio.CancelledError:
                self.cancelled.append(dish)
                raise
            return f"ordered {dish}"


@asynccontextmanager
async def cutting(*cuts: Cut) -> AsyncIterator[tuple[Shop, Proxy, Client]]:
    shop = Shop()
    async with serving(shop.server) as port:
        with proxied(port, list(cuts)) as proxy:
            client = Client(
                proxy.url, times=TIMES, timeout=BOUND, eras=EraMemory(), protocol_version="2026-07-28"
            )
            async with client:
                yield shop, proxy, client


def keys(proxy: Proxy) -> list[Any]:
    """Return the keys of the calls that came by."""
    calls = [one.rpc for one in proxy.requests if one.headers.get("mcp-method") == "tools/call"]
    return [call["params"]["_meta"].get(KEY) for call in calls]


@async_test
async def test_a_call_whose_answer_is_lost_is_sent_again_with_its_key_and_runs_once() -> None:
    async with cutting(Cut(b"ordered soup", loses=True)) as (shop, proxy, client):
        shop.release.set()
        assert (await client.call_tool("order", {"dish": "soup"})).text == "ordered soup"
        assert (await client.call_tool("order", {"dish": "cake"})).text == "ordered cake"
        assert shop.runs == ["soup", "cake"]
        first, again, other = keys(proxy)
        assert first == again != other
        assert len(first) == 32


@async_test
async def test_a_call_that_breaks_while_it_runs_receives_the_rest_of_its_progress() -> None:
    async with cutting(Cut(b'"progress":1', loses=True)) as (shop, proxy, client):
        seen: list[float] = []
        shop.ticks = True
        calling = asyncio.ensure_future(
            client.call_tool("order", {"dish": "soup"}, progress=lambda done, *_: seen.append(done))
        )
        # The first report is lost with its connection, so later ones come by the repeat.
        await until(lambda: bool(seen))
        shop.release.set()
        assert (await calling).text == "ordered soup"
        assert (shop.runs, len(keys(proxy))) == (["soup"], 2)
        assert seen == sorted(set(seen))
        assert seen[0] > 1


@async_test
async def test_a_call_that_the_client_gives_up_is_cancelled_at_once_although_it_has_a_key() -> None:
    async with cutting() as (shop, _, client):
        while not shop.runs:  # A loaded machine gives a call up before it has begun.
            with pytest.raises(CallTimeout):
                await client.call_tool("order", {"dish": "soup"}, timeout=0.5)
        await until(lambda: shop.cancelled == shop.runs)


@async_test
async def test_a_key_of_the_caller_stays_and_an_idempotent_call_needs_none() -> None:
    async with cutting() as (shop, proxy, client):
        shop.release.set()
        for _ in range(2):
            await client.call_tool("order", {"dish": "soup"}, meta={KEY: "order-7"})
        await client.call_tool("order", {"dish": "soup"}, idempotent=True)
        assert keys(proxy) == ["order-7", "order-7", None]
        assert shop.runs == ["soup", "soup"]


@async_test
async def test_an_outcome_that_the_server_calls_unknown_is_final() -> None:
    shop = Shop()

    @shop.server.tool
    async def lost() -> str:
        """Fail as a call whose server behind has died."""
        shop.runs.append("lost")
        raise OutcomeUnknown

    async with Client(shop.server, protocol_version="2026-07-28", times=TIMES) as client:
        with pytest.raises(OutcomeUnknown):
            await client.call_tool("lost")
    assert shop.runs == ["lost"]
