"""The head of a request: Host, Origin, Accept, Content-Type, version, method, path."""

from typing import Any

import pytest

from limpet.config import HttpSettings
from limpet.fronts.http.decide.host_and_origin import HeadRules
from limpet.fronts.http.read.head import Head
from limpet.fronts.http.read.request import RawRequest
from tests.asgi import Call
from tests.messages import BOTH, LATEST, notification, request
from tests.unit.fronts.http.bench import REVISIONS, bench, front_test

INVALID = -32600


def refusal(call: Call, status: int, code: int = INVALID) -> dict[str, Any]:
    """Return the error object of a refusal without an id."""
    assert call.status == status, call.body
    assert set(call.json) == {"jsonrpc", "error"}
    error: dict[str, Any] = call.json["error"]
    assert error["code"] == code
    return error


def test_of_a_long_session_id_only_the_beginning_is_kept() -> None:
    sent = RawRequest.of("POST", "/mcp", [(b"mcp-session-id", b"x" * 16_000)], None)
    assert sent.session_id == sent.changed({b"mcp-session-id": b"x" * 15_000}).session_id == "x" * 128


# Host and Origin


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8000", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:99", "[::1]", "[::1]:8000"],
)
@front_test
async def test_hosts_of_this_machine_are_served(host: str) -> None:
    async with bench() as b:
        assert (await b.peer().initialize(headers={"host": host})).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.com", "localhost.evil.com", "localhost:80@evil", "localhost@evil", "a/b?c#d", "127.0.0.1.evil",
     "::1", "[::1", "localhost:", "localhost:x", "localhost:80:80", "", "127.0.0.2", "localhost evil"],
)  # fmt: skip
@front_test
async def test_other_hosts_get_421(host: str) -> None:
    async with bench() as b:
        refusal(await b.peer().initialize(headers={"host": host}), 421)
        assert await b.store.sessions() == []


@front_test
async def test_a_request_without_host_gets_421() -> None:
    async with bench() as b:
        refusal(await b.peer().initialize(headers={"host": None}), 421)


@pytest.mark.parametrize(
    ("allowed", "host", "status"),
    [
        ("mcp.example.com", "MCP.example.com", 200),
        ("mcp.example.com", "mcp.example.com:8443", 200),
        ("mcp.example.com:8443", "mcp.example.com:8443", 200),
        ("mcp.example.com:8443", "mcp.example.com:9000", 421),
        ("mcp.example.com", "localhost", 421),
        ("*", "anything.at.all", 200),
    ],
)
@front_test
async def test_a_list_of_hosts_replaces_the_default(allowed: str, host: str, status: int) -> None:
    async with bench(allowed_hosts=(allowed,)) as b:
        assert (await b.peer().initialize(headers={"host": host})).status == status


@pytest.mark.parametrize(
    "origin",
    [
        "http://localhost",
        "http://localhost:5173",
        "https://127.0.0.1:8443",
        "http://[::1]:3000",
        "http://[::1]",
    ],
)
@front_test
async def test_pages_of_this_machine_may_call_and_read_the_answer(origin: str) -> None:
    async with bench() as b:
        opened = await b.peer().initialize(headers={"origin": origin})
    assert opened.status == 200
    assert opened.headers["access-control-allow-origin"] == origin
    assert "mcp-session-id" in opened.headers["access-control-expose-headers"]
    assert opened.headers["vary"] == "origin"


@pytest.mark.parametrize(
    "origin",
    ["http://evil.com", "null", "http://localhost.evil.com", "http://localhost:80@evil.com", "localhost",
     "http://evil.com#localhost", "file://localhost", "http://localhost/", "https://app.example.evil",
     "http://app.example", "https://sub.app.example", "*"],
)  # fmt: skip
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "OPTIONS"])
@front_test
async def test_pages_of_other_origins_get_403_on_every_method(origin: str, method: str) -> None:
    async with bench(allowed_origins=("https://app.example",)) as b:
        refused = await b.peer().send(method, b"{}", headers={"origin": origin}).done()
        refusal(refused, 403)
        assert "access-control-allow-origin" not in refused.headers


@front_test
async def test_a_listed_origin_may_call() -> None:
    async with bench(allowed_origins=("https://app.example",)) as b:
        opened = await b.peer().initialize(headers={"origin": "https://app.example"})
    assert opened.headers["access-control-allow-origin"] == "https://app.example"


@front_test
async def test_a_page_may_read_why_it_was_refused() -> None:
    async with bench() as b:
        p = b.peer()
        origin = {"origin": "http://localhost:5173"}
        for refused, status in (
            (p.post({}, headers={**origin, "accept": "text/html"}), 406),
            (p.post({}, headers={**origin, "content-type": "text/plain"}), 415),
            (p.post({}, headers=origin), 400),
            (p.send("PUT", headers=origin), 405),
        ):
            assert (await refused.done()).status == status
            assert refused.headers["access-control-allow-origin"] == "http://localhost:5173"


@front_test
async def test_without_an_origin_header_there_are_no_cors_headers() -> None:
    async with bench() as b:
        opened = await b.peer().initialize()
    assert not [name for name in opened.headers if name.startswith("access-control")]


@front_test
async def test_a_preflight_is_answered_without_touching_anything() -> None:
    async with bench(allowed_origins=("https://app.example",)) as b:
        asked = {
            "origin": "https://app.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "mcp-session-id",
        }
        answer = await b.peer().send("OPTIONS", headers=asked).done()
        assert (answer.status, answer.body) == (204, b"")
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        assert set(answer.headers["access-control-allow-methods"].split(", ")) == {"GET", "POST", "DELETE"}
        allowed = set(answer.headers["access-control-allow-headers"].split(", "))
        assert allowed >= {
            "authorization",
            "content-type",
            "mcp-session-id",
            "mcp-protocol-version",
            "last-event-id",
        }
        assert answer.headers["access-control-max-age"] == "86400"
        assert "access-control-allow-credentials" not in answer.headers


@front_test
async def test_a_preflight_needs_no_token() -> None:
    async def refuse(token: str) -> None:
        return None

    async with bench(verifier=refuse) as b:
        assert (await b.peer().send("OPTIONS", headers={"origin": "http://localhost"}).done()).status == 204


# Headers given twice


@pytest.mark.parametrize(
    "name", ["origin", "host", "mcp-session-id", "mcp-protocol-version", "content-type", "authorization",
             "content-length", "content-encoding", "last-event-id"],
)  # fmt: skip
@front_test
async def test_a_header_given_twice_gets_400(name: str) -> None:
    async with bench() as b:
        p = b.peer()
        twice = [(name.encode(), b"localhost"), (name.encode(), b"localhost")]
        sent = p.post(request(1, "ping"), headers={name: None}, raw=twice)
        assert name in refusal(await sent.done(), 400)["message"]


@front_test
async def test_accept_may_come_in_several_lines() -> None:
    async with bench() as b:
        lines = [(b"accept", b"application/json"), (b"accept", b"text/event-stream")]
        assert (await b.peer().initialize(headers={"accept": None}, raw=lines)).status == 200


# Accept and Content-Type


@pytest.mark.parametrize(
    "accept",
    [
        BOTH,
        "*/*",
        "application/*, text/*",
        "text/event-stream;q=0.5,APPLICATION/JSON;q=1",
        "text/html, */*;q=0.1",
    ],
)
@front_test
async def test_a_post_that_takes_both_forms_is_served(accept: str) -> None:
    async with bench() as b:
        assert (await b.peer().initialize(headers={"accept": accept})).status == 200


@pytest.mark.parametrize(
    "accept",
    ["application/json", "text/event-stream", "text/html", "", None, "application/jsonx, text/event-streams"],
)
@front_test
async def test_a_post_that_does_not_take_both_forms_gets_406(accept: str | None) -> None:
    async with bench() as b:
        refusal(await b.peer().initialize(headers={"accept": accept}), 406)


@pytest.mark.parametrize(
    ("accept", "status"), [("application/json", 406), (None, 406), ("text/event-stream", 200)]
)
@front_test
async def test_a_get_must_take_event_streams(accept: str | None, status: int) -> None:
    async with bench() as b:
        p = b.peer()
        await p.initialize()
        call = p.get(headers={"accept": accept})
        await call.begun()
        assert call.status == status
        await call.cut()


@pytest.mark.parametrize("value", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
@front_test
async def test_json_is_taken_under_its_usual_names(value: str) -> None:
    async with bench() as b:
        assert (await b.peer().initialize(headers={"content-type": value})).status == 200


@pytest.mark.parametrize(
    "value",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", "", None,
     "text/plain; application/json"],
)  # fmt: skip
@front_test
async def test_other_content_types_get_415_and_nothing_runs(value: str | None) -> None:
    async with bench() as b:
        refusal(await b.peer().initialize(headers={"content-type": value}), 415)
        assert await b.store.sessions() == []


@pytest.mark.parametrize(
    ("encoding", "status"), [("gzip", 415), ("br", 415), ("identity", 200), ("Identity", 200)]
)
@front_test
async def test_encoded_bodies_are_not_taken(encoding: str, status: int) -> None:
    async with bench() as b:
        assert (await b.peer().initialize(headers={"content-encoding": encoding})).status == status


# The version header


@pytest.mark.parametrize("version", [*REVISIONS, None])
@front_test
async def test_each_supported_version_and_a_missing_one_are_served(version: str | None) -> None:
    async with bench() as b:
        p = b.peer()
        await p.initialize()
        assert (await p.call(1, headers={"mcp-protocol-version": version}).done()).status == 200


@pytest.mark.parametrize("version", ["2024-11-05", "2027-01-01", "1.0", "2025-11-25 ", "latest"])
@front_test
async def test_an_unsupported_version_gets_400_with_the_ones_that_are(version: str) -> None:
    async with bench() as b:
        p = b.peer()
        await p.initialize()
        wrong: dict[str, str | None] = {"mcp-protocol-version": version}
        post = await p.call(7, headers=wrong).done()
        assert (post.status, post.json["id"], post.json["error"]["code"]) == (400, 7, INVALID)
        assert LATEST in post.json["error"]["message"]
        refusal(await p.get(headers=wrong).done(), 400)
        refusal(await p.delete(headers=wrong), 400)
        assert b.runs == []
        assert (await p.call(1).done()).status == 200


@front_test
async def test_initialize_is_not_judged_by_the_version_header() -> None:
    async with bench() as b:
        assert (await b.peer().initialize(headers={"mcp-protocol-version": "1999-01-01"})).status == 200


# Methods and paths


@pytest.mark.parametrize("method", ["PUT", "PATCH", "HEAD", "OPTIONS", "TRACE", "post"])
@front_test
async def test_other_methods_get_405_with_an_allow_header(method: str) -> None:
    async with bench() as b:
        refused = await b.peer().send(method).done()
        refusal(refused, 405)
        assert refused.headers["allow"] == "GET, POST, DELETE"


@pytest.mark.parametrize(
    ("path", "root", "status"),
    [
        ("/mcp", "", 200),
        ("/mcp/", "", 200),
        ("/api/mcp", "/api", 200),
        ("/api/mcp/", "/api", 200),
        ("/mcp", "/api", 200),
        ("/", "", 404),
        ("/mcp2", "", 404),
        ("/MCP", "", 404),
        ("/mcp/mcp", "", 404),
        ("/api/mcp", "", 404),
        ("/apimcp", "/api", 404),
    ],
)
@front_test
async def test_the_endpoint_is_one_path_below_the_mount_point(path: str, root: str, status: int) -> None:
    async with bench() as b:
        opened = await b.peer().initialize(path=path, root_path=root)
        assert opened.status == status
        if status == 404:
            assert "/mcp" in refusal(opened, 404)["message"]


@pytest.mark.parametrize(
    ("mounted", "path"), [("/", "/"), ("/", ""), ("/v1/mcp/", "/v1/mcp"), ("/v1/mcp", "/v1/mcp/")]
)
@front_test
async def test_the_endpoints_own_path_may_end_in_a_slash_or_be_the_root(mounted: str, path: str) -> None:
    async with bench(path=mounted) as b:
        assert (await b.peer().initialize(path=path)).status == 200


# Session ids


@front_test
async def test_a_missing_session_id_gets_400_with_the_requests_id() -> None:
    async with bench() as b:
        p = b.peer()
        post = await p.call("a").done()
        assert (post.status, post.json["id"], post.json["error"]["code"]) == (400, "a", INVALID)
        refusal(await p.post(notification("notifications/initialized")).done(), 400)
        refusal(await p.post([request(1, "ping")]).done(), 400)
        refusal(await p.get().done(), 400)
        refusal(await p.delete(), 400)


@front_test
async def test_an_unknown_session_id_gets_404_and_is_never_adopted() -> None:
    async with bench() as b:
        p = b.peer()
        p.session = "chosen-by-me"
        post = await p.call(3).done()
        assert (post.status, post.json["id"], post.json["error"]["code"]) == (404, 3, -32001)
        refusal(await p.post(notification("notifications/initialized")).done(), 404, -32001)
        refusal(await p.post([request(1, "ping")]).done(), 404, -32001)
        refusal(await p.post({"jsonrpc": "2.0", "id": "x", "result": {}}).done(), 404, -32001)
        refusal(await p.get().done(), 404, -32001)
        refusal(await p.get("not.a.position").done(), 404, -32001)
        refusal(await p.delete(), 404, -32001)
        opened = await p.initialize()
        assert opened.headers["mcp-session-id"] not in {"", "chosen-by-me"}
        assert b.runs == []


@front_test
async def test_anything_but_http_and_lifespan_is_refused_loudly() -> None:
    async with bench() as b:
        with pytest.raises(RuntimeError, match="websocket"):
            await b.peer().send("GET", type="websocket").done()


def test_a_changed_head_keeps_its_lines_in_their_order() -> None:
    lines = [(b"a", b"1"), (b"mcp-name", b"one"), (b"a", b"2")]
    head = Head(lines).changed({b"mcp-name": b"two"})
    assert head.lines == [(b"a", b"1"), (b"mcp-name", b"two"), (b"a", b"2")]
    assert dict(head) == {"a": "1, 2", "mcp-name": "two"}
    assert Head(lines).lines == lines


# Remembered heads

GOOD = {
    b"host": b"localhost",
    b"origin": b"http://localhost",
    b"accept": b"application/json, text/event-stream",
    b"content-type": b"application/json",
    b"content-encoding": b"identity",
}


def status_of(rules: HeadRules, method: str, values: dict[bytes, bytes]) -> int | None:
    """Return the status with which the rules refuse a head; None if it passes."""
    refused = rules.check(method, Head(list(values.items())))
    return None if refused is None else refused.status


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        (b"host", b"evil.example", 421),
        (b"origin", b"http://evil.example", 403),
        (b"accept", b"text/plain", 406),
        (b"content-type", b"text/plain", 415),
        (b"content-encoding", b"gzip", 415),
    ],
)
def test_a_head_that_passes_lets_no_other_head_pass_and_a_refused_one_is_refused_again(
    name: bytes, value: bytes, status: int
) -> None:
    rules = HeadRules(HttpSettings())
    bad = GOOD | {name: value}
    found = [status_of(rules, "POST", head) for head in (bad, bad, GOOD, bad, GOOD)]
    assert found == [status, status, None, status, None]


def test_a_head_that_passes_for_one_method_is_checked_for_the_others() -> None:
    rules = HeadRules(HttpSettings())
    assert [status_of(rules, method, {b"host": b"localhost"}) for method in ("DELETE", "POST", "GET")] == [
        None,
        415,
        406,
    ]


def test_a_bounded_number_of_heads_is_remembered() -> None:
    rules = HeadRules(HttpSettings(allowed_hosts=("*",)))
    for number in range(1_500):
        assert status_of(rules, "DELETE", {b"host": b"h%d" % number}) is None
    assert len(rules._passed) == 1_024
