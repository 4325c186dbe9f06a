"""The lists of a server behind a URL: kept in memory while they are current, and never for another client."""

import asyncio
from contextlib import aclosing
from typing import Any, Literal

import pytest

from limpet import McpError, Remote
from limpet.auth import Principal
from limpet.backs.proxy.back import UPSTREAM_BYTES
from limpet.backs.proxy.lists import Lists, list_key
from limpet.backs.proxy.options import ProxyOptions
from limpet.config import Limits, Settings
from limpet.core.ledger import Charge, Ledger
from limpet.protocol.subscriptions import LISTS
from limpet.testing import VirtualClock
from limpet.upstream.negotiation import Agreed
from tests.asgi import Peer
from tests.backs.fake import Fake
from tests.messages import request
from tests.support import async_test, until

CHANGED = "notifications/tools/list_changed"
DECLARED: dict[str, Any] = {"tools": {"listChanged": True}}
LEGACY = Agreed(version="2025-11-25", server={}, capabilities=DECLARED)
MODERN = Agreed(version="2026-07-28", server={}, capabilities=DECLARED)


class Source:
    """A list that counts how often it was asked for."""

    def __init__(self, page: bytes = b'{"tools":[]}') -> None:
        self.page = page
        self.asked = 0
        self.go = asyncio.Event()
        self.go.set()

    async def ask(self) -> bytes:
        self.asked += 1
        page = self.page
        await self.go.wait()
        return page


def charge(size: int) -> Charge | None:
    """Take memory of a ledger that has plenty of it."""
    return Ledger(2**30).account("a").take(size)


def key(cursor: str = "", method: str = "tools/list") -> Any:
    return list_key(method, {"cursor": cursor} if cursor else {})


@async_test
async def test_a_page_is_kept_until_the_list_changes() -> None:
    lists, source, channel = Lists(10_000, VirtualClock(), lambda: channel, charge), Source(), object()
    for _ in range(3):
        assert await lists.get(key(), LEGACY, source.ask) == source.page
    await lists.get(key("next"), LEGACY, source.ask)
    assert source.asked == 2
    lists.changed("prompts")
    await lists.get(key(), LEGACY, source.ask)
    assert source.asked == 2
    lists.changed("tools")
    for cursor in ("", "next"):
        await lists.get(key(cursor), LEGACY, source.ask)
    assert source.asked == 4


@pytest.mark.parametrize(
    ("channel", "agreed"),
    [
        (None, LEGACY),
        (object(), Agreed(version="2025-11-25", server={}, capabilities={"tools": {}})),
        (object(), Agreed(version="2025-11-25", server={}, capabilities={"tools": {"listChanged": False}})),
        (object(), MODERN),
    ],
    ids=["no channel", "not declared", "declared as false", "no ttlMs"],
)
@async_test
async def test_a_page_that_could_be_old_without_a_sign_is_not_kept(channel: object, agreed: Agreed) -> None:
    lists, source = Lists(10_000, VirtualClock(), lambda: channel, charge), Source()
    for _ in range(2):
        await lists.get(key(), agreed, source.ask)
    assert source.asked == 2


@async_test
async def test_a_break_of_the_channel_makes_every_page_old() -> None:
    channels: list[object | None] = [object()]
    lists, source = Lists(10_000, VirtualClock(), lambda: channels[-1], charge), Source()
    await lists.get(key(), LEGACY, source.ask)
    channels += [None, object()]
    await lists.get(key(), LEGACY, source.ask)
    await lists.get(key(), LEGACY, source.ask)
    assert source.asked == 2


@async_test
async def test_a_page_of_2026_07_28_is_kept_for_its_ttl_and_clients_get_the_time_that_is_left() -> None:
    clock = VirtualClock()
    lists, source = Lists(10_000, clock, object, charge), Source(b'{"tools":[],"ttlMs":60000}')
    assert b'"ttlMs":60000' in await lists.get(key(), MODERN, source.ask)
    clock.advance(50)
    assert b'"ttlMs":10000' in await lists.get(key(), MODERN, source.ask)
    assert source.asked == 1
    clock.advance(10)
    await lists.get(key(), MODERN, source.ask)
    assert source.asked == 2


@async_test
async def test_requests_at_the_same_time_share_one_but_not_one_from_before_a_change() -> None:
    lists, source, channel = Lists(10_000, VirtualClock(), lambda: channel, charge), Source(b"old"), object()
    source.go.clear()
    early = [asyncio.ensure_future(lists.get(key(), LEGACY, source.ask)) for _ in range(3)]
    await until(lambda: source.asked == 1)
    lists.changed("tools")
    source.page = b"new"
    late = asyncio.ensure_future(lists.get(key(), LEGACY, source.ask))
    await until(lambda: source.asked == 2)
    source.go.set()
    assert await asyncio.gather(*early) == [b"old"] * 3
    assert await late == b"new"
    assert await lists.get(key(), LEGACY, source.ask) == b"new"
    assert source.asked == 2


@async_test
async def test_a_page_that_was_requested_before_a_change_is_not_kept() -> None:
    lists, source, channel = Lists(10_000, VirtualClock(), lambda: channel, charge), Source(b"old"), object()
    source.go.clear()
    early = asyncio.ensure_future(lists.get(key(), LEGACY, source.ask))
    await until(lambda: source.asked == 1)
    lists.changed("tools")
    source.go.set()
    assert await early == b"old"
    source.page = b"new"
    assert await lists.get(key(), LEGACY, source.ask) == b"new"


@async_test
async def test_a_client_that_gives_up_does_not_end_the_request_for_the_others() -> None:
    lists, source, channel = Lists(10_000, VirtualClock(), lambda: channel, charge), Source(), object()
    source.go.clear()
    first, second = (asyncio.ensure_future(lists.get(key(), LEGACY, source.ask)) for _ in range(2))
    await until(lambda: source.asked == 1)
    first.cancel()
    await asyncio.wait({first})
    source.go.set()
    assert await second == source.page
    assert source.asked == 1


@async_test
async def test_the_pages_have_a_limit_in_bytes() -> None:
    lists, channel = Lists(1_200, VirtualClock(), lambda: channel, charge), object()
    source = Source(b"x" * 40)
    for cursor in ("a", "b", "c"):
        await lists.get(key(cursor), LEGACY, source.ask)
    await lists.get(key("c"), LEGACY, source.ask)
    assert source.asked == 3
    await lists.get(key("a"), LEGACY, source.ask)
    assert source.asked == 4
    large = Source(b"x" * 500)
    for _ in range(2):
        await lists.get(key("large"), LEGACY, large.ask)
    assert large.asked == 2
    assert f"2 pages, {2 * (512 + 1 + 60)} bytes" in repr(lists)


@async_test
async def test_the_cursor_of_a_kept_page_counts_too() -> None:
    """A server without pages ignores cursors: a client could let us keep any number of its texts."""
    lists, channel = Lists(10_000, VirtualClock(), lambda: channel, charge), object()
    source = Source()
    for _ in range(2):
        await lists.get(key("x" * 10_000), LEGACY, source.ask)
        await lists.get(key("ü" * 4_900), LEGACY, source.ask)
    assert source.asked == 4


@async_test
async def test_pages_are_kept_only_while_the_share_of_their_client_has_room_and_are_freed_with_the_list() -> (
    None
):
    ledger = Ledger(4_096)
    account = ledger.account("a")
    lists, channel = Lists(10_000, VirtualClock(), lambda: channel, account.take), object()
    source = Source()
    for number in range(20):
        await lists.get(key(str(number)), LEGACY, source.ask)
    assert 1 < len(lists._pages) < 4
    assert ledger.used == lists._bytes
    lists.clear()
    assert ledger.used == 0


def test_a_request_with_members_that_we_do_not_know_is_always_sent() -> None:
    assert list_key("tools/list", {"_meta": {"progressToken": 1}}) == list_key("tools/list", {})
    assert list_key("tools/list", {}, {"x-tenant": "a"}) != list_key("tools/list", {}, {"x-tenant": "b"})
    for params in ({"filter": 1}, {"cursor": 1}, {"_meta": {"x/tenant": "a"}}):
        assert list_key("tools/list", params) is None
    assert list_key("tools/call", {}) is None
    assert set(LISTS.values()) == {"tools", "prompts", "resources"}


class Verified:
    """Every token is a principal of its own."""

    async def __call__(self, token: str) -> Principal | None:
        return Principal(subject=token)


@pytest.mark.parametrize("era", ["sessions", "sessionless"])
@async_test
async def test_a_client_gets_a_list_from_memory_until_list_changed_and_only_its_own(
    era: Literal["sessions", "sessionless"],
) -> None:
    async with Fake(era=era, capabilities=DECLARED) as fake:
        fake.ttl = 60_000
        fake.answers["tools/list"] = lambda _params: {"tools": [], "number": fake.asked["tools/list"]}
        remote = Remote(fake.url, verifier=Verified())
        async with aclosing(remote.engine):
            app = remote.asgi()

            async def numbers(peer: Peer) -> list[int]:
                asked = [await peer.sessionless("tools/list", {}, id=n).done() for n in (1, 2)]
                return [answer.json["result"]["number"] for answer in asked]

            one, other = Peer(app, token="one"), Peer(app, token="other")
            assert await numbers(one) == [1, 1]
            assert await numbers(other) == [2, 2]
            await until(lambda: len(fake.streams) == 2)
            fake.notify(CHANGED)
            await until(lambda: fake.asked["tools/list"] == 2)
            back: Any = remote.back
            await until(
                lambda: all(not u.result().calls._lists._pages for u in back._upstreams._by_key.values())
            )
            assert await numbers(one) == [3, 3]


@async_test
async def test_the_limit_of_kept_lists_can_be_set() -> None:
    async with Fake(capabilities=DECLARED) as fake:
        remote = Remote(fake.url, options=ProxyOptions(list_bytes=0))
        async with aclosing(remote.engine):
            peer = Peer(remote.asgi())
            await peer.initialize()
            for number in (1, 2):
                await peer.post(request(number, "tools/list", {})).done()
            assert fake.asked["tools/list"] == 2


@async_test
async def test_lists_are_requested_again_when_the_server_cannot_report_changes_any_more() -> None:
    async with Fake(capabilities=DECLARED) as fake:
        remote = Remote(fake.url)
        async with aclosing(remote.engine):
            peer = Peer(remote.asgi())
            await peer.initialize()
            for number in (1, 2):
                await peer.post(request(number, "tools/list", {})).done()
            assert fake.asked["tools/list"] == 1
            fake.get = False
            fake.break_streams()
            await until(lambda: fake.asked["GET"] == 2)
            for number in (3, 4):
                await peer.post(request(number, "tools/list", {})).done()
            assert fake.asked["tools/list"] == 3


@async_test
async def test_an_error_of_the_server_is_not_kept() -> None:
    lists, channel = Lists(10_000, VirtualClock(), lambda: channel, charge), object()
    failures = [McpError(-32603, "no")]

    async def ask() -> bytes:
        if failures:
            raise failures.pop()
        return b"{}"

    with pytest.raises(McpError):
        await lists.get(key(), LEGACY, ask)
    assert await lists.get(key(), LEGACY, ask) == b"{}"


@async_test
async def test_a_connection_to_the_server_behind_is_in_the_memory_of_its_client() -> None:
    """Its session alone has a charge of 4 KiB, and the connection takes eight times as much."""
    async with Fake() as fake:
        remote = Remote(fake.url, settings=Settings(limits=Limits(memory=2**20)))
        async with aclosing(remote.engine):
            app = remote.asgi()
            peers: list[Peer] = []
            while (status := (await (peer := Peer(app)).initialize()).status) == 200:
                peers.append(peer)
            assert status == 503
            assert 5 < len(peers) < 2**19 // UPSTREAM_BYTES
            # Two, because the log that pytest keeps holds the error of the refusal, with the session that it refused.
            for peer in peers[:2]:
                await peer.delete()
            back: Any = remote.back
            await until(lambda: len(back.upstreams) == len(peers) - 2)
            await back.upstreams.settled()
            assert (await Peer(app).initialize()).status == 200
