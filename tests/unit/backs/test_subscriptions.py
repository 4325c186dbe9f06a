"""The subscriptions of one upstream. The server is a fake that refuses."""

import asyncio
from typing import Any, Final, cast

from limpet.backs.proxy.subscriptions import LISTENERS, READY_SECONDS, Subscriptions
from limpet.errors import McpError
from limpet.testing import NotingObserver
from limpet.upstream.connection import Connection
from limpet.upstream.negotiation import Agreed
from tests.support import LoopClock, until, virtual_test

AGREED: Final = Agreed(version="2025-11-25", server={}, capabilities={})
LISTENED: Final[dict[str, Any]] = {"resources": {"subscribe": True, "listChanged": True}}


def subscriptions(request: Any) -> Subscriptions:
    return Subscriptions(cast("Connection", None), request, LoopClock(), NotingObserver())


@virtual_test
async def test_the_sweep_keeps_a_resource_that_a_listener_asks_for_while_another_one_is_released() -> None:
    sent: list[tuple[str, str]] = []

    async def request(method: str, params: dict[str, Any]) -> object:
        sent.append((method, params["uri"]))
        await asyncio.sleep(10)
        return {}

    held = subscriptions(request)
    for uri in ("memo://one", "memo://two", "memo://three"):
        await held.add(uri, AGREED)
    del sent[:]
    held.sweep(AGREED, LoopClock().now() + 1, lambda uri: uri == "memo://three")
    await asyncio.sleep(1)
    await held.add("memo://two", AGREED)
    await asyncio.sleep(100)
    assert sorted(held.uris) == ["memo://three", "memo://two"]
    assert sent == [("resources/unsubscribe", "memo://one")]
    await held.add("memo://one", AGREED)
    assert sent[1:] == [("resources/subscribe", "memo://one")]


@virtual_test
async def test_a_resource_that_is_asked_for_while_the_server_unsubscribes_from_it_is_subscribed_again() -> (
    None
):
    sent: list[tuple[str, str]] = []

    async def request(method: str, params: dict[str, Any]) -> object:
        sent.append((method, params["uri"]))
        await asyncio.sleep(10)
        return {}

    held = subscriptions(request)
    await held.add("memo://one", AGREED, "a session")
    held.leave("a session", AGREED)
    await asyncio.sleep(1)
    await held.add("memo://one", AGREED, "another session")
    assert [method for method, _ in sent] == [
        "resources/subscribe",
        "resources/unsubscribe",
        "resources/subscribe",
    ]
    assert held.sessions("memo://one") == ["another session"]


@virtual_test
async def test_a_session_leaves_all_its_resources_although_the_server_refuses_to_unsubscribe() -> None:
    sent: list[tuple[str, str]] = []

    async def request(method: str, params: dict[str, Any]) -> object:
        sent.append((method, params["uri"]))
        if method == "resources/unsubscribe":
            raise McpError(-32602, "unknown")
        return {}

    held = subscriptions(request)
    for uri in ("memo://one", "memo://two"):
        await held.add(uri, AGREED, "a session")
    held.leave("a session", AGREED)
    assert held.uris == ()
    await until(lambda: len(sent) == 4)
    assert sent[2:] == [("resources/unsubscribe", "memo://one"), ("resources/unsubscribe", "memo://two")]


class Listened:
    """A 2026-07-28 server: the listen streams that are open, and when each one was confirmed."""

    def __init__(self) -> None:
        self.open: list[dict[str, Any]] = []
        self.most = 0

    async def request(self, _method: str, params: dict[str, Any]) -> None:
        wanted = params["notifications"]
        self.open.append(wanted)
        self.most = max(self.most, len(self.open))
        try:
            await asyncio.Event().wait()
        finally:
            self.open.remove(wanted)


@virtual_test
async def test_a_listen_stream_stays_open_until_the_next_one_is_confirmed() -> None:
    server, agreed = Listened(), Agreed(version="2026-07-28", server={}, capabilities=LISTENED)
    held = Subscriptions(cast("Connection", server), server.request, LoopClock(), NotingObserver())
    held.start(agreed)
    await asyncio.sleep(0)
    assert not held.acknowledged()
    for number in range(3):
        adding = asyncio.create_task(held.add(f"memo://{number}", agreed))
        await asyncio.sleep(0.5)
        # The former stream reports changes as long as the next one may not.
        assert len(server.open) == 2
        assert not adding.done()
        held.acknowledged()
        await adding
        await asyncio.sleep(0)
        assert [one.get("resourceSubscriptions") for one in server.open] == [
            [f"memo://{one}" for one in range(number + 1)]
        ]
    # A server that never confirms.
    await held.add("memo://last", agreed)
    assert len(server.open) == 1
    held.leave(LISTENERS, agreed)
    await asyncio.sleep(0)
    assert len(server.open) == 2
    held.close()
    await asyncio.sleep(0)
    assert server.open == []
    await asyncio.sleep(READY_SECONDS * 2)
