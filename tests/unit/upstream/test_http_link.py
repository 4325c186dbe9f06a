"""A link to a URL whose server does not answer."""

import asyncio
from typing import Any, cast

import pytest

from holdfast.testing import NotingObserver
from holdfast.upstream import http_link
from holdfast.upstream.http_link import HttpLink
from holdfast.upstream.http_server import HttpServer
from holdfast.upstream.incoming import IncomingRequests
from holdfast.upstream.link import Receiver
from holdfast.upstream.pending import OutgoingRequest
from holdfast.upstream.settings import ClientLimits, ClientTimes
from holdfast.wire.jsonrpc import decode
from tests.support import virtual_test


class SilentServer:
    """Accepts every HTTP request and answers none."""

    times = ClientTimes()

    def __init__(self) -> None:
        self.observer = NotingObserver()
        self.waiting = 0

    async def open(self, *_request: Any) -> Any:
        self.waiting += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.waiting -= 1


@virtual_test
async def test_cancellations_to_a_server_that_does_not_answer_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_link, "UNSENT", 3)
    server = SilentServer()
    incoming = IncomingRequests(cast("Any", None), ClientLimits(), server.observer)
    receiver = Receiver(incoming, lambda *_: None, decode, server.observer)
    link = HttpLink(cast("HttpServer", server), receiver)
    link.is_sessionless = False
    for number in range(10):
        call = asyncio.create_task(link.request(OutgoingRequest(number, "tools/call", {})))
        await asyncio.sleep(1)
        call.cancel()
    await asyncio.sleep(1)
    assert server.waiting == 3
    assert len(server.observer.named("client.farewell_failed")) == 7
    await link.aclose(goodbye=False)
    await asyncio.sleep(1)
    assert server.waiting == 0
