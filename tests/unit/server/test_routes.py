"""Custom HTTP routes beside the endpoint."""

import json
from typing import Any

import pytest

from holdfast import HttpRequest, HttpResponse, Server
from holdfast.errors import ConfigError
from tests.support import async_test


async def fetch(
    server: Server,
    method: str,
    path: str,
    body: bytes = b"",
    query: bytes = b"",
    host: bytes = b"localhost",
) -> tuple[int, dict[str, str], bytes]:
    sent: list[dict[str, Any]] = []
    halves: list[dict[str, Any]] = [{"body": body[:1], "more_body": True}, {"body": body[1:]}]

    async def receive() -> Any:
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
