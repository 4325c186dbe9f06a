"""`Servers`: several servers in one process, each at its own path, strangers to each other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from limpet import Limits, Server, Servers, Settings, Times
from limpet.config import HttpSettings
from limpet.errors import ConfigError
from limpet.fronts.http.asgi_host.mount import Mount
from limpet.fronts.http.router import Router
from limpet.fronts.http.serve import check_exposure
from limpet.routes import HttpRequest, HttpResponse
from tests.asgi import Peer
from tests.messages import request
from tests.support import async_test, virtual_test


def named(name: str, **options: Any) -> Server:
    server = Server(name, **options)
    server.add_tool(lambda: name, name="who")
    return server


@asynccontextmanager
async def running(app: Mount | Router) -> AsyncIterator[None]:
    """Send the lifespan events around the body."""
    events: asyncio.Queue[Any] = asyncio.Queue()
    sent: asyncio.Queue[Any] = asyncio.Queue()
    task = asyncio.ensure_future(app({"type": "lifespan"}, events.get, sent.put))
    await events.put({"type": "lifespan.startup"})
    begun = await sent.get()
    assert begun["type"] == "lifespan.startup.complete", begun
    yield
    await events.put({"type": "lifespan.shutdown"})
    assert (await sent.get())["type"] == "lifespan.shutdown.complete"
    await task


async def who(peer: Peer, path: str) -> Any:
    answer = await peer.call(1, "who", path=path).done()
    return answer.json["result"]["content"][0]["text"] if answer.status == 200 else answer.status


@async_test
async def test_each_server_answers_at_its_own_path_and_knows_its_own_sessions_only() -> None:
    app = Servers({"/a/mcp": named("a"), "/b/mcp": named("b")}).asgi()
    async with running(app):
        first, second = Peer(app), Peer(app)
        await first.initialize(path="/a/mcp")
        await second.initialize(path="/b/mcp")
        assert await who(first, "/a/mcp") == "a"
        assert await who(first, "/a/mcp/") == "a", "a slash at the end makes no difference"
        assert await who(second, "/b/mcp") == "b"
        assert await who(first, "/b/mcp") == 404
        assert (await first.delete(path="/b/mcp")).status == 404
        assert await who(first, "/a/mcp") == "a"


@async_test
async def test_clients_without_sessions_are_served_at_each_path() -> None:
    app = Servers({"/a/mcp": named("a"), "/b/mcp": named("b")}).asgi()
    async with running(app):
        for name in "ab":
            answer = await Peer(app).sessionless("tools/call", {"name": "who"}, path=f"/{name}/mcp").done()
            assert answer.json["result"]["content"][0]["text"] == name


@async_test
async def test_an_unknown_path_is_refused_without_naming_the_others() -> None:
    app = Servers({"/secret/mcp": named("a"), "/b/mcp": named("b")}).asgi()
    async with running(app):
        for path in ("/mcp", "/", "/secret", "/b/mcp/x", "/B/mcp"):
            answer = await Peer(app).post(request(1, "ping"), path=path).done()
            assert answer.status == 404
            assert b"secret" not in answer.body
            assert b"/b/" not in answer.body


@async_test
async def test_a_mounted_application_finds_the_path_below_its_mount_point() -> None:
    app = Servers({"/a/mcp": named("a"), "/mcp": named("b")}).asgi()
    async with running(app):
        peer = Peer(app)
        await peer.initialize(path="/a/mcp", root_path="/a")
        answer = await peer.call(1, "who", path="/a/mcp", root_path="/a").done()
        assert answer.json["result"]["content"][0]["text"] == "b"


@async_test
async def test_probes_answer_for_all() -> None:
    first, second = named("a"), named("b")
    app = Servers({"/a/mcp": first, "/b/mcp": second}).asgi()
    async with running(app):
        peer = Peer(app)
        for path, word in (("/healthz", b"alive\n"), ("/readyz", b"ready\n")):
            answer = await peer.get(path=path).done()
            assert (answer.status, answer.body) == (200, word)
        second.engine.leaving = True
        answer = await peer.get(path="/readyz").done()
        assert (answer.status, answer.body) == (503, b"draining\n")
        assert (await peer.get(path="/healthz").done()).status == 200


@async_test
async def test_routes_of_a_server_keep_their_paths() -> None:
    first, second = named("a"), named("b")

    @first.route("/hello")
    async def hello(_request: HttpRequest) -> HttpResponse:
        return HttpResponse("hello")

    servers = Servers({"/a/mcp": first, "/b/mcp": second})
    app = servers.asgi()
    async with running(app):
        assert (await Peer(app).get(path="/hello").done()).body == b"hello"

    second.route("/hello")(hello)
    with pytest.raises(ConfigError, match="/hello belongs to /b/mcp and to /a/mcp"):
        servers.front(HttpSettings())


def test_a_route_may_not_hide_the_probes_of_the_others() -> None:
    server = named("a")

    @server.route("/readyz")
    async def ready(_request: HttpRequest) -> HttpResponse:
        return HttpResponse("ready")

    with pytest.raises(ConfigError, match="/readyz belongs to /a/mcp and to the probes"):
        Servers({"/a/mcp": server, "/b/mcp": named("b")}).front(HttpSettings())


def test_two_servers_at_one_path_are_refused() -> None:
    with pytest.raises(ConfigError, match="/a/mcp belongs to /a/mcp/ and to /a/mcp: give one of them"):
        Servers({"/a/mcp": named("a"), "/a/mcp/": named("b")}).front(HttpSettings())


def test_servers_that_would_share_their_sessions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least one server"):
        Servers({})
    server = named("a")
    with pytest.raises(ConfigError, match="/b and /a are the same server object"):
        Servers({"/a": server, "/b": server})
    url = f"sqlite:///{tmp_path}/s.db"
    with pytest.raises(ConfigError, match="both use the namespace 'x' of one store"):
        Servers({"/a": named("x", store=url), "/b": named("x", store=url)})
    Servers({"/a": named("x", store=url), "/b": named("y", store=url)})
    Servers({"/a": named("x", store="memory:"), "/b": named("x", store="memory:")})


@async_test
async def test_servers_share_a_store_by_their_namespaces(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    app = Servers({"/a/mcp": named("a", store=url), "/b/mcp": named("b", store=url)}).asgi()
    async with running(app):
        peer = Peer(app)
        await peer.initialize(path="/a/mcp")
        assert await who(peer, "/a/mcp") == "a"
        assert await who(peer, "/b/mcp") == 404


@async_test
async def test_one_server_that_cannot_start_ends_the_start_and_the_others() -> None:
    ended: list[str] = []

    @asynccontextmanager
    async def fine(_server: Server) -> AsyncIterator[None]:
        yield
        ended.append("a")

    @asynccontextmanager
    async def broken(server: Server) -> AsyncIterator[None]:
        if server.name == "b":
            raise RuntimeError("no database")
        yield

    front = Servers({"/a": named("a", lifespan=fine), "/b": named("b", lifespan=broken)}).front(
        HttpSettings()
    )
    with pytest.raises(RuntimeError, match="no database"):
        await front.engine.ensure_started()
    assert (front.engine.failed, ended) == ("/b", ["a"])


@async_test
async def test_the_lifespans_of_all_are_entered_and_left() -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def noted(server: Server) -> AsyncIterator[None]:
        steps.append(f"+{server.name}")
        yield
        steps.append(f"-{server.name}")

    app = Servers({f"/{name}": named(name, lifespan=noted) for name in "ab"}).asgi()
    async with running(app):
        assert steps == ["+a", "+b"]
    assert sorted(steps[2:]) == ["-a", "-b"]


@virtual_test
async def test_a_stop_waits_for_the_calls_of_all() -> None:
    slow = {name: Server(name) for name in "ab"}
    began = asyncio.Semaphore(0)

    async def work() -> str:
        began.release()
        await asyncio.sleep(20)
        return "done"

    for server in slow.values():
        server.add_tool(work)
    app = Servers({f"/{name}": server for name, server in slow.items()}).front(HttpSettings())
    calls = []
    async with running(app):
        for name in slow:
            peer = Peer(app)
            await peer.initialize(path=f"/{name}")
            calls.append(peer.call(1, "work", path=f"/{name}"))
            await began.acquire()
        assert app.engine.in_flight() == ["work", "work"]
    for call in calls:
        assert (await call.done()).messages[-1]["result"]["content"][0]["text"] == "done"


def test_connections_get_the_widest_limits_of_all() -> None:
    first = named("a", settings=Settings(limits=Limits(headers=10, threads=3), times=Times(drain=1)))
    second = named("b", settings=Settings(limits=Limits(headers=20, threads=2), times=Times(drain=5)))
    shared = Servers({"/a": first, "/b": second}).front(HttpSettings()).engine.settings
    assert (shared.limits.headers, shared.limits.threads, shared.times.drain) == (20, 3, 5)


def test_a_server_that_other_machines_could_call_anonymously_is_named() -> None:
    async def check(_token: str) -> None: ...

    front = Servers({"/a": named("a", verifier=check), "/b": named("b")}).front(
        HttpSettings(allowed_hosts=("*",))
    )
    check_exposure(front, "127.0.0.1")
    with pytest.raises(ConfigError, match=r"/b at .* can be reached from other machines"):
        check_exposure(front, "0.0.0.0")
