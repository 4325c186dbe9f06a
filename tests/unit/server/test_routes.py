"""Custom HTTP routes beside the endpoint."""

import asyncio
import json
import logging
from typing import Any

import pytest

from limpet import Server
from limpet.config import HttpSettings
from limpet.errors import ConfigError
from limpet.routes import HttpRequest, HttpResponse
from tests.asgi import Call, Peer
from tests.support import async_test, virtual_test
from tests.unit.server.post_office import METADATA, Known


class Cut(Exception):
    """The client sees no answer."""


async def fetch(
    server: Server,
    method: str,
    path: str,
    body: bytes = b"",
    query: bytes = b"",
    host: bytes = b"localhost",
    *,
    cut: bool = False,
) -> tuple[int, dict[str, str], bytes]:
    sent: list[dict[str, Any]] = []
    halves: list[dict[str, Any]] = [{"body": body[:1], "more_body": True}, {"body": body[1:]}]

    async def receive() -> Any:
        if cut and len(halves) == 1:
            return {"type": "http.disconnect"}
        return {"type": "http.request", **halves.pop(0)}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "root_path": "",
        "query_string": query,
        "headers": [(b"host", host), (b"X-Name", b"ada")],
        "client": ("127.0.0.1", 1),
    }
    await server.asgi()(scope, receive, send)
    if not sent:
        raise Cut
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(item["body"] for item in sent[1:])


def routed() -> Server:
    server = Server("s")

    @server.route("/health")
    async def health(_request: HttpRequest) -> HttpResponse:
        return HttpResponse("fine")

    @server.route("/echo", methods=["post", "PUT"])
    async def echo(request: HttpRequest) -> HttpResponse:
        told = {
            "method": request.method,
            "body": request.body.decode(),
            "query": request.query,
            "name": request.headers["x-name"],
            "client": request.client,
        }
        return HttpResponse(told, 201, {"X-Extra": "1"})

    return server


@async_test
async def test_a_route_gets_the_request_and_answers() -> None:
    status, headers, body = await fetch(routed(), "POST", "/echo", b"hello", b"a=1&b=")
    assert (status, headers["x-extra"], headers["content-type"]) == (201, "1", "application/json")
    assert json.loads(body) == {
        "method": "POST",
        "body": "hello",
        "query": {"a": "1", "b": ""},
        "name": "ada",
        "client": "127.0.0.1",
    }
    assert int(headers["content-length"]) == len(body)


@async_test
async def test_a_head_request_gets_the_head_of_the_answer() -> None:
    status, headers, body = await fetch(routed(), "HEAD", "/health")
    assert (status, headers["content-length"], body) == (200, "4", b"")


@async_test
async def test_a_method_that_a_route_has_not_is_not_allowed_and_large_bodies_are_refused() -> None:
    status, headers, _ = await fetch(routed(), "GET", "/echo")
    assert (status, headers["allow"]) == (405, "POST, PUT")
    status, _, _ = await fetch(routed(), "PUT", "/echo", b"x" * (4 * 1024 * 1024 + 1))
    assert status == 413


def test_a_path_begins_with_a_slash() -> None:
    async def health(_request: HttpRequest) -> HttpResponse:
        return HttpResponse("fine")

    with pytest.raises(ConfigError, match="slash"):
        Server("s").route("health")(health)


@async_test
async def test_a_route_is_served_to_the_same_hosts_and_origins_as_the_endpoint() -> None:
    status, _, _ = await fetch(routed(), "GET", "/health", host=b"evil.example")
    assert status == 421
    status, _, _ = await fetch(routed(), "GET", "/health", host=b"localhost:8000")
    assert status == 200


@async_test
async def test_a_route_does_not_run_on_a_body_that_was_cut_off() -> None:
    ran: list[bytes] = []
    server = Server("s")

    @server.route("/pay", methods=["POST"])
    async def pay(request: HttpRequest) -> HttpResponse:
        ran.append(request.body)
        return HttpResponse("paid")

    with pytest.raises(Cut):
        await fetch(server, "POST", "/pay", b"amount=100", cut=True)
    assert ran == []
    assert (await fetch(server, "POST", "/pay", b"amount=100"))[0] == 200
    assert ran == [b"amount=100"]


@virtual_test
async def test_a_route_does_not_run_on_a_body_that_never_ends() -> None:
    server, ran = Server("s"), False

    @server.route("/pay", methods=["POST"])
    async def pay(_request: HttpRequest) -> HttpResponse:
        nonlocal ran
        ran = True
        return HttpResponse("paid")

    peer = Peer(server.asgi())
    call = await peer.send("POST", b"amount", 1_000.0, b"=100", path="/pay").done()
    assert (call.status, ran) == (408, False)


@pytest.mark.parametrize(
    "error", [ValueError('x" path=/other\nsession.opened'), FileNotFoundError("menu.txt")]
)
def test_a_route_that_fails_gets_500_and_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    server = Server("s")

    @server.route("/broken")
    async def broken(_request: HttpRequest) -> HttpResponse:
        raise error

    with caplog.at_level(logging.INFO):
        status, _, body = asyncio.run(fetch(server, "GET", "/broken"))
    assert status == 500
    assert str(error).encode() not in body
    [told] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert told.getMessage().startswith("route.failed path=/broken error=")
    assert all(line.startswith(("route.failed", "  | ")) for line in _formatted(told).splitlines())


def _formatted(record: logging.LogRecord) -> str:
    return logging.Formatter("%(message)s").format(record)


# Routes that demand a principal


def guarded() -> Server:
    server = Server("s", verifier=Known())

    @server.route("/me", methods=["GET", "POST"], principal=True)
    async def me(request: HttpRequest) -> HttpResponse:
        assert request.principal is not None
        return HttpResponse(request.principal.subject)

    @server.route("/report", scopes={"report"})
    async def report(request: HttpRequest) -> HttpResponse:
        assert request.principal is not None
        return HttpResponse(sorted(request.principal.scopes))

    @server.route("/report", methods=["POST"])
    async def public(request: HttpRequest) -> HttpResponse:
        return HttpResponse(str(request.principal))

    return server


@async_test
async def test_a_route_may_demand_a_principal_and_scopes() -> None:
    app = guarded().asgi()

    async def get(path: str, token: str, method: str = "GET") -> Call:
        return await Peer(app, token=token).send(method, path=path).done()

    for path, method in (("/me", "GET"), ("/me", "HEAD"), ("/me", "POST"), ("/report", "HEAD")):
        refused = await get(path, "", method)
        assert (refused.status, refused.headers["www-authenticate"]) == (401, f"Bearer {METADATA}")
    assert (await get("/me", "none")).body == b"ada"
    missing = await get("/report", "cook")
    assert missing.status == 403
    assert missing.headers["www-authenticate"] == (
        f'Bearer error="insufficient_scope", scope="report", {METADATA}'
    )
    assert json.loads((await get("/report", "report+cook")).body) == ["cook", "report"]
    assert (await get("/report", "", "POST")).body == b"None", "each method has its own demand"
    assert (await get("/me", "", "DELETE")).status == 405
    found = await get("/.well-known/oauth-protected-resource", "")
    assert found.json["scopes_supported"] == ["report"]


def test_a_route_that_demands_a_principal_needs_a_verifier() -> None:
    server = guarded()
    server.verifier = None
    with pytest.raises(ConfigError, match="the route /me demands a principal"):
        server.front(HttpSettings())
