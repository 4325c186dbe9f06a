"""A connection over HTTP as a proxy uses it: raw results, the origin of each message, ends, headers."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import pytest

from limpet.errors import HttpRefused
from limpet.ports import Ports, SilentObserver, SystemClock, SystemRandom
from limpet.transports.http import HttpTransport
from limpet.upstream.connection import Callbacks, Connection, ConnectionOptions
from limpet.upstream.connectors import HttpConnector
from limpet.upstream.link import EndReason, LinkEnd
from limpet.upstream.negotiation import EraMemory
from limpet.upstream.pending import OutgoingRequest
from limpet.upstream.profile import ClientProfile
from limpet.upstream.settings import ClientTimes
from limpet.wire.jsonrpc import Notification
from tests.client.torture import Exchange, Hangup, Torture, plain
from tests.support import BOUND, async_test, until

TIMES: Final = ClientTimes(patience=10.0, settle=BOUND, backoff=(0.005, 0.1))
PORTS: Final = Ports(SystemClock(), SystemRandom(), SilentObserver())


class Proxy:
    """The user of a connection; it records its messages, with the owner of the origin."""

    def __init__(self) -> None:
        self.received: list[tuple[str, object]] = []
        self.ends: list[LinkEnd] = []

    async def on_request(
        self, method: str, params: dict[str, Any], origins: Sequence[OutgoingRequest]
    ) -> dict[str, Any]:
        [origin] = origins
        self.received.append((f"{method} {params['n']}", origin.owner))
        return {}

    def on_notification(self, notification: Notification, origin: OutgoingRequest | None) -> None:
        text = f"{notification.method} {notification.params['data']}"
        self.received.append((text, origin.owner if origin is not None else None))


@asynccontextmanager
async def proxied(
    *, is_sessionless: bool = False, headers: dict[str, str] | None = None
) -> AsyncIterator[tuple[Torture, Proxy, Connection]]:
    server, proxy = Torture(1, is_modern=is_sessionless, mischief=0.0), Proxy()
    connector = HttpConnector(await server.start(), headers=headers, times=TIMES, ports=PORTS)
    connection = Connection(
        connector,
        ClientProfile({"name": "proxy", "version": "1"}, {}),
        Callbacks(
            on_request=proxy.on_request, on_notification=proxy.on_notification, on_end=proxy.ends.append
        ),
        options=ConnectionOptions(raw_results=True, times=TIMES),
        eras=EraMemory(),
        ports=PORTS,
    )
    try:
        await connection.open()
        yield server, proxy, connection
    finally:
        await connection.aclose()
        await server.aclose()


def call(connection: Connection, token: str, **options: Any) -> asyncio.Task[Any]:
    params = {"name": "echo", "arguments": {"token": token}}
    return asyncio.create_task(connection.request("tools/call", params, owner=token, **options))


def event(message: dict[str, Any], event_id: str = "") -> bytes:
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}data: {json.dumps({'jsonrpc': '2.0', **message})}\n\n".encode()


def log(text: str) -> dict[str, Any]:
    return {"method": "notifications/message", "params": {"level": "info", "data": text}}


async def talkative(exchange: Exchange) -> None:
    """Send a notification and, in a session, a request on the stream of a call, then its result."""
    token = exchange.message["params"]["arguments"]["token"]
    await exchange.stream()
    await exchange.write(event(log(token)))
    if not exchange.server.is_modern:
        await exchange.write(event({"id": f"ask-{token}", "method": "roots/list", "params": {"n": token}}))
    await exchange.write(b"data: " + exchange.answer + b"\n\n")
    raise Hangup


@pytest.mark.parametrize("is_sessionless", [False, True])
@async_test
async def test_a_message_is_delivered_with_the_request_whose_stream_carried_it(is_sessionless: bool) -> None:
    async with proxied(is_sessionless=is_sessionless) as (server, proxy, connection):
        server.script.extend([talkative, talkative])
        results = await asyncio.gather(call(connection, "a"), call(connection, "b"))
        assert all(isinstance(result, msgspec.Raw) for result in results)
        assert [msgspec.json.decode(one)["content"][0]["text"] for one in results] == ["a", "b"]
        kinds = ["notifications/message", *([] if is_sessionless else ["roots/list"])]
        await until(lambda: len(proxy.received) == 2 * len(kinds))
        assert set(proxy.received) == {(f"{kind} {owner}", owner) for owner in ("a", "b") for kind in kinds}


@async_test
async def test_the_origin_survives_the_resumption_of_a_stream() -> None:
    async def cut(exchange: Exchange) -> None:
        rest = event(log("after"))[len("data: ") :].strip()
        exchange.server.kept["s"] = rest + b"\n\ndata: " + exchange.answer
        await exchange.stream()
        await exchange.write(event(log("before"), "s"))
        raise Hangup

    async with proxied() as (server, proxy, connection):
        server.script.append(cut)
        await call(connection, "a")
        assert proxy.received == [("notifications/message before", "a"), ("notifications/message after", "a")]


@async_test
async def test_a_session_that_is_gone_is_reported_once_even_if_many_requests_notice_it() -> None:
    async with proxied() as (server, proxy, connection):
        await call(connection, "first")
        server.sessions.clear()
        await asyncio.gather(*(call(connection, str(number)) for number in range(10)))
        assert [end.reason for end in proxy.ends] == [EndReason.SESSION_GONE]
        assert server.opened == 2
    assert [end.reason for end in proxy.ends] == [EndReason.SESSION_GONE, EndReason.CLOSED]


@async_test
async def test_headers_of_one_request_go_with_it_and_its_resumption_and_with_no_other() -> None:
    seen: list[tuple[str, str]] = []

    async def note(exchange: Exchange) -> None:
        token = exchange.message["params"]["arguments"]["token"]
        seen.append((token, exchange.headers.get("x-tenant", "")))
        await plain(exchange)

    async def cut(exchange: Exchange) -> None:
        exchange.server.kept["s"] = exchange.answer
        await exchange.stream()
        await exchange.write(b"id: s\ndata:\n\n")
        raise Hangup

    async with proxied(headers={"X-Tenant": "all"}) as (server, _, connection):
        server.on_resume = lambda exchange: seen.append(("resumed", exchange.headers.get("x-tenant", "")))
        server.script.append(cut)
        await call(connection, "cut", headers={"x-tenant": "cut"})
        assert set(seen) == {("resumed", "cut")}
        seen.clear()
        server.script.extend([note, note])
        await call(connection, "a", headers={"x-tenant": "a"})
        await call(connection, "b")
    assert seen == [("a", "a"), ("b", "all")]


@async_test
async def test_a_redirect_is_not_followed_with_the_credentials_of_one_request() -> None:
    async def moved(exchange: Exchange) -> None:
        await exchange.send(307, location="/elsewhere")

    async with proxied() as (server, _, connection):
        server.script.extend([moved, moved])
        with pytest.raises(HttpRefused, match="elsewhere"):
            await call(connection, "a", headers={"authorization": "Bearer t"})
        assert len(server.script) == 1
        server.script.clear()


@async_test
async def test_a_pool_of_connections_that_is_shared_outlives_each_connector() -> None:
    server, transport = Torture(1, is_modern=True, mischief=0.0), HttpTransport()
    url = await server.start()
    try:
        for _ in range(2):
            connector = HttpConnector(url, ports=PORTS, transport=transport)
            await (await transport.open("GET", url, {})).body(100)
            await connector.aclose()
            assert "open" in repr(transport)
    finally:
        await transport.aclose()
        await server.aclose()
