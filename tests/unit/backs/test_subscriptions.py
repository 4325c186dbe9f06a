"""The subscriptions of one upstream. The server is a fake that refuses."""

from typing import Any, cast

from holdfast.backs.proxy.subscriptions import Subscriptions
from holdfast.errors import McpError
from holdfast.testing import NotingObserver
from holdfast.upstream.connection import Connection
from holdfast.upstream.negotiation import Agreed
from tests.support import LoopClock, virtual_test


@virtual_test
async def test_a_session_leaves_all_its_resources_although_the_server_refuses_to_unsubscribe() -> None:
    sent: list[tuple[str, str]] = []

    async def request(method: str, params: dict[str, Any]) -> object:
        sent.append((method, params["uri"]))
        if method == "resources/unsubscribe":
            raise McpError(-32602, "unknown")
        return {}

    agreed = Agreed(version="2025-11-25", server={}, capabilities={})
    held = Subscriptions(cast("Connection", None), request, LoopClock(), NotingObserver())
    for uri in ("memo://one", "memo://two"):
        await held.add(uri, agreed, "a session")
    await held.leave("a session", agreed)
    assert held.uris == ()
    assert sent[2:] == [("resources/unsubscribe", "memo://one"), ("resources/unsubscribe", "memo://two")]
