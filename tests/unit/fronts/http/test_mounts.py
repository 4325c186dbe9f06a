"""Inside other applications: Starlette, FastAPI, several endpoints in a process, lifespan or none."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route

from limpet import Context, Server
from limpet.auth.verifiers import JwtVerifier
from limpet.fronts.http.read.request import Application
from limpet.server.authoring.routes import HttpRequest, HttpResponse
from tests.asgi import Peer
from tests.messages import request
from tests.unit.fronts.http.bench import bench, front_test


def server_of(name: str) -> Server:
    """Return a server whose tools say its name: `who` at once, `chat` after two messages and a second."""
    server = Server(name)

    @server.tool
    async def who() -> str:
        return name

    @server.tool
    async def chat(ctx: Context) -> str:
        await ctx.progress(1)
        await ctx.progress(2)
        await asyncio.sleep(1)
        return name

    return server


def asgi(app: object) -> Application:
    """Return an application as the test's client takes it: frameworks type theirs in their own way."""
    return cast("Application", app)


async def says(peer: Peer, path: str, tool: str = "who") -> str:
    """Return the text a tool answers, after an initialize where there was none."""
    if not peer.session:
        assert (await peer.initialize(path=path, query_string=b"")).status == 200
    params = {"name": tool, "arguments": {}, "_meta": {"progressToken": 1}}
    call = await peer.post(request(1, "tools/call", params), path=path, query_string=b"").done()
    message = call.messages[-1] if call.is_stream else call.json
    text: str = message["result"]["content"][0]["text"]
    return text


class Lifespan:
    """A host that speaks the lifespan protocol."""

    def __init__(self, app: Application) -> None:
        self.sent: list[MutableMapping[str, Any]] = []
        self._stop = asyncio.Event()
        self._asked = 0
        self.task = asyncio.ensure_future(app({"type": "lifespan"}, self._receive, self._send))

    async def _receive(self) -> MutableMapping[str, Any]:
        self._asked += 1
        if self._asked == 1:
            return {"type": "lifespan.startup"}
        await self._stop.wait()
        return {"type": "lifespan.shutdown"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        self.sent.append(message)

    async def stop(self) -> None:
        """Shut down."""
        self._stop.set()
        await self.task


# Frameworks


@front_test
async def test_it_mounts_in_starlette_without_any_wiring() -> None:
    server = server_of("one")
    app = Starlette(routes=[Route("/hello", _hello), Mount("/api", app=server.asgi("/mcp"))])
    peer = Peer(asgi(app))
    async with aclosing(server.engine):
        assert await says(peer, "/api/mcp") == "one"
        assert await says(peer, "/api/mcp/") == "one"
        assert await says(peer, "/api/mcp", "chat") == "one"
        assert (await peer.send("GET", path="/hello", query_string=b"").done()).body == b"hello"
        assert (await peer.send("POST", b"{}", path="/api/other", query_string=b"").done()).status == 404


async def _hello(_request: StarletteRequest) -> Response:
    return PlainTextResponse("hello")


@front_test
async def test_it_mounts_at_the_root_beside_other_routes() -> None:
    server = server_of("one")
    app = Starlette(routes=[Route("/hello", _hello), Mount("/", app=server.asgi())])
    peer = Peer(asgi(app))
    async with aclosing(server.engine):
        assert await says(peer, "/mcp") == "one"
        assert (await peer.send("GET", path="/hello", query_string=b"").done()).body == b"hello"


@front_test
async def test_it_mounts_in_fastapi_and_takes_part_in_its_lifespan_where_asked() -> None:
    server = server_of("one")
    endpoint = server.asgi("/mcp")

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with aclosing(server.engine):
            await server.engine.ensure_started()
            yield

    app = FastAPI(lifespan=lifespan)
    app.mount("/tools", endpoint)
    host = Lifespan(asgi(app))
    peer = Peer(asgi(app))
    assert await says(peer, "/tools/mcp") == "one"
    await host.stop()
    assert [message["type"] for message in host.sent] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]
    assert not server.engine.started


@front_test
async def test_a_stream_behind_a_frameworks_middleware_is_cut_and_resumed() -> None:
    async with bench() as b:
        app = FastAPI()

        @app.middleware("http")
        async def passing(
            request: StarletteRequest, call_next: Callable[[StarletteRequest], Awaitable[Response]]
        ) -> Response:
            response = await call_next(request)
            response.headers["x-passed"] = "yes"
            return response

        app.mount("/api", b.app)
        peer = Peer(asgi(app))
        where: dict[str, Any] = {"path": "/api/mcp", "query_string": b""}
        await peer.initialize(**where)
        call = await peer.call(1, "ticks", **where).until(2)
        assert call.headers["x-passed"] == "yes"
        await call.cut()
        await asyncio.sleep(0.1)
        assert b.back.events[-1] == "detached"
        b.release.set()
        resumed = await peer.get(call.ids[1], **where).done()
        assert resumed.progress == [2, "end"]


# Several in one process


@front_test
async def test_two_servers_in_one_process_keep_apart() -> None:
    one, two = server_of("one"), server_of("two")
    app = asgi(Starlette(routes=[Mount("/one", app=one.asgi()), Mount("/two", app=two.asgi())]))
    first, second = Peer(app), Peer(app)
    async with aclosing(two.engine):
        assert await says(first, "/one/mcp") == "one"
        assert await says(second, "/two/mcp") == "two"
        strayed = await first.post(request(2, "ping"), path="/two/mcp", query_string=b"").done()
        assert strayed.status == 404
        await one.engine.aclose()
        assert await says(second, "/two/mcp") == "two"


@front_test
async def test_two_mounts_of_one_server_share_its_sessions() -> None:
    server = server_of("one")
    app = asgi(
        Starlette(routes=[Mount("/a", app=server.asgi(response="json")), Mount("/b", app=server.asgi("/x"))])
    )
    peer = Peer(app)
    async with aclosing(server.engine):
        assert await says(peer, "/a/mcp") == "one"
        assert await says(peer, "/b/x") == "one"


# Starting and stopping


@front_test
async def test_without_lifespan_it_starts_once_on_first_use() -> None:
    entered: list[str] = []

    async def lifespan() -> AsyncIterator[str]:
        entered.append("in")
        await asyncio.sleep(1)
        yield "value"
        entered.append("out")

    server = Server("slow to start", lifespan=lifespan)

    @server.tool
    async def value(ctx: Context) -> str:
        return str(ctx.lifespan)

    app = server.asgi()
    texts = await asyncio.gather(*(says(Peer(app), "/mcp", "value") for _ in range(3)))
    assert texts == ["value"] * 3
    assert entered == ["in"]
    await server.engine.aclose()
    assert entered == ["in", "out"]


@front_test
async def test_with_lifespan_it_starts_before_the_first_request_and_ends_with_the_host() -> None:
    async with bench() as b:
        host = Lifespan(b.app)
        await asyncio.sleep(0.1)
        assert host.sent == [{"type": "lifespan.startup.complete"}]
        assert b.back.events == ["start"]
        peer = b.peer()
        await peer.initialize()
        listener = await peer.get().begun()
        call = await peer.call(1, "ticks").until(2)
        before = asyncio.get_running_loop().time()
        await host.stop()
        assert host.sent[-1] == {"type": "lifespan.shutdown.complete"}
        assert asyncio.get_running_loop().time() - before >= 30
        await listener.done()
        await call.done()
        assert call.messages[-1]["error"]["code"] == -32800
        assert b.back.events[-2:] == ["closed: shutdown", "stop"]


async def _connect() -> None:
    raise RuntimeError("no database at db:5432")


@front_test
async def test_a_failed_start_is_reported_to_the_host_with_its_message() -> None:
    async def lifespan() -> AsyncIterator[None]:
        await _connect()
        yield

    server = Server("broken", lifespan=lifespan)
    host = Lifespan(server.asgi())
    await host.task
    [failed] = host.sent
    assert failed["type"] == "lifespan.startup.failed"
    assert "no database at db:5432" in failed["message"]


@front_test
async def test_a_start_that_failed_is_tried_again_by_the_next_request() -> None:
    attempts: list[int] = []

    async def lifespan() -> AsyncIterator[None]:
        attempts.append(1)
        if len(attempts) == 1:
            raise RuntimeError("not yet")
        yield

    server = Server("late", lifespan=lifespan)
    app = server.asgi()
    async with aclosing(server.engine):
        with pytest.raises(RuntimeError, match="not yet"):
            await Peer(app).initialize()
        assert (await Peer(app).initialize()).status == 200


# Custom routes


@pytest.mark.parametrize("path", ["/health", "/health/"])
@front_test
async def test_custom_routes_live_beside_the_endpoint(path: str) -> None:
    server = server_of("one")

    @server.route(path)
    async def health(request: HttpRequest) -> HttpResponse:
        return HttpResponse({"method": request.method, "query": request.query})

    peer = Peer(server.asgi())
    other = "/health/" if path == "/health" else "/health"
    async with aclosing(server.engine):
        assert (await peer.send("GET", path=other).done()).status == 404
        call = await peer.send("GET", path=path, query_string=b"a=1").done()
        assert (call.status, call.json) == (200, {"method": "GET", "query": {"a": "1"}})
        assert (await peer.send("POST", path=path, query_string=b"").done()).status == 405
        assert (await peer.initialize()).status == 200


@front_test
async def test_custom_routes_are_below_the_mount_point_too() -> None:
    server = server_of("one")

    @server.route("/health")
    async def health(_request: HttpRequest) -> HttpResponse:
        return HttpResponse("fine")

    peer = Peer(asgi(Starlette(routes=[Mount("/api", app=server.asgi())])))
    assert (await peer.send("GET", path="/api/health", query_string=b"").done()).body == b"fine"
    assert (await peer.send("GET", path="/health", query_string=b"").done()).status == 404


@front_test
async def test_a_server_with_a_verifier_is_mounted_at_the_root_so_that_clients_find_its_metadata() -> None:
    server = Server("kitchen", verifier=JwtVerifier(issuer="https://id.example", audience="kitchen"))
    peer = Peer(asgi(Starlette(routes=[Mount("/", server.asgi(path="/kitchen/mcp"))])))
    async with aclosing(server.engine):
        refused = await peer.send("POST", b"{}", path="/kitchen/mcp").done()
        path = "/.well-known/oauth-protected-resource/kitchen/mcp"
        assert f'resource_metadata="http://localhost:8000{path}"' in refused.headers["www-authenticate"]
        found = await peer.send("GET", path=path).done()
        assert found.json["resource"] == "http://localhost:8000/kitchen/mcp"
