"""The admin surface: every route passes the same guard, and only POST changes anything."""

import asyncio
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

import pytest

from limpet.errors import StoreUnavailable
from limpet.fronts.http.asgi_host.asgi_channel import AsgiChannel, request_of
from limpet.fronts.http.read.request import Receive, Scope, Send
from limpet.ops.admin.admin_guard import GUESSES
from limpet.ops.admin.surface import ROUTES, Surface
from limpet.ops.metrics import families
from limpet.ops.metrics.samples import Sample, number
from limpet.ops.ring import Happened
from limpet.ops.views import FiguresView, FleetState, ShownSession
from limpet.testing import NotingObserver
from tests.asgi import Call, Peer
from tests.http.paper import settled
from tests.support import LoopClock, virtual_test
from tests.unit.fronts.http.http1.test_protocol import connected_to

TOKEN: Final = "operator-token"
HOST: Final = "127.0.0.1:9000"
PATHS: Final = [(method, "/" + "/".join(form).replace("*", "one")) for form, (method, _) in ROUTES.items()]


class Fake:
    """A fleet with one session and one call, both named `one`."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.away = False

    async def state(self, page: str, after: int) -> FleetState:
        if self.away:
            raise StoreUnavailable("the store does not answer")
        return FleetState(page, [], FiguresView(), [], [], str(after), [], [], {})

    async def session(self, name: str) -> tuple[ShownSession | None, list[Happened]]:
        found = ShownSession("one", "client", "2025-11-25", "attached", None, "")
        return (found if name == "one" else None), []

    async def find(self, correlation: str) -> list[Happened]:
        return [Happened(1, 0.0, "handler.failed", {"correlation": correlation})]

    async def close_session(self, name: str) -> bool:
        self.done.append(f"closed {name}")
        if self.away:
            raise StoreUnavailable("the store does not answer")
        return name == "one"

    async def cancel_call(self, name: str) -> bool:
        self.done.append(f"cancelled {name}")
        return name == "one"

    async def metrics(self) -> list[Sample]:
        return [number(families.PROCESSES, 1)]


class Operator:
    """Sends requests to a surface; the defaults are those that are served."""

    def __init__(self) -> None:
        self.fleet = Fake()
        self.observer = NotingObserver()
        self.surface = Surface(self.fleet, TOKEN, self.observer, [HOST], clock=LoopClock())

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.surface.serve(request_of(scope), AsgiChannel(scope, receive, send))

    def begin(
        self, method: str, path: str, headers: Mapping[str, str | None] | None = None, query: str = ""
    ) -> Call:
        sent = {"host": HOST, "authorization": f"Bearer {TOKEN}", **(headers or {})}
        return Peer(self.serve).send(method, headers=sent, path=path, query_string=query.encode())

    async def send(self, *args: Any, **options: Any) -> Call:
        return await self.begin(*args, **options).done()


@virtual_test
async def test_the_page_is_served_without_a_token_and_can_load_nothing_else() -> None:
    operator = Operator()
    for path, kind in {
        "/": "html",
        "/style.css": "css",
        "/app.js": "javascript",
        "/view.js": "javascript",
    }.items():
        answer = await operator.send("GET", path, {"authorization": None})
        assert answer.status == 200
        assert kind in answer.headers["content-type"]
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
    assert (await operator.send("POST", "/")).status == 405


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize(
    ("headers", "status", "reason"),
    [
        ({"authorization": None}, 401, "admin_token"),
        ({"authorization": "Bearer wrong"}, 401, "admin_token"),
        ({"authorization": f"Basic {TOKEN}"}, 401, "admin_token"),
        ({"host": "evil.example"}, 421, "host"),
        ({"host": "evil.example:9000"}, 421, "host"),
        ({"origin": "http://evil.example"}, 403, "origin"),
        ({"origin": "null"}, 403, "origin"),
    ],
)
@virtual_test
async def test_every_route_passes_the_guard(
    method: str, path: str, headers: dict[str, str | None], status: int, reason: str
) -> None:
    operator = Operator()
    answer = await operator.send(method, path, headers)
    assert answer.status == status
    assert operator.observer.named("audit.refused") == [
        {"reason": reason, "address": "127.0.0.1", "surface": "admin"}
    ]
    assert not operator.fleet.done
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(("method", "path"), PATHS)
@virtual_test
async def test_a_route_has_one_method(method: str, path: str) -> None:
    operator = Operator()
    other = "GET" if method == "POST" else "POST"
    assert (await operator.send(other, path)).status == 405
    assert not operator.fleet.done


@pytest.mark.parametrize(("method", "path"), PATHS)
@virtual_test
async def test_a_route_is_reached_by_one_spelling_of_its_path(method: str, path: str) -> None:
    operator = Operator()
    encoded = f"/%{ord(path[1]):X}{path[2:]}"
    for other in (f"/{path}", f"{path}/", f"{path}//", path.upper(), path.replace("/", "//"), f"/.{path}"):
        assert (await operator.send(method, other)).status == 404, other
    protocol, paper = connected_to(operator.surface.serve)
    line = f"{method} {encoded} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    protocol.data_received(line.encode())
    await settled()
    assert paper.statuses == [404]
    assert not operator.fleet.done


@virtual_test
async def test_the_state_has_the_page_and_the_events_that_were_asked_for() -> None:
    operator = Operator()
    answer = await operator.send("GET", "/api/state", query="page=abc&events=7")
    assert (answer.json["replica"], answer.json["next_page"]) == ("abc", "7")
    for wrong in ("-1", "x", "9" * 30, "1" + "&x=1" * 8):
        assert (await operator.send("GET", "/api/state", query=f"events={wrong}")).status == 400


@virtual_test
async def test_every_file_of_the_page_is_served() -> None:
    operator = Operator()
    for file in (files("limpet.ops.admin") / "page").iterdir():
        path = "/" if file.name == "index.html" else f"/{file.name}"
        assert (await operator.send("GET", path, {"authorization": None})).body == file.read_bytes()


@virtual_test
async def test_the_live_stream_goes_on_and_says_why_there_is_no_state() -> None:
    operator = Operator()
    operator.fleet.away = True
    call = operator.begin("GET", "/api/live")
    await call.until(1)
    operator.fleet.away = False
    await call.until(2)
    await call.cut()
    assert call.messages[0] == {"error": "the store does not answer"}
    assert call.messages[1]["servers"] == []


@virtual_test
async def test_the_live_stream_sends_the_state_each_second_until_the_client_goes() -> None:
    operator = Operator()
    call = operator.begin("GET", "/api/live")
    await call.until(3)
    await call.cut()
    assert len(call.messages) == 3


@virtual_test
async def test_a_live_stream_reports_a_store_that_is_unavailable_and_goes_on() -> None:
    operator = Operator()
    call = operator.begin("GET", "/api/live")
    await call.until(1)
    operator.fleet.away = True
    await call.until(2)
    operator.fleet.away = False
    await call.until(3)
    await call.cut()
    assert b"event: failed\n" in call.body
    assert call.body.count(b"\n\n") == 3


@virtual_test
async def test_live_streams_end_completely_when_the_process_ends() -> None:
    operator = Operator()
    call = operator.begin("GET", "/api/live")
    await call.until(1)
    operator.surface.streams.end()
    await call.done()
    assert (await operator.send("GET", "/api/live")).status == 200
    assert (await operator.send("GET", "/api/state")).status == 200


@virtual_test
async def test_wrong_tokens_of_an_address_are_limited_and_so_are_their_lines() -> None:
    operator = Operator()
    wrong = {"authorization": "Bearer wrong"}
    statuses = [(await operator.send("GET", "/metrics", wrong)).status for _ in range(GUESSES.count + 5)]
    assert statuses == [401] * GUESSES.count + [429] * 5
    # Others who share the operator's address cannot lock the operator out.
    assert (await operator.send("GET", "/metrics")).status == 200
    assert (await operator.send("GET", "/", {"authorization": None})).status == 200
    refused = await operator.send("GET", "/metrics", {"authorization": None})
    lines = [note["reason"] for note in operator.observer.named("audit.refused")]
    assert (refused.status, lines.count("admin_token"), lines.count("admin_rate")) == (429, 10, 6)
    await asyncio.sleep(int(refused.headers["retry-after"]))
    assert (await operator.send("GET", "/metrics", wrong)).status == 401
    assert operator.observer.named("audit.refused")[-1]["left_out"] == GUESSES.count - 10


@virtual_test
async def test_a_request_without_a_token_is_no_guess() -> None:
    operator = Operator()
    for _ in range(GUESSES.count + 1):
        assert (await operator.send("GET", "/metrics", {"authorization": None})).status == 401
    assert (await operator.send("GET", "/metrics")).status == 200


@virtual_test
async def test_an_act_of_an_operator_is_in_the_audit_log() -> None:
    operator = Operator()
    same = {"origin": f"http://{HOST}"}
    assert (await operator.send("POST", "/api/sessions/one/close", same)).json == {"done": True}
    assert (await operator.send("POST", "/api/calls/one/cancel", same)).json == {"done": True}
    assert operator.fleet.done == ["closed one", "cancelled one"]
    assert operator.observer.named("audit.done") == [
        {"act": "session_closed", "address": "127.0.0.1", "session": "one"},
        {"act": "call_cancelled", "address": "127.0.0.1", "call": "one"},
    ]


@virtual_test
async def test_an_act_that_fails_may_have_been_done_and_is_in_the_audit_log_too() -> None:
    operator = Operator()
    operator.fleet.away = True
    assert (await operator.send("POST", "/api/sessions/one/close")).status == 503
    assert operator.observer.named("audit.done") == [
        {"act": "session_closed", "address": "127.0.0.1", "session": "one", "outcome": "unknown"}
    ]


@virtual_test
async def test_a_name_that_does_not_exist_is_404_and_no_act() -> None:
    operator = Operator()
    for method, path in [
        ("GET", "/api/sessions/two"),
        ("POST", "/api/sessions/two/close"),
        ("POST", "/api/calls/two/cancel"),
        ("GET", "/api/nothing"),
        ("GET", "/api"),
    ]:
        answer = await operator.send(method, path)
        assert answer.status == 404
        assert answer.json["error"]
    assert not operator.observer.notes


@virtual_test
async def test_a_store_that_is_unavailable_is_503_with_the_reason() -> None:
    operator = Operator()
    operator.fleet.away = True
    answer = await operator.send("GET", "/api/state")
    assert answer.status == 503
    assert answer.json["error"]


@virtual_test
async def test_the_surface_counts_its_own_refusals_and_acts() -> None:
    operator = Operator()

    async def counted() -> list[str]:
        text = (await operator.send("GET", "/metrics")).body.decode()
        return [line for line in text.splitlines() if line.startswith(("limpet_ref", "limpet_acts"))]

    assert 'limpet_refusals_total{reason="admin_token"} 0' in await counted()
    for _ in range(12):
        await operator.send("GET", "/metrics", {"authorization": None})
    await operator.send("POST", "/api/calls/one/cancel")
    lines = await counted()
    assert 'limpet_refusals_total{reason="admin_token"} 12' in lines
    assert 'limpet_acts_total{act="call_cancelled"} 1' in lines
    assert 'limpet_acts_total{act="session_closed"} 0' in lines
