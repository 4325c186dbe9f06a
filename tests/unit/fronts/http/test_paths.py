"""The paths of requests: a rule for a path in a proxy and our own comparison must mean the same requests."""

from contextlib import aclosing
from typing import Final
from urllib.parse import unquote

from limpet.engine.engine import Engine
from limpet.fronts.http.front import HttpFront
from limpet.fronts.http.read.request import Receive, Scope, Send
from limpet.fronts.http.router import Router
from limpet.testing.back import ScriptedBack
from tests.asgi import Peer
from tests.http.paper import settled
from tests.support import virtual_test
from tests.unit.fronts.http.http1.test_protocol import Public, connected_to

HOOK: Final = "/hook"
SPELLINGS: Final = (
    "/%68ook",
    "/hoo%6B",
    "/hoo%6b",
    "/%68%6F%6F%6B",
    "/%2Fhook",
    "/%2fhook",
    "/hook%2F",
    "/hook%2f",
    "/hook%5C",
    "//hook",
    "/hook/",
    "/hook//",
    "/./hook",
    "/%2E/hook",
    "/x/../hook",
    "/x/%2e%2e/hook",
    "/x%2F..%2Fhook",
    "/hook;a=b",
    "/hook%3B",
    "/hook%3Fa",
    "/hook%23",
    "/hook%00",
    "/hook%20",
    "/hook%",
    "/hook%6",
    "/%2568ook",
    "/%u0068ook",
    "/HOOK",
    "/%48ook",
)
"""Other spellings of a path, which a rule for `/hook` in a proxy may let pass."""
OURS: Final = (
    "/%6Dcp",
    "/mc%70",
    "/mcp%2F",
    "/%68ealthz",
    "/%72eadyz",
    "/healthz%2f",
    "/.well-known%2Foauth",
)


async def _hook(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def front(*paths: str) -> HttpFront:
    return HttpFront(Engine(ScriptedBack()), routes={path: Public(_hook) for path in paths})


async def statuses(serving: HttpFront | Router, raw: str) -> list[int]:
    """Return the status of a GET in one spelling: from our own server, and from an ASGI host."""
    protocol, paper = connected_to(serving.serve)
    protocol.data_received(f"GET {raw} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await settled()
    path = raw.partition("?")[0]
    hosted = await Peer(serving).send("GET", path=unquote(path), raw_path=path.encode()).done()
    return [*paper.statuses, hosted.status or 0]


@virtual_test
async def test_a_route_is_reached_by_one_spelling_of_its_path() -> None:
    serving = front(HOOK)
    async with aclosing(serving.engine):
        for served in (serving, Router({"a": serving})):
            assert await statuses(served, HOOK) == [200, 200]
            assert await statuses(served, f"{HOOK}?a=%68") == [200, 200]
            for raw in SPELLINGS:
                assert await statuses(served, raw) == [404, 404], raw


@virtual_test
async def test_the_endpoint_the_probes_and_the_metadata_are_reached_by_one_spelling_of_their_paths() -> None:
    serving = front()
    async with aclosing(serving.engine):
        for raw in OURS:
            assert await statuses(serving, raw) == [404, 404], raw
        assert await statuses(serving, "/healthz") == [200, 200]


@virtual_test
async def test_a_path_with_characters_that_must_be_encoded_is_served() -> None:
    serving = front("/caf\u00e9 bar", "/a%b", "/a:b")
    async with aclosing(serving.engine):
        for raw in ("/caf%C3%A9%20bar", "/caf%c3%a9%20bar", "/a%25b", "/a:b", "/a%3Ab"):
            assert await statuses(serving, raw) == [200, 200], raw


@virtual_test
async def test_a_host_that_does_not_report_the_path_as_it_was_sent_is_served() -> None:
    serving = front(HOOK)
    async with aclosing(serving.engine):
        for extra in ({}, {"raw_path": None}, {"raw_path": b"/hook?a=%68"}):
            assert (await Peer(serving).send("GET", path=HOOK, **extra).done()).status == 200
