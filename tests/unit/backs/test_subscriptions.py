"""The subscriptions of one upstream. The server is a fake that refuses."""

import asyncio
from typing import Any, Final, cast

from holdfast.backs.proxy.subscriptions import Subscriptions
from holdfast.errors import McpError
from holdfast.testing import NotingObserver
from holdfast.upstream.connection import Connection
from holdfast.upstream.negotiation import Agreed
from tests.support import LoopClock, until, virtual_test

AGREED: Final = Agreed(version="2025-11-25", server={}, capabilities={})


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
