"""A link to a URL whose server does not answer."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, cast

import msgspec
import pytest

from limpet.auth.authorizer import Authorizer
from limpet.ports import Ports, SystemClock, SystemRandom
from limpet.testing import NotingObserver
from limpet.transports.http import HttpAnswer, HttpTransport
from limpet.upstream import http_link
from limpet.upstream.http_link import HttpLink
from limpet.upstream.http_server import HttpServer
from limpet.upstream.incoming import IncomingRequests
from limpet.upstream.link import Receiver
from limpet.upstream.pending import OutgoingRequest
from limpet.upstream.settings import ClientLimits, ClientTimes
from limpet.wire.jsonrpc import decode
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


class HeaderServer:
    """Notes the headers of each HTTP request, and answers it."""

    def __init__(self) -> None:
        self.seen: list[dict[str, str]] = []

    async def open(self, _method: str, _url: str, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        self.seen.append(dict(headers))
        answer = HttpAnswer(cast("Any", None), 200, [(b"mcp-session-id", b"s1")])
        answer.add(
            msgspec.json.encode({"jsonrpc": "2.0", "id": msgspec.json.decode(body)["id"], "result": {}})
        )
        answer.end()
        return answer


class Renewing:
    """Has another token for each request."""

    number = 0

    async def headers(self, _method: str, _url: str) -> dict[str, str]:
        self.number += 1
        return {"authorization": f"Bearer {self.number}"}


@pytest.mark.parametrize("authorizer", [None, Renewing()])
@virtual_test
async def test_each_request_of_a_session_has_the_headers_of_server_link_credentials_and_itself(
    authorizer: Renewing | None,
) -> None:
    recorder, observer = HeaderServer(), NotingObserver()
    server = HttpServer(
        "http://a.example/mcp", cast("HttpTransport", recorder), cast("Authorizer | None", authorizer),
        {"authorization": "static", "x-own": "1"}, ClientLimits(), ClientTimes(), Ports(SystemClock(), SystemRandom(), observer),
    )  # fmt: skip
    incoming = IncomingRequests(cast("Any", None), ClientLimits(), observer)
    link = HttpLink(server, Receiver(incoming, lambda *_: None, decode, observer))
    link.is_sessionless = False
    await link.request(OutgoingRequest(1, "initialize", {}))
    link.version = "2025-11-25"
    async with aclosing(link):
        for number in (2, 3):
            await link.request(OutgoingRequest(number, "tools/call", {}))
        await link.request(OutgoingRequest(4, "tools/call", {}, headers={"x-own": "2"}))
        common = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        session = {"mcp-session-id": "s1", "mcp-protocol-version": "2025-11-25"}
        tokens = [f"Bearer {number}" for number in (1, 2, 3, 4)] if authorizer else ["static"] * 4
        own = ["1", "1", "1", "2"]
        assert recorder.seen == [
            {**common, **(session if place else {}), "authorization": token, "x-own": one}
            for place, (token, one) in enumerate(zip(tokens, own, strict=True))
        ]
